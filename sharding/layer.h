// SPDX-License-Identifier: Apache-2.0
// The parallel MLP layer on the devices of a mesh, forward and backward, as layer_steps.h lists it.
//
// Numbers. Products, partial sums, activation and gate are in F32; the hidden value and its
// cotangent are rounded once to the hidden type, results once to that of x. Where no sum crosses
// devices results have the bits of the unsharded layer; where one does, terms are added in
// ascending rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sharding/layer_steps.h"
#include "sharding/shard_map.h"

namespace kref {

// What is computed, and how.
struct LayerOptions {
  LayerPlan plan = {};
  Activation activation = Activation::kNone;
  std::optional<DType> hidden_dtype = {};  // not set: that of x
  // Of mlp_vjp: parts into which a device's rows of x are cut, one after the other; the cotangents
  // of the weights are accumulated in F32 and reduced once at the end.
  Index microbatches = 1;
  // Start the collectives that no step waits for (bg in to_string of the steps) as soon as their
  // operand is there, and take them when they are needed, or at the end. Changes no bit; operands
  // stay until then, which peak_bytes does not count.
  bool overlap = false;
  LaunchOptions launch = {};
};

// What one device did: each collective as it was run, and the most bytes its named arrays took at
// once, those it was handed included.
struct LayerMeter {
  std::vector<std::string> collectives;
  std::size_t peak_bytes = 0;
};

// Blocks of one device by name.
using LayerArrays = std::map<std::string, Array>;

// One device's part, for bodies of one's own. forward: of the blocks of x, w_in, w_out and w_gate,
// where the plan has one, makes y and what backward needs (saved_names). backward: of the blocks,
// what forward saved and ct.y makes ct.x, ct.w_in, ct.w_out, ct.w_gate. Both add to `arrays`, and
// drop what was gathered after its use.
void layer_forward(Device& device, const LayerOptions& options, LayerArrays& arrays,
                   LayerMeter* meter = nullptr, CallSite where = CallSite::here());
void layer_backward(Device& device, const LayerOptions& options, LayerArrays& arrays,
                    LayerMeter* meter = nullptr, CallSite where = CallSite::here());

// The operands of a layer: x [B, D], w_in and w_gate [D, F], w_out [F, D], of one element type:
// F32, BF16 or F16. Global arrays, or such that live on the mesh as layer_specs say.
struct LayerOperands {
  ShardArgument x, w_in, w_out;
  std::optional<ShardArgument> w_gate = {};  // there where plan.gate is set
};

// y [B, D]. Error, before a device starts: shapes or element types that do not fit, as check_layer;
// of the launch. `meters`, where given, gets an entry a device.
Array mlp(const Mesh& mesh, const LayerOperands& operands, const LayerOptions& options,
          std::vector<LayerMeter>* meters = nullptr, CallSite where = CallSite::here());
// The same, and y stays on the mesh.
Sharded mlp_sharded(const Mesh& mesh, const LayerOperands& operands, const LayerOptions& options,
                    CallSite where = CallSite::here());

// The cotangents of the operands for ct.y [B, D], which has the type and the spec of x. Runs
// forward first, for what it saves; `meters` are of backward alone.
struct LayerCotangents {
  Array x, w_in, w_out, w_gate;  // w_gate is empty where there is none
};
LayerCotangents mlp_vjp(const Mesh& mesh, const LayerOperands& operands, const ShardArgument& ct_y,
                        const LayerOptions& options, std::vector<LayerMeter>* meters = nullptr,
                        CallSite where = CallSite::here());
// The same, and the cotangents stay on the mesh, placed as their arrays.
struct LayerShardedCotangents {
  Sharded x, w_in, w_out;
  std::optional<Sharded> w_gate = {};
};
LayerShardedCotangents mlp_vjp_sharded(const Mesh& mesh, const LayerOperands& operands,
                                       const ShardArgument& ct_y, const LayerOptions& options,
                                       CallSite where = CallSite::here());

}  // namespace kref
