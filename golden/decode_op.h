// SPDX-License-Identifier: Apache-2.0
// The decode_attention operation of run files (spec/runs.md section 3): its declaration and rules.
#pragma once

#include <optional>
#include <vector>

#include "golden/attention_op.h"
#include "golden/operation.h"
#include "kernels/reference_decode.h"

namespace kref {

// The declaration that operations() lists.
Operation decode_operation();

// What a run asks for, out of its tensors and options. Views the arrays of the run, and its own.
struct DecodeRun {
  reference::DecodeInputs in;  // the caches with the new token written, where there is one
  reference::DecodeOptions options;
  DType out_dtype = DType::kF32;
  Index batches = 0, heads = 0, groups = 0, slots = 0, depth = 0, width = 0;  // B H G S D E
  Array k_cache = {}, v_cache = {};  // with the new token; those of the run where there is none
  bool writes = false;               // there is a new token

  DType dtype() const { return in.q.dtype; }
  std::vector<Index> o_shape() const { return {batches, heads, width}; }
  std::vector<Index> lse_shape() const { return {batches, heads}; }
};

// Reads and checks everything but the outputs and the placement. Error that names what is wrong.
DecodeRun read_decode(const Run& run);

// The same request as attention of one row a sequence. Views what `as` views.
AttentionRun as_attention(const DecodeRun& decode, const reference::DecodeAsAttention& as);

// Refuses a placement other than heads and batch over one axis of the mesh.
void check_decode_placement(const Run& run, const DecodeRun& decode);

// The expectations of a validated run's outputs.
std::vector<Expectation> expect_decode(const Run& run);

}  // namespace kref
