// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_f64.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/dot_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {

void DotAddF64(const DotArgs& a) { Dot<FloatFamily<double>, double>(a); }

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(DotAddF64);

void dot_add_f64(const DotArgs& args) { HWY_DYNAMIC_DISPATCH(DotAddF64)(args); }

}  // namespace kref::detail
#endif
