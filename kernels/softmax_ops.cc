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

void softmax_update(const ScoreRule& rule, const BlockMask& mask, const ArrayRef& bias,
                    Ref<float, 2> p, const SoftmaxState& state) {
  KREF_DCHECK(p.stride(0) >= cdiv(mask.keys, 16) * 16 && state.sums.extent(1) == kSumLanes);
  thread_local std::vector<float> bias_row;
  if (bias.data != nullptr) bias_row.assign(static_cast<std::size_t>(cdiv(mask.keys, 16) * 16), 0);
  HWY_DYNAMIC_DISPATCH(SoftmaxUpdate)
  ({rule,
    mask.rows,
    mask.keys,
    state.acc.extent(1),
    mask.begin.data(),
    mask.end.data(),
    mask.chosen.data(),
    mask.chosen.stride(0),
    bias.data,
    bias.dtype,
    bias.data == nullptr || bias.extents[0] == 1 ? 0 : bias.strides[0],
    bias_row.data(),
    p.data(),
    p.stride(0),
    state.maximum.data(),
    state.maximum.stride(0),
    state.sums.data(),
    state.sums.stride(0),
    state.acc.data(),
    state.acc.stride(0)});
}

bool all_finite(Ref<const float, 2> x) {
  return HWY_DYNAMIC_DISPATCH(AllFinite)(x.data(), x.extent(0), x.stride(0), x.extent(1));
}

void add_values(const BlockMask& mask, Ref<const float, 2> p, Ref<float, 2> v, Ref<float, 2> acc) {
  struct Odd {
    Index key, column;
    float value;
  };
  std::vector<Odd> odd;
  for (Index j = 0; j < v.extent(0); ++j) {
    for (Index e = 0; e < v.extent(1); ++e) {
      if (std::isfinite(v(j, e))) continue;
      odd.push_back({j, e, v(j, e)});
      v(j, e) = 0;
    }
  }
  dot_add<float>(p, Ref<const float, 2>(v), acc);
  // A sum that meets an infinity or NaN comes to the same in every order.
  for (const Odd& o : odd) {
    for (Index r = 0; r < mask.rows; ++r) {
      if (mask.sees(r, o.key)) acc(r, o.column) += p(r, o.key) * o.value;
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
