// SPDX-License-Identifier: Apache-2.0
// The attention operation of run files (spec/runs.md section 3): its declaration and its rules.
#pragma once

#include <vector>

#include "golden/operation.h"
#include "kernels/reference_attention.h"

namespace kref {

// The declaration that operations() lists.
Operation attention_operation();

// What an attention run asks for, out of its tensors and options. Views the arrays of the run.
struct AttentionRun {
  reference::AttentionInputs in;
  reference::AttentionOptions options;
  DType out_dtype = DType::kF32;
  Index batches = 0, heads = 0, groups = 0;           // B, H, G
  Index queries = 0, keys = 0, depth = 0, width = 0;  // T, S, D, E

  DType dtype() const { return in.q.dtype; }
  std::vector<Index> o_shape() const;  // in the layout of the options
  std::vector<Index> lse_shape() const { return {batches, heads, queries}; }
};

// Reads and checks everything but the outputs and the placement. Error that names what is wrong.
AttentionRun read_attention(const Run& run);

// Refuses a run with a mesh.
void refuse_attention_mesh(const Run& run);
// `values` rounded once to the element type.
Array rounded_array(DType dtype, const std::vector<Index>& shape,
                    const std::vector<double>& values);

// Rows of a q block: what a tile of the report is, and what published kernels take by default.
inline constexpr Index kAttentionQueryBlock = 128, kAttentionKeyBlock = 128;

// "B H T D" as an array of the run's layout has its dimensions: "B T H D" under BTHD.
std::string attention_dims(const char* dims, reference::Layout layout);

}  // namespace kref
