// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_f32.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/dot_bf16_parts-inl.h"
#include "kernels/dot_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {

// Types which become bf16 pairs by way of f32. Packing takes longer than for f32: with 16 rows of x
// the product takes a fifth more time, with 65 a little less, with 128 to 512 a third less.
template <class T>
void DotWidened(const DotArgs& a) {
#if HWY_TARGET <= HWY_AVX3
  if (a.m >= 64 && a.n >= 64 && HasBF16Pairs()) return Blocked<BF16Pairs, T>(a);
#endif
  Dot<FloatFamily<float>, T>(a);
}

void DotAddF32(const DotArgs& a) {
  switch (a.type) {
    case DType::kF32:
      if (a.precision != Precision::kF32) return DotWidened<float>(a);
      return Dot<FloatFamily<float>, float>(a);
    case DType::kBF16:
#if HWY_TARGET <= HWY_AVX3
      if (HasBF16Pairs()) return Dot<BF16Pairs, bf16>(a);
#endif
      return Dot<FloatFamily<float>, bf16>(a);
    case DType::kF16:
      return Dot<FloatFamily<float>, f16>(a);
    case DType::kF8E4M3:
      return DotWidened<f8_e4m3>(a);
    default:
      return DotWidened<f8_e5m2>(a);
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
