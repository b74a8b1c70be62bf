// SPDX-License-Identifier: Apache-2.0
// The end of a softmax that was carried along blocks of keys, as flash_attention and
// decode_attention share it.
#pragma once

#include <optional>

#include "kernels/softmax_ops.h"

namespace kref::detail {

// How scores become logits under these options. Error when F32 does not hold the scale.
ScoreRule score_rule(double scale, const std::optional<double>& soft_cap,
                     const std::optional<DType>& p_dtype);

// mean (1, E) = the mean over the rows of v (S, E), in f32.
void mean_of(const ArrayRef& v, Ref<float, 2> mean);

// State to results: acc becomes o in f32, maximum the lse in that base. Rows from `rows` on are
// past their length: 0 and -infinity. `mean` is what a row that sees no key gets under kUniform.
// `total` (rows, 1) is scratch.
void finish_softmax(const SoftmaxState& state, Index rows, FullyMasked fully_masked,
                    const std::optional<Ref<float, 2>>& mean, LogBase base, Ref<float, 2> total);

}  // namespace kref::detail
