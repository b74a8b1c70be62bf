// SPDX-License-Identifier: Apache-2.0
#include "sharding/transformer_size.h"

namespace kref {

double TransformerSize::mlp_parameters() const {
  return layers * experts * (gated ? 3 : 2) * model * hidden;
}
double TransformerSize::attention_parameters() const {
  return layers * 2 * model * (heads + kv_heads) * head;
}
double TransformerSize::vocabulary_parameters() const {
  return (tied ? 1 : 2) * model * vocabulary;
}
double TransformerSize::parameters() const {
  return mlp_parameters() + attention_parameters() + vocabulary_parameters();
}
double TransformerSize::active_parameters() const {
  return mlp_parameters() * chosen / experts + attention_parameters() + vocabulary_parameters();
}
double TransformerSize::attention_flops(double batch, double tokens, bool causal) const {
  return layers * 12 * batch * tokens * tokens * heads * head * (causal ? 0.5 : 1);
}
double TransformerSize::kv_bytes_per_token(double bytes_per_element) const {
  return 2 * bytes_per_element * layers * kv_heads * head;
}

TransformerSize llama2_13b() {
  return {.layers = 40,
          .model = 5120,
          .hidden = 13824,
          .heads = 40,
          .kv_heads = 40,
          .head = 128,
          .vocabulary = 32000};
}
TransformerSize llama3_8b() {
  return {.layers = 32,
          .model = 4096,
          .hidden = 14336,
          .heads = 32,
          .kv_heads = 8,
          .head = 128,
          .vocabulary = 128256};
}
TransformerSize llama3_70b() {
  return {.layers = 80,
          .model = 8192,
          .hidden = 28672,
          .heads = 64,
          .kv_heads = 8,
          .head = 128,
          .vocabulary = 128256};
}
TransformerSize llama3_405b() {
  return {.layers = 126,
          .model = 16384,
          .hidden = 53248,
          .heads = 128,
          .kv_heads = 8,
          .head = 128,
          .vocabulary = 128256};
}

double attention_share(double tokens, double model) { return tokens / (8 * model); }
double attention_equals_projections(double model) { return 2 * model; }
double kept_activations(double tokens, double model, double layers, bool recompute) {
  constexpr double kBytes = 2, kArrays = 20;
  return kBytes * (recompute ? 1 : kArrays) * tokens * model * layers;
}

}  // namespace kref
