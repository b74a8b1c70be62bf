// SPDX-License-Identifier: Apache-2.0
// The one verb that AVX3_DL (AVX512_VNNI) makes quicker.
#define HWY_WANT_AVX3_DL
#include "kernels/dot_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_s32.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/dot_quads-inl.h"
#include "kernels/dot_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {

template <class I>
void DotAdd(const DotArgs& a) {
#if HWY_TARGET == HWY_AVX3_DL
  if (!Streams<PairFamily, I>(a)) return Blocked<QuadFamily<I>, I>(a);
#endif
  Dot<PairFamily, I>(a);
}

void DotAddS32(const DotArgs& a) {
  if (a.type == DType::kI8) return DotAdd<std::int8_t>(a);
  DotAdd<std::uint8_t>(a);
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(DotAddS32);

void dot_add_s32(const DotArgs& args) { HWY_DYNAMIC_DISPATCH(DotAddS32)(args); }

}  // namespace kref::detail
#endif
