// SPDX-License-Identifier: Apache-2.0
// The layer in a typed body (typed_shard_map.h): the steps of layer_steps.h on Values, forward and
// backward, paired by custom_vjp. What the types prove of the collectives between is proved of the
// layer's own too, and vjp.h goes through it:
//
//   const auto body = [&](Tracer&, const Value& x, const Value& w_in, const Value& w_out) {
//     return mlp(LayerValues{x, w_in, w_out}, {.plan = {.strategy = LayerStrategy::kFsdp}});
//   };
//   const auto specs = layer_specs(plan);
//   const auto layer = shard_map(mesh, {.in_specs = {specs.x, specs.w_in, specs.w_out},
//                                       .out_specs = {specs.x}}, body);
//   const auto [y, pullback] = vjp(layer, x, w_in, w_out);
#pragma once

#include <optional>

#include "sharding/layer.h"
#include "sharding/value.h"

namespace kref {

// Blocks of a layer, which layer_specs of its plan describes.
struct LayerValues {
  Value x, w_in, w_out;
  std::optional<Value> w_gate = {};  // there where plan.gate is set
};

// y, whose cotangent backward_steps bring to those of the blocks. The bits of mlp and mlp_vjp. Not
// used of the options: overlap, launch. Error, before a device starts: of the steps' collectives,
// where states do not allow them; blocks that do not fit, by name; options.microbatches other than
// 1, which cut what is one value here; check_vma off, where psum transposes to psum and the sums of
// the layer's backward pass would be added up twice.
Value mlp(const LayerValues& blocks, const LayerOptions& options,
          CallSite where = CallSite::here());

}  // namespace kref
