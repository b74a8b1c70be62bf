// SPDX-License-Identifier: Apache-2.0
// TransformerSize: parameters, operations and bytes of a decoder (sharding_semantics 6.4).
#pragma once

#include "sharding/chip.h"

namespace kref {

// As the book's letters. Norms are left out, which are below a thousandth.
struct TransformerSize {
  double layers = 0;               // L
  double model = 0;                // D
  double hidden = 0;               // F
  double heads = 0, kv_heads = 0;  // N, K
  double head = 0;                 // H
  double vocabulary = 0;           // V
  bool gated = true;               // three matrices in an MLP, else two
  bool tied = false;               // one matrix for embedding and output, else two
  double experts = 1, chosen = 1;  // MLPs a layer, and how many of them a token takes

  double mlp_parameters() const;        // of all layers and experts
  double attention_parameters() const;  // of all layers
  double vocabulary_parameters() const;
  double parameters() const;
  // Those a token is multiplied with.
  double active_parameters() const;

  // Of a training step, forward and backward: 6 a token and active parameter; a third of it in
  // inference. The whole square of scores, or half of it under a causal mask that skips.
  double training_flops(double tokens) const { return 6 * tokens * active_parameters(); }
  double attention_flops(double batch, double tokens, bool causal = false) const;

  // Keys and values of one token, all layers.
  double kv_bytes_per_token(double bytes_per_element) const;
};

// LLaMA-2 13B and LLaMA-3 8B, 70B and 405B, as the worked problems have them.
TransformerSize llama2_13b();
TransformerSize llama3_8b();
TransformerSize llama3_70b();
TransformerSize llama3_405b();

// Share of attention scores in the operations of a layer with F = 4 D, N H = D, K = N: T / (8 D).
double attention_share(double tokens, double model);
// Context at which scores take as many operations as the projections of the same layer: 2 D.
double attention_equals_projections(double model);
// Bytes of activations that a backward pass keeps of `tokens`, bf16: some 20 arrays of D a layer;
// one where blocks are computed again.
double kept_activations(double tokens, double model, double layers, bool recompute);

}  // namespace kref
