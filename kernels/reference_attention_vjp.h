// SPDX-License-Identifier: Apache-2.0
// The definition of the backward pass of attention: plain loops in f64 over the keys a row sees.
// Semantics: spec/runs.md section 3, `attention.vjp`.
//
// With w_j the weights of the keys a row sees (a sink is one more key whose value is 0), do and
// dlse the cotangents of its o and of its natural lse (that of a base-2 lse times log2 e):
//   dp_j = do . v_j,  delta = sum w_j dp_j = do . o,
//   ds_j = w_j (dp_j - delta + dlse), the cotangent of logit j;
//   that of score j is ds_j (1 - tanh^2(score_j / c)) under a soft cap c; times scale it is that of
//   q . k_j, and under kBeforeScale of the bias too, which under kAfterScale has it unscaled;
//   dv_j = w_j do; dsink = w_sink (dlse - delta).
// Every result is the sum over all that share the input: rows and, of dk and dv, the query heads of
// one kv head; of the bias, the dimensions along which it is broadcast.
//
// A row past q_lengths, and one that sees neither key nor sink, has o and lse that depend on
// nothing: its do and dlse are not looked at. Except for o of the latter under kUniform, the mean
// of all v: dv_j gets do / S for every key, seen or not. p_dtype has no part in any of it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernels/reference_attention.h"

namespace kref::reference {

// Of any float types.
struct AttentionCotangents {
  ArrayRef o;                        // [B, H, T, E], in the layout of the options
  std::optional<ArrayRef> lse = {};  // [B, H, T] in the base of the options; absent: 0
};

// What one row contributes.
struct AttentionRowGradient {
  // Of the key of the same place in AttentionRow::keys.
  struct Key {
    double dp;            // do . v
    double dp_magnitude;  // sum of |do| |v| over E
    double slope;         // of the soft cap, 1 without
    double logit;         // ds, the cotangent of the logit
    double bias;          // of the bias as it was given
    double product;       // of q . k
  };
  std::vector<Key> keys;
  const double* ct_o = nullptr;  // E values
  double ct_lse = 0;             // of the natural lse
  double delta = 0;              // sum of weight dp
  double sink = 0;               // cotangent of the row's sink; 0 when there is none
};

// Of a row as attention_rows hands it out for these options without p_dtype: ct_o its E cotangents,
// ct_lse that of its natural lse. Views ct_o.
void row_gradient(const AttentionRow& row, const AttentionOptions& options, const double* ct_o,
                  double ct_lse, AttentionRowGradient& out);

// Calls `visit` for every row, in the order of attention_rows; both are valid during the call only.
// Error as attention_rows, and when a cotangent has another shape or no float type.
void attention_vjp_rows(
    const AttentionInputs& in, const AttentionCotangents& ct, const AttentionOptions& options,
    const std::function<void(const AttentionRow&, const AttentionRowGradient&)>& visit);

// The cotangents of the inputs, row-major in the shapes in which those were given; bias and sinks
// are empty where there is none.
struct AttentionGradients {
  std::vector<double> q, k, v, bias, sinks;
};
// Error as attention_vjp_rows.
AttentionGradients attention_vjp(const AttentionInputs& in, const AttentionCotangents& ct,
                                 const AttentionOptions& options);

// Where the bias of a row starts in an array [B|1, H|1, T|1, S] of these extents.
Index bias_offset(std::span<const Index> extents, const AttentionRow& row);

}  // namespace kref::reference
