// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_s32.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/dot_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {

void DotAddS32(const DotArgs& a) {
  if (a.type == DType::kI8) return Dot<PairFamily, std::int8_t>(a);
  Dot<PairFamily, std::uint8_t>(a);
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(DotAddS32);

void dot_add_s32(const DotArgs& args) { HWY_DYNAMIC_DISPATCH(DotAddS32)(args); }

}  // namespace kref::detail
#endif
