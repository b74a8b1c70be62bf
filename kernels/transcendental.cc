// SPDX-License-Identifier: Apache-2.0
// exp, exp2, log, tanh: apart from the arithmetic of elementwise.cc, so that the two compile side
// by side.
#include "kernels/transcendental.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transcendental.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/log_tanh-inl.h"
#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

template <detail::Unary kOp>
struct TranscendentalOp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using enum detail::Unary;
    if constexpr (kOp == kExp) return Exp(d, x);
    if constexpr (kOp == kExp2) return Exp2(d, x);
    if constexpr (kOp == kLog) return Log(d, x);
    if constexpr (kOp == kTanh) return Tanh(d, x);
  }
};

template <detail::Unary kOp>
void MapTranscendental(DType type, const detail::Plane& p) {
  using Op = TranscendentalOp<kOp>;
  switch (type) {
    case DType::kF64:
      if constexpr (kOp <= detail::Unary::kExp2) MapUnary<double, Op>(p);
      return;
    case DType::kF32:
      return MapUnary<float, Op>(p);
    case DType::kF16:
      return MapUnary<f16, Op>(p);
    default:
      return MapUnary<bf16, Op>(p);
  }
}

void Transcendental(DType type, detail::Unary op, const detail::Plane& p) {
  using enum detail::Unary;
  switch (op) {
    case kExp:
      return MapTranscendental<kExp>(type, p);
    case kExp2:
      return MapTranscendental<kExp2>(type, p);
    case kLog:
      return MapTranscendental<kLog>(type, p);
    default:
      return MapTranscendental<kTanh>(type, p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(Transcendental);

void transcendental(DType type, Unary op, const Plane& plane) {
  HWY_DYNAMIC_DISPATCH(Transcendental)(type, op, plane);
}

}  // namespace kref::detail
#endif  // HWY_ONCE
