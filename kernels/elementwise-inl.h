// SPDX-License-Identifier: Apache-2.0
// Element by element arithmetic on floats: rows of f64, f32, f16, bf16, computed in f64 or f32.
#if defined(KREF_KERNELS_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ELEMENTWISE_INL_H_
#undef KREF_KERNELS_ELEMENTWISE_INL_H_
#else
#define KREF_KERNELS_ELEMENTWISE_INL_H_
#endif

#include "kernels/map-inl.h"
#include "kernels/tile_ops.h"

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
  HWY_INLINE V operator()(D /*d*/, V x) const {
    using enum detail::Unary;
    if constexpr (kOp == kNeg) return hn::Neg(x);
    if constexpr (kOp == kAbs) return hn::Abs(x);
  }
};

struct MulAddOp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y, V z) const {
    return FusedMulAdd(d, x, y, z);
  }
};

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
    default:
      return;  // kernels/transcendental.cc
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
