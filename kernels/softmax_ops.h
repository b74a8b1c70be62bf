// SPDX-License-Identifier: Apache-2.0
// The verbs of a softmax that is carried along blocks of keys: logits to weights, the state of the
// rows, and what of v may take part.
#pragma once

#include "kernels/attention_mask.h"

namespace kref::detail {

// The partial sums of a row: element j of a block goes to lane j mod 16, as in row_sum.
inline constexpr Index kSumLanes = 16;

// How scores become logits.
struct ScoreRule {
  float scale = 1, cap = 0;  // cap 0: none
  bool bias_before_scale = false;
  DType p_dtype = DType::kF32;  // to which weights are rounded; the sums take them unrounded
};

// The state of the rows of a block of queries.
struct SoftmaxState {
  Ref<float, 2> maximum;  // (rows, 1)
  Ref<float, 2> sums;     // (rows, kSumLanes), in total the sum of exp(logit - maximum)
  Ref<float, 2> acc;      // (rows, E), sum of exp(logit - maximum) v; row stride a multiple of 16
};

// A state that has seen nothing but a sink (-infinity: none).
void reset_softmax(const SoftmaxState& state, float sink);

// p (rows, keys) holds q k^T and becomes exp(logit - maximum), 0 where the row does not see the
// key; maximum, sums and acc move on to the new maximum. `bias` (rows or 1, keys) of any float
// type, null data: none. p's rows are followed by room up to a multiple of 16 columns.
void softmax_update(const ScoreRule& rule, const BlockMask& mask, const ArrayRef& bias,
                    Ref<float, 2> p, const SoftmaxState& state);

// True when no element of x (rows, columns) is infinite or NaN.
bool all_finite(Ref<const float, 2> x);

// An element that is infinite or NaN, taken out of a block.
struct OddElement {
  Index row, column;
  float value;
};

// The elements of x that are infinite or NaN; they are 0 in x afterwards.
std::vector<OddElement> take_odd(Ref<float, 2> x);

// acc (rows, E) += p (rows, keys) v (keys, E), where a key that a row does not see takes no part
// even if v is infinite or NaN there. v is left without such values.
void add_values(const BlockMask& mask, Ref<const float, 2> p, Ref<float, 2> v, Ref<float, 2> acc);

// The total of each row's lanes: l takes l + 8, l + 4, l + 2, l + 1, as in row_sum.
void total_sums(Ref<const float, 2> sums, Ref<float, 2> total);

}  // namespace kref::detail
