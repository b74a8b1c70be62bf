// SPDX-License-Identifier: Apache-2.0
// flash_attention_vjp: the cotangents of the inputs of flash_attention, from those of its outputs,
// without an array of all scores.
#pragma once

#include <optional>

#include "kernels/flash_attention.h"
#include "kernels/reference_attention_vjp.h"

namespace kref {

using reference::AttentionCotangents;

// Where the cotangents of the inputs go: the shape and layout of the input, any outer strides, any
// float type. bias and sinks: not asked for where they are absent; refused without that input.
struct AttentionGradientOutputs {
  MutableArrayRef q, k, v;
  std::optional<MutableArrayRef> bias = {}, sinks = {};
};

// What a forward pass left: o of any float type in the layout of the options, and lse [B, H, T] F32
// in their base. delta = do . o is summed from this o, so that an o rounded to a narrow type shows
// in dq, dk, dbias and dsinks.
struct AttentionResiduals {
  ArrayRef o, lse;
};

// The tile that 0 stands for in flash_attention_vjp; its k depends on `keys` only where there are
// few of them.
AttentionTile default_attention_vjp_tile(Index queries, Index keys);

// The vjp of attention at `in` (formulas: kernels/reference_attention_vjp.h):
//
//   flash_attention_vjp({.q = q, .k = k, .v = v}, {.o = ct}, {.q = dq, .k = dk, .v = dv},
//                       {.scale = 0.125, .causal = Causal::kTopLeft});
//
// Inputs as flash_attention takes them, every option as there but p_dtype, which has no part in
// this; cotangents of any float type. o and lse are computed by flash_attention where none are
// given, and also under FullyMasked::kNaN, whose lse does not tell a row that sees no key from one
// that sees a NaN.
//
// A sweep over blocks of keys, and the rows that see them, forms each product once: scores and do
// v^T (dots, ascending along D and E), p = exp(logit - lse), ds = p (dp - delta), then dv += p^T
// do, dk += ds^T q, dq += ds k. dk and dv are chains along the heads of a group and their rows,
// both ascending; dq is the sum of up to four partial sums, each a chain along its run of keys;
// dbias is formed by a second pass, summed along batches, heads and rows in this order, ascending;
// dsinks as row_sum of each row of weights, batches ascending. So no bit depends on tile.q, the
// number of threads and the SIMD target (of a NaN only that it is one, and the sign of a zero);
// tile.k is part of the last bits of dq and, where lse is not given, of lse. Sums of integers are
// exact for any.
//
// What a row does not see, in q, k, v, bias or a cotangent, has no influence, whatever it holds. No
// array of T x S exists but dbias; beside f32 row numbers (lse, delta) memory is that of the
// partial sums and of o for some heads at a time: 64 MiB, or what one group of heads and a few
// threads need.
//
// Error, naming the operand, when shapes, element types, lengths or options do not fit, and when an
// output overlaps an input, a cotangent, a residual or another output.
void flash_attention_vjp(const AttentionInputs& in, const AttentionCotangents& ct,
                         const AttentionGradientOutputs& out, const AttentionOptions& options,
                         const AttentionTile& tile = {});
void flash_attention_vjp(const AttentionInputs& in, const AttentionResiduals& residuals,
                         const AttentionCotangents& ct, const AttentionGradientOutputs& out,
                         const AttentionOptions& options, const AttentionTile& tile = {});

}  // namespace kref
