// SPDX-License-Identifier: Apache-2.0
// What an attention comes to, for those who price it.
#pragma once

#include "dsl/work_meter.h"
#include "kernels/flash_attention.h"

namespace kref {

// Pairs of a row and a key that the row sees, by causal mask and window, among the first `rows` of
// `queries` rows and the first `valid` of `keys` keys: q_lengths and kv_lengths of a sequence,
// which move no position. In a time that no size is part of; exact below 2^52.
double visible_pairs(const AttentionOptions& options, Index queries, Index keys, Index rows,
                     Index valid);

// Of all pairs of a row and a key those whose key the row sees, by causal mask and window; 1 where
// there are none.
double visible_share(const AttentionOptions& options, Index queries, Index keys);

// Keys that the one row of decode_attention sees of `length`, at the last of which it sits.
Index decode_keys(const Window& window, Index length);

namespace detail {

struct AttentionSizes;  // kernels/attention_check.h

// What a forward pass tells its meter: of whole sequences, as lengths are not looked at.
AttentionWork attention_work(const AttentionInputs& in, const AttentionSizes& n,
                             const AttentionOptions& options);

}  // namespace detail

}  // namespace kref
