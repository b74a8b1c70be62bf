// SPDX-License-Identifier: Apache-2.0
// flash_attention: softmax(scale q k^T + bias) v over the keys that each row sees, without an array
// of all scores. Every convention on which published kernels differ is a named option; those are
// declared once, in kernels/reference_attention.h, beside the definition in f64.
#pragma once

#include <optional>

#include "kernels/reference_attention.h"

namespace kref {

using reference::AttentionInputs;
using reference::AttentionOptions;
using reference::BiasOrder;
using reference::Causal;
using reference::FullyMasked;
using reference::Layout;
using reference::LogBase;
using reference::NegativeSegments;
using reference::Window;

// Rows and keys of a block. 0: chosen. q changes no bit of the result; k is part of its last bits,
// except where every rounding is exact, as with the integer probes (q = 0).
struct AttentionTile {
  Index q = 0, k = 0;
};

// The tile that 0 stands for; heads: B H. Its k depends on `keys` only where there are few of them,
// so that a row has the same bits in every batch.
AttentionTile default_attention_tile(Index heads, Index queries, Index keys);

// o = attention(in), lse [B, H, T] the logarithm of the sum of exp(logit), a sink's included.
//
//   flash_attention({.q = q, .k = k, .v = v}, o, {}, {.scale = 0.125, .causal = Causal::kTopLeft});
//
// q, k, v: one float type other than F64; bias F32 or that type; o any float type, in the layout of
// q; any outer strides. Semantics and shapes: AttentionInputs and AttentionOptions
// (spec/runs.md, `attention`).
//
// Scores are dots (ascending along D, f32), scaled, biased and capped in f32. Along the key blocks
// a row carries its maximum m, sixteen partial sums of p = exp(logit - m), and sum p v, rescaled
// when m grows; p is rounded to p_dtype before the product, whose order is ascending along keys; at
// the end it is divided by the sum. A key a row does not see takes no part in that row, whatever it
// and its bias hold; blocks without visible key are skipped. For a given tile.k the bits are
// the same for any tile.q, number of threads and SIMD target (of a NaN only that it is one).
//
// Error, naming the operand, when shapes, element types, lengths or options do not fit, and when o
// or lse overlap an input.
void flash_attention(const AttentionInputs& in, const MutableArrayRef& o,
                     const std::optional<Ref<float, 3>>& lse, const AttentionOptions& options,
                     const AttentionTile& tile = {});

}  // namespace kref
