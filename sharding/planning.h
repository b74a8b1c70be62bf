// SPDX-License-Identifier: Apache-2.0
// The planning questions of training: when is a strategy compute-bound, and how many chips, of
// which shape, serve a batch (sharding_semantics 3.5 to 3.9, 6.1, 6.3).
//
// A layer is two products, In [B, D] Win [D, F] and Tmp Wout [F, D], in bf16. B counts tokens, N
// chips, X those of the data axis and Y those of the model axis; M_X, M_Y axes of links for each.
// Real numbers throughout: an answer of 13.7 is rounded to a mesh by who asks.
#pragma once

#include "sharding/chip.h"
#include "sharding/layer_steps.h"

namespace kref {

// How two collectives of one step combine: at the same time, each over its own links (editions of
// the book since December 2025), or one after the other (that of February 2025).
enum class Overlap { kMax, kSum };

// ---- Thresholds: compute-bound from, or up to, here

// Tokens a chip of DP and FSDP: alpha / M. v5p 2550, 1275, 850 for 1, 2, 3 axes.
double data_parallel_tokens(const Chip& chip, double axes);
// Chips of a tensor-parallel axis: M_Y F / alpha. It does not depend on B.
double tensor_parallel_chips(const Chip& chip, double f, double axes = 1);
// Tokens a chip of FSDP with TP at the best shape of the mesh: alpha^2 / (M_X M_Y F), four times
// that when the collectives do not overlap.
double mixed_tokens(const Chip& chip, double f, double axes_product,
                    Overlap overlap = Overlap::kMax);
// Tokens a slice of DP between slices, over the network: C / W_dcn. 73,440 on v5p.
double slice_tokens(const Chip& chip);
// The same of DP or FSDP of experts, of which each token takes k of E.
double expert_tokens(const Chip& chip, double axes, double experts, double chosen);

// ---- The shape of the mesh

// Chips of the data axis of FSDP with TP: sqrt(B/F M_X/M_Y N).
double optimal_data_axis(double tokens, double f, double chips, double axes_ratio = 1);
// Of the forward pass with that data axis, compute time over that of the collectives; above 1 it is
// compute-bound.
double mixed_ratio(const Chip& chip, double tokens, double f, double chips, double data_axis,
                   double axes_x, double axes_y, Overlap overlap = Overlap::kMax);

// ---- What a layer moves: bytes on the busiest links, forward and backward (3.5)

// Forward and backward.
struct LayerBytes {
  double forward = 0, backward = 0;
};
// An all-reduce counts twice, bf16. gather_input_again: the backward pass of TP does not keep the
// gathered input (6BD), as the listed algorithm; else 4BD. The book's printed 8BD/X of the mixed
// row is neither.
LayerBytes layer_bytes(LayerStrategy strategy, double b, double d, double f, double x, double y,
                       bool gather_input_again = true);

// ---- Memory

// What of the state of a parameter is sharded over the data axis (3.6). ZeRO-3 is FSDP.
enum class ZeroStage { kNone, kOptimizer, kGradients, kWeights };
// Bytes a parameter on each chip: bf16 weights, two f32 moments of Adam, gradients of
// `gradient_bytes`.
double bytes_per_parameter(ZeroStage stage, double x, double gradient_bytes = 0);
// Parameter bytes that a step moves, in units of the parameters' bytes: 2, 2, 2, 3.
double zero_traffic(ZeroStage stage);
// Parameters of the largest model whose weights and moments fit on one chip.
double largest_replicated_model(const Chip& chip);

// ---- Pipelines

// Idle share of a pass: (S - 1) / (M + S - 1).
double pipeline_bubble(double stages, double microbatches);

// ---- Products

// Rows from which a product with a large weight is compute-bound: C w / (2 HBM), at the rate of
// `compute`, w bytes a weight: 240 in bf16 on v5e-240, 120 of s8 weights multiplied in bf16.
double critical_batch(const Chip& chip, DType weights, DType compute);
// The same with every byte of a [B, D] [D, F] product counted: D F w / (2 D F HBM / C - (D + F) a).
double exact_critical_batch(const Chip& chip, double d, double f, DType weights, DType activations,
                            DType compute);
// Local columns from which a collective matmul hides its ring: C / W both ways, twice that one way.
double hidden_columns(const Chip& chip, bool both_ways);

}  // namespace kref
