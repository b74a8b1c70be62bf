// SPDX-License-Identifier: Apache-2.0
// Reductions of floats along a dimension other than the last: each lane is a result of its own.
#if defined(KREF_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_REDUCE_INL_H_
#undef KREF_KERNELS_REDUCE_INL_H_
#else
#define KREF_KERNELS_REDUCE_INL_H_
#endif

#include "kernels/combine-inl.h"
#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

// kVectors vectors of results, from elements x[s * stride + ...], s ascending; the last vector has
// `last` lanes.
template <detail::Reduction kOp, std::size_t kVectors, class T, class U>
HWY_INLINE void ReduceLanes(const T* x, Index stride, Index steps, bool moves, std::size_t last,
                            U* out) {
  const hn::ScalableTag<Wide<T>> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  const bool whole = last == lanes;
  V acc[kVectors];
  for (V& v : acc) v = hn::Set(d, Identity<kOp, Wide<T>>());
  for (Index s = 0; s < steps; ++s, x += stride) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const V next = !moves  ? hn::Set(d, static_cast<Wide<T>>(*x))
                     : whole ? LoadWide(d, x + v * lanes)
                             : LoadWideN(d, x + v * lanes, last);
      acc[v] = Combine<kOp>(acc[v], next);
    }
  }
  const V nan = hn::Set(d, std::numeric_limits<Wide<T>>::quiet_NaN());
  // The results are of the type computed in, or of the elements'.
  for (std::size_t v = 0; v < kVectors; ++v) {
    const V result = hn::IfThenElse(hn::Eq(acc[v], acc[v]), acc[v], nan);
    if (whole) {
      StoreWide(result, d, out + v * lanes);
    } else {
      StoreWideN(result, d, out + v * lanes, last);
    }
  }
}

// x: side 0, its first step. out: side 1.
template <detail::Reduction kOp, class T, class U>
void ReduceStepsPlane(const detail::Plane& p, Index steps, Index stride) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<Wide<T>>()),
                    n = static_cast<std::size_t>(p.cols);
  const bool moves = p.side[0].step != 0;
  for (Index r = 0; r < p.rows; ++r) {
    const T* x = p.side[0].row<const T>(r);
    U* out = p.side[1].row<U>(r);
    std::size_t i = 0;
    if constexpr (!kPortable) {
      for (; i + 4 * lanes <= n; i += 4 * lanes)
        ReduceLanes<kOp, 4>(moves ? x + i : x, stride, steps, moves, lanes, out + i);
    }
    for (; i < n; i += lanes)
      ReduceLanes<kOp, 1>(moves ? x + i : x, stride, steps, moves, NextPart(n - i, lanes), out + i);
  }
}

template <class T, class U>
void ReduceStepsAs(detail::Reduction op, const detail::Plane& p, Index steps, Index stride) {
  using enum detail::Reduction;
  switch (op) {
    case kSum:
      return ReduceStepsPlane<kSum, T, U>(p, steps, stride);
    case kMax:
      return ReduceStepsPlane<kMax, T, U>(p, steps, stride);
    case kMin:
      return ReduceStepsPlane<kMin, T, U>(p, steps, stride);
  }
}

void FloatReduceSteps(detail::Reduction op, DType from, DType to, const detail::Plane& p,
                      Index steps, Index stride) {
  switch (from) {
    case DType::kF64:
      return ReduceStepsAs<double, double>(op, p, steps, stride);
    case DType::kF32:
      // From an intermediate result: rounded to the type of the operand at the end.
      return to == DType::kF32    ? ReduceStepsAs<float, float>(op, p, steps, stride)
             : to == DType::kBF16 ? ReduceStepsAs<float, bf16>(op, p, steps, stride)
                                  : ReduceStepsAs<float, f16>(op, p, steps, stride);
    case DType::kF16:
      return to == DType::kF32 ? ReduceStepsAs<f16, float>(op, p, steps, stride)
                               : ReduceStepsAs<f16, f16>(op, p, steps, stride);
    default:
      return to == DType::kF32 ? ReduceStepsAs<bf16, float>(op, p, steps, stride)
                               : ReduceStepsAs<bf16, bf16>(op, p, steps, stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_REDUCE_INL_H_
