// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_f32.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/dot_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {

void DotAddF32(const DotArgs& a) {
  switch (a.type) {
    case DType::kF32:
      return Dot<FloatFamily<float>, float>(a);
    case DType::kBF16:
#if HWY_TARGET <= HWY_AVX3
      if (HasBF16Pairs()) return Dot<BF16Pairs, bf16>(a);
#endif
      return Dot<FloatFamily<float>, bf16>(a);
    case DType::kF16:
      return Dot<FloatFamily<float>, f16>(a);
    case DType::kF8E4M3:
      return Dot<FloatFamily<float>, f8_e4m3>(a);
    default:
      return Dot<FloatFamily<float>, f8_e5m2>(a);
  }
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(DotAddF32);

void dot_add_f32(const DotArgs& args) { HWY_DYNAMIC_DISPATCH(DotAddF32)(args); }

}  // namespace kref::detail
#endif
