// SPDX-License-Identifier: Apache-2.0
// Element by element arithmetic on floats: rows of f64, f32, f16, bf16, computed in f64 or f32.
#if defined(KREF_KERNELS_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ELEMENTWISE_INL_H_
#undef KREF_KERNELS_ELEMENTWISE_INL_H_
#else
#define KREF_KERNELS_ELEMENTWISE_INL_H_
#endif

#include "kernels/exp-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/tile_ops.h"
#include "kernels/tile_plan.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

template <detail::Binary kOp>
struct BinaryOp {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V x, V y) const {
    using enum detail::Binary;
    if constexpr (kOp == kAdd) return hn::Add(x, y);
    if constexpr (kOp == kSub) return hn::Sub(x, y);
    if constexpr (kOp == kMul) return hn::Mul(x, y);
    if constexpr (kOp == kDiv) return hn::Div(x, y);
    if constexpr (kOp == kMaximum) return Maximum(x, y);
    if constexpr (kOp == kMinimum) return Minimum(x, y);
  }
};

template <detail::Unary kOp>
struct UnaryOp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using enum detail::Unary;
    if constexpr (kOp == kNeg) return hn::Neg(x);
    if constexpr (kOp == kAbs) return hn::Abs(x);
    if constexpr (kOp == kExp) return Exp(d, x);
  }
};

struct MulAddOp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y, V z) const {
    return FusedMulAdd(d, x, y, z);
  }
};

// One input along a row: vectors of it, or the one element that is broadcast.
template <class D, class T>
struct RowInput {
  const T* p;
  bool moves;
  hn::Vec<D> first;

  HWY_INLINE RowInput(D d, const detail::Side& side, Index row)
      : p(side.row<const T>(row)),
        moves(side.step != 0),
        first(hn::Set(d, static_cast<Wide<T>>(*p))) {}
  HWY_INLINE hn::Vec<D> Load(D d, std::size_t i) const {
    return moves ? LoadWide(d, p + i) : first;
  }
  HWY_INLINE hn::Vec<D> LoadN(D d, std::size_t i, std::size_t n) const {
    return moves ? LoadWideN(d, p + i, n) : first;
  }
};

// out = op(inputs), all operands of element type T, the output last.
template <class T, class Op>
void MapUnary(const detail::Plane& p) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const RowInput<decltype(d), T> x(d, p.side[0], r);
    T* out = p.side[1].row<T>(r);
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) StoreWide(Op()(d, x.Load(d, i)), d, out + i);
    if (i < n) StoreWideN(Op()(d, x.LoadN(d, i, n - i)), d, out + i, n - i);
  }
}

template <class T, class Op>
void MapBinary(const detail::Plane& p) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const RowInput<decltype(d), T> x(d, p.side[0], r), y(d, p.side[1], r);
    T* out = p.side[2].row<T>(r);
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) StoreWide(Op()(d, x.Load(d, i), y.Load(d, i)), d, out + i);
    if (i < n) StoreWideN(Op()(d, x.LoadN(d, i, n - i), y.LoadN(d, i, n - i)), d, out + i, n - i);
  }
}

template <class T, class Op>
void MapTernary(const detail::Plane& p) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const RowInput<decltype(d), T> x(d, p.side[0], r), y(d, p.side[1], r), z(d, p.side[2], r);
    T* out = p.side[3].row<T>(r);
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      StoreWide(Op()(d, x.Load(d, i), y.Load(d, i), z.Load(d, i)), d, out + i);
    }
    if (i < n) {
      const std::size_t m = n - i;
      StoreWideN(Op()(d, x.LoadN(d, i, m), y.LoadN(d, i, m), z.LoadN(d, i, m)), d, out + i, m);
    }
  }
}

template <class T>
void BinaryOf(detail::Binary op, const detail::Plane& p) {
  using enum detail::Binary;
  switch (op) {
    case kAdd:
      return MapBinary<T, BinaryOp<kAdd>>(p);
    case kSub:
      return MapBinary<T, BinaryOp<kSub>>(p);
    case kMul:
      return MapBinary<T, BinaryOp<kMul>>(p);
    case kDiv:
      return MapBinary<T, BinaryOp<kDiv>>(p);
    case kMaximum:
      return MapBinary<T, BinaryOp<kMaximum>>(p);
    case kMinimum:
      return MapBinary<T, BinaryOp<kMinimum>>(p);
  }
}

template <class T>
void UnaryOf(detail::Unary op, const detail::Plane& p) {
  using enum detail::Unary;
  switch (op) {
    case kNeg:
      return MapUnary<T, UnaryOp<kNeg>>(p);
    case kAbs:
      return MapUnary<T, UnaryOp<kAbs>>(p);
    case kExp:
      return MapUnary<T, UnaryOp<kExp>>(p);
  }
}

void FloatBinary(DType type, detail::Binary op, const detail::Plane& p) {
  switch (type) {
    case DType::kF64:
      return BinaryOf<double>(op, p);
    case DType::kF32:
      return BinaryOf<float>(op, p);
    case DType::kF16:
      return BinaryOf<f16>(op, p);
    default:
      return BinaryOf<bf16>(op, p);
  }
}

void FloatUnary(DType type, detail::Unary op, const detail::Plane& p) {
  switch (type) {
    case DType::kF64:
      return UnaryOf<double>(op, p);
    case DType::kF32:
      return UnaryOf<float>(op, p);
    case DType::kF16:
      return UnaryOf<f16>(op, p);
    default:
      return UnaryOf<bf16>(op, p);
  }
}

void FloatMulAdd(DType type, const detail::Plane& p) {
  switch (type) {
    case DType::kF64:
      return MapTernary<double, MulAddOp>(p);
    case DType::kF32:
      return MapTernary<float, MulAddOp>(p);
    case DType::kF16:
      return MapTernary<f16, MulAddOp>(p);
    default:
      return MapTernary<bf16, MulAddOp>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_ELEMENTWISE_INL_H_
