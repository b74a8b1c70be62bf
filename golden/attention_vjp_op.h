// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention as an operation of run files (spec/runs.md section 3).
#pragma once

#include <vector>

#include "golden/attention_op.h"
#include "kernels/reference_attention_vjp.h"

namespace kref {

// The declaration that operations() lists.
Operation attention_vjp_operation();

// What an attention.vjp run asks for. Views the arrays of the run.
struct AttentionVjpRun {
  AttentionRun primal;
  reference::AttentionCotangents ct;
};

// Reads and checks everything but the outputs and the placement. Error that names what is wrong.
AttentionVjpRun read_attention_vjp(const Run& run);

}  // namespace kref
