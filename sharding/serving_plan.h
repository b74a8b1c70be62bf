// SPDX-License-Identifier: Apache-2.0
// May a layer's plan serve? A step of decoding has few tokens: what a plan moves of the weights, as
// FSDP does, no product hides (sharding_semantics 6.5, 8.1). Read from the plan's own steps.
#pragma once

#include <string>
#include <vector>

#include "sharding/cost_model.h"

namespace kref {

// A way to run the layer on the chips of a slice, and the time of its forward pass there
// (Cost::expected).
struct ServingChoice {
  LayerPlan plan;
  Mesh mesh;
  double seconds = 0;
};

// A plan as it would serve B tokens a step. Seconds.
struct ServingPlan {
  ServingChoice given;
  std::vector<LayerStep> moved;  // the steps that move weights; none: the plan may serve
  double move_seconds = 0;       // of those, one after the other
  double read_seconds = 0;       // of reading a device's own part of these weights from HBM
  // Plans that leave weights where they are, on all chips of the slice: tensor parallel over all of
  // them, and split over both dimensions in every shape. The fastest first; those that the sizes do
  // not allow are left out.
  std::vector<ServingChoice> better;

  // Times by which moving takes longer: Y beta over Y chips of an axis that is a ring, 144 for 16
  // of v5e. 0 where nothing moves.
  double penalty() const { return moved.empty() ? 0 : move_seconds / read_seconds; }
};

// Error as price_layer.
ServingPlan serving_plan(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                         const LayerPrice& price = {});

// Refuses a plan that moves weights in a step of decoding: Error that names the collectives, what
// they take beside reading the weights where they are, and the plan to take instead with its time.
void check_serving(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                   const LayerPrice& price = {});

// "decoding moves weights (all_gather(X, axis=0, tiled=true) of w_in, ...): 10.4 ms, 144 times the
// 0.0725 ms of reading a share of them from HBM; take stationary on X=16,Y=16: 0.0369 ms a step and
// not 10.4 ms".
// Of a plan that moves none: "decoding moves no weights".
std::string to_string(const ServingPlan& serving);

}  // namespace kref
