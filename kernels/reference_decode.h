// SPDX-License-Identifier: Apache-2.0
// The definition of decode_attention: one query a sequence against a cache, said in terms of the
// definition of attention. Semantics: spec/runs.md section 3, `decode_attention`.
#pragma once

#include "dsl/tensor.h"
#include "kernels/reference_attention.h"

namespace kref::reference {

// Caches of a float type, S slots a sequence, of which the first lengths[b] are valid. H is a
// multiple of G; head h reads key and value head h / (H / G). What lies past the lengths may be
// anything.
struct DecodeInputs {
  ArrayRef q;        // [B, H, D]
  ArrayRef k_cache;  // [B, S, G, D]
  ArrayRef v_cache;  // [B, S, G, E]
  ArrayRef lengths;  // [B] I32, 0..S: valid keys, the token of q included
};

// The options of AttentionOptions that make sense here. The position of the one row is
// lengths[b] - 1: a window's right side shows nothing more.
struct DecodeOptions {
  Required<double> scale;
  Window window = {};
  std::optional<double> soft_cap = {};
  FullyMasked fully_masked = FullyMasked::kZero;  // of a sequence of length 0; kUniform: Error then
  std::optional<DType> p_dtype = {};
  LogBase lse_base = LogBase::kE;
};

// The same request to attention_rows: T = 1, keys past the length or outside the window masked.
// Views the arrays of `in`, and its own mask. Error when shapes or element types do not fit, a
// length lies outside its range, or kUniform meets a length of 0.
struct DecodeAsAttention {
  DecodeAsAttention(const DecodeInputs& in, const DecodeOptions& options);

  Tensor<bool, 4> mask;  // [B, 1, 1, S]
  AttentionInputs in;    // in layout kBTHD
  AttentionOptions options;
};

}  // namespace kref::reference
