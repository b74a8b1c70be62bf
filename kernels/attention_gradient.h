// SPDX-License-Identifier: Apache-2.0
// The verbs of the backward pass of attention: what a block of scores and its cotangents come to,
// and the products that what a row does not see takes no part in.
#pragma once

#include "kernels/softmax_ops.h"

namespace kref::detail {

// What the rows of a block of queries bring to their gradient.
struct RowGradients {
  Ref<const float, 1> lse;    // of the logits, natural
  Ref<const float, 1> delta;  // do . o - dlse
};

// p (rows, keys) holds q k^T and becomes w = exp(logit - lse); ds of that shape holds do v^T and
// becomes factor * w (ds - delta), times the slope 1 - tanh^2 of a soft cap. Both are 0 where the
// row does not see the key. `bias` (rows or 1, keys) of any float type, null data: none. Rows of p
// and ds are followed by room up to a multiple of 16 columns. rule.p_dtype has no part in it.
void attention_gradient(const ScoreRule& rule, float factor, const BlockMask& mask,
                        const ArrayRef& bias, const RowGradients& rows, Ref<float, 2> p,
                        Ref<float, 2> ds);

// acc (columns of y, keys) += y^T x for x (rows, keys), y (rows, columns), where y has lost `odd`.
// Those come back to the keys that their row sees: 0 times an infinity is no 0.
void add_by_keys(const BlockMask& mask, Ref<const float, 2> x, Ref<const float, 2> y,
                 const std::vector<OddElement>& odd, Ref<float, 2> acc);

// out (columns, rows) = the transpose of x (rows, columns).
void transpose(Ref<const float, 2> x, Ref<float, 2> out);

}  // namespace kref::detail
