// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_ops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/softmax_ops-inl.h"

#if HWY_ONCE

#include <cmath>
#include <vector>

#include "kernels/dot.h"
#include "kernels/tile_ops.h"

namespace kref::detail {

HWY_EXPORT(SoftmaxUpdate);
HWY_EXPORT(AllFinite);

void reset_softmax(const SoftmaxState& state, float sink) {
  fill(state.maximum, sink);
  fill(state.sums, 0.0f);
  fill(state.acc, 0.0f);
  if (sink == -std::numeric_limits<float>::infinity()) return;
  for (Index r = 0; r < state.sums.extent(0); ++r) state.sums(r, 0) = std::exp(sink - sink);
}

SoftmaxArgs softmax_args(const ScoreRule& rule, const BlockMask& mask, const ArrayRef& bias,
                         Ref<float, 2> p) {
  thread_local std::vector<float> bias_row;
  if (bias.data != nullptr) bias_row.assign(static_cast<std::size_t>(cdiv(mask.keys, 16) * 16), 0);
  return {rule,
          mask.rows,
          mask.keys,
          mask.begin.data(),
          mask.end.data(),
          mask.chosen.data(),
          mask.chosen.stride(0),
          bias.data,
          bias.dtype,
          bias.data == nullptr || bias.extents[0] == 1 ? 0 : bias.strides[0],
          bias_row.data(),
          p.data(),
          p.stride(0)};
}

void softmax_update(const ScoreRule& rule, const BlockMask& mask, const ArrayRef& bias,
                    Ref<float, 2> p, const SoftmaxState& state) {
  KREF_DCHECK(p.stride(0) >= cdiv(mask.keys, 16) * 16 && state.sums.extent(1) == kSumLanes);
  SoftmaxArgs args = softmax_args(rule, mask, bias, p);
  args.maximum = state.maximum.data(), args.maximum_stride = state.maximum.stride(0);
  args.sums = state.sums.data(), args.sums_stride = state.sums.stride(0);
  args.acc = state.acc.data(), args.acc_stride = state.acc.stride(0);
  args.width = state.acc.extent(1);
  HWY_DYNAMIC_DISPATCH(SoftmaxUpdate)(args);
}

bool all_finite(Ref<const float, 2> x) {
  return HWY_DYNAMIC_DISPATCH(AllFinite)(x.data(), x.extent(0), x.stride(0), x.extent(1));
}

std::vector<OddElement> take_odd(Ref<float, 2> x) {
  std::vector<OddElement> odd;
  for (Index r = 0; r < x.extent(0); ++r) {
    for (Index c = 0; c < x.extent(1); ++c) {
      if (std::isfinite(x(r, c))) continue;
      odd.push_back({r, c, x(r, c)});
      x(r, c) = 0;
    }
  }
  return odd;
}

void add_values(const BlockMask& mask, Ref<const float, 2> p, Ref<float, 2> v, Ref<float, 2> acc) {
  const std::vector<OddElement> odd = take_odd(v);
  dot_add<float>(p, Ref<const float, 2>(v), acc);
  // A sum that meets an infinity or NaN comes to the same in every order.
  for (const OddElement& o : odd) {
    for (Index r = 0; r < mask.rows; ++r) {
      if (mask.sees(r, o.row)) acc(r, o.column) += p(r, o.row) * o.value;
    }
  }
}

void total_sums(Ref<const float, 2> sums, Ref<float, 2> total) {
  for (Index r = 0; r < sums.extent(0); ++r) {
    float lanes[kSumLanes];
    std::copy(&sums(r, 0), &sums(r, 0) + kSumLanes, lanes);
    for (Index width = kSumLanes / 2; width > 0; width /= 2) {
      for (Index l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    }
    total(r, 0) = lanes[0];
  }
}

}  // namespace kref::detail
#endif  // HWY_ONCE
