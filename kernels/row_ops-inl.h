// SPDX-License-Identifier: Apache-2.0
// Reductions of rows of floats, in 16 lanes whatever the width of a vector.
#if defined(KREF_KERNELS_ROW_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ROW_OPS_INL_H_
#undef KREF_KERNELS_ROW_OPS_INL_H_
#else
#define KREF_KERNELS_ROW_OPS_INL_H_
#endif

#include "kernels/combine-inl.h"
#include "kernels/tile_plan.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kLanes = 16;

// The lanes folded 8, 4, 2, 1.
template <detail::Reduction kOp, class T>
HWY_INLINE T Fold(T* lanes) {
  const hn::CappedTag<T, 1> d;
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) {
      lanes[l] = hn::GetLane(Combine<kOp>(hn::Set(d, lanes[l]), hn::Set(d, lanes[l + width])));
    }
  }
  return lanes[0] == lanes[0] ? lanes[0] : std::numeric_limits<T>::quiet_NaN();
}

// kRows rows of n elements at once: their sums do not depend on each other, so the adder of the
// machine is busy although each row has only 16 lanes.
template <detail::Reduction kOp, std::size_t kRows, class T>
HWY_NOINLINE void ReduceRows(const T* x, Index stride, std::size_t n, Wide<T>* results) {
  using W = Wide<T>;
  const hn::CappedTag<W, kLanes> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kN = hn::MaxLanes(decltype(d)());
  constexpr std::size_t kVectors = kLanes / kN;
  const V identity = hn::Set(d, Identity<kOp, W>());
  V acc[kRows][kVectors];
  for (auto& row : acc) {
    for (V& v : row) v = identity;
  }
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const T* p = x + static_cast<Index>(r) * stride + i;
      for (std::size_t v = 0; v < kVectors; ++v)
        acc[r][v] = Combine<kOp>(acc[r][v], LoadWide(d, p + v * kN));
    }
  }
  for (std::size_t v = 0; i < n; ++v, i += kN) {
    const std::size_t m = n - i < kN ? n - i : kN;
    for (std::size_t r = 0; r < kRows; ++r) {
      const T* p = x + static_cast<Index>(r) * stride + i;
      const V last =
          m == kN ? LoadWide(d, p) : hn::IfThenElse(hn::FirstN(d, m), LoadWideN(d, p, m), identity);
      acc[r][v] = Combine<kOp>(acc[r][v], last);
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    HWY_ALIGN W lanes[kLanes];
    for (std::size_t v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, lanes + v * kN);
    results[r] = Fold<kOp>(lanes);
  }
}

// x: side 0, (rows, cols). out: side 1, one element of U a row.
template <detail::Reduction kOp, class T, class U>
void ReducePlane(const detail::Plane& p) {
  // The portable target has no vectors to keep busy: several rows would only be more code, which a
  // compiler with sanitizers takes minutes for.
  constexpr Index kTogether = kPortable ? 1 : 4;
  const auto n = static_cast<std::size_t>(p.cols);
  Wide<T> results[kTogether];
  for (Index r = 0; r < p.rows;) {
    const T* x = p.side[0].row<const T>(r);
    const Index count = r + kTogether <= p.rows ? kTogether : 1;
    if (count == kTogether) {
      ReduceRows<kOp, kTogether>(x, p.side[0].row_stride, n, results);
    } else {
      ReduceRows<kOp, 1>(x, p.side[0].row_stride, n, results);
    }
    for (Index i = 0; i < count; ++i, ++r) *p.side[1].row<U>(r) = static_cast<U>(results[i]);
  }
}

template <class T, class U>
void ReduceAs(detail::Reduction op, const detail::Plane& p) {
  using enum detail::Reduction;
  switch (op) {
    case kSum:
      return ReducePlane<kSum, T, U>(p);
    case kMax:
      return ReducePlane<kMax, T, U>(p);
    case kMin:
      return ReducePlane<kMin, T, U>(p);
  }
}

void FloatReduce(detail::Reduction op, DType from, DType to, const detail::Plane& p) {
  switch (from) {
    case DType::kF64:
      return ReduceAs<double, double>(op, p);
    case DType::kF32:
      return ReduceAs<float, float>(op, p);
    case DType::kF16:
      return to == DType::kF32 ? ReduceAs<f16, float>(op, p) : ReduceAs<f16, f16>(op, p);
    default:
      return to == DType::kF32 ? ReduceAs<bf16, float>(op, p) : ReduceAs<bf16, bf16>(op, p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_ROW_OPS_INL_H_
