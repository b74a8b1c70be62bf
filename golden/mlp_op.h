// SPDX-License-Identifier: Apache-2.0
// The operations `mlp` and `mlp.vjp` of run files (spec/runs.md section 3): declaration and rules.
#pragma once

#include "golden/operation.h"
#include "sharding/layer.h"

namespace kref {

// mlp and mlp.vjp: the declarations that operations() lists.
std::vector<Operation> mlp_operations();

// What a run asks for, out of its tensors and options.
struct MlpRun {
  bool vjp = false;
  LayerOptions layer;
  Index b = 0, d = 0, f = 0;                        // x [B, D], w_in [D, F]
  DType dtype = DType::kF32, hidden = DType::kF32;  // of operands and results; of the hidden value
  Mesh mesh;                                        // of one device when the run has none
};

// Reads and checks everything but the outputs. Error that names what is wrong.
MlpRun read_mlp(const Run& run);

// What the outputs of a validated run ought to hold: the hidden value and its cotangent rounded to
// their type, all else exact, with bounds that follow the errors of F32 through the layer
// (inexact.h).
std::vector<Expectation> expect_mlp(const Run& run);

// How the products of the layer take F32 operands: as they are, or rounded to BF16, as a TPU does
// unless it is told otherwise.
enum class LayerOperandsAs { kGiven, kBF16 };
// The same without other requests under which the outputs might be right.
std::vector<Expectation> expect_layer(const Run& run, LayerOperandsAs operands);
// Those requests for an output of the run: another activation, another hidden type, BF16 operands.
std::vector<Alternative> other_layers(const Run& run, const std::string& output);

}  // namespace kref
