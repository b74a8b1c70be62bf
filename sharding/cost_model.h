// SPDX-License-Identifier: Apache-2.0
// Cost: what one run takes on chips with links, step by step: predicted before it is run, on meshes
// of any size. Local products are priced by roofline.h, collectives by link_cost.h.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sharding/layer_steps.h"
#include "sharding/link_cost.h"
#include "sharding/roofline.h"
#include "sharding/sharded_matmul.h"

namespace kref {

// One step of every device: it computes, or takes part in a collective.
struct CostStep {
  std::string what;    // "psum_scatter(Y, ...) of z", "Tmp[B_X,F] = In[B_X,D] Win[D,F]"
  Roofline unit = {};  // of what it computes
  LinkTime link = {};  // of a collective
  std::vector<std::string> axes = {};   // of the mesh, that the collective runs over; else none
  double sent_bytes = 0;                // by one device, by the ring algorithms
  bool moves = false;                   // a collective
  std::optional<Traffic> traffic = {};  // which; none: pair by pair
  bool background = false;              // nothing waits for it: other steps hide it where they last
  double exposed = 0;  // seconds of other steps that cannot hide it: they wait for its last part

  double seconds() const { return moves ? link.seconds() : unit.lower(); }
  // "compute", "hbm", "vmem", "scalar", "link bandwidth", "link latency".
  std::string bound_by() const;
};

// The steps in order, and their times together.
struct Cost {
  std::vector<CostStep> steps;

  // Everything at the same time that uses different units and axes.
  double lower() const;
  // What runs in the background is hidden behind the rest, as far as that lasts; everything else is
  // one after the other.
  double expected() const;
  // Everything one after the other.
  double upper() const;

  double compute_seconds() const;  // of all local work
  double moved_seconds() const;    // of all collectives, one after the other
  // Seconds, and bytes one device sends, for each axis of the mesh.
  std::map<std::string, double> axis_seconds() const;
  std::map<std::string, double> axis_bytes() const;
  // What lower() is the time of: "compute", "hbm", ..., "links of Y".
  std::string bound_by() const;
};

// How a product is computed, beside its element types.
struct MatmulPrice {
  DType dtype = DType::kBF16;  // of x and y
  DType out_dtype = DType::kBF16;
  int passes = 1;                             // bf16 products for an f32 one
  double tile_m = 0, tile_n = 0, tile_k = 0;  // of a device's grid; 0: no tiles
  LinkOptions links = {};
};

// A matmul as place_matmul places it, on the links of its mesh.
Cost price_matmul(const MatmulPlacement& placement, const MeshLinks& links,
                  const MatmulPrice& price = {});

// A collective that takes `whole` bytes in a group: see link_time.
CostStep price_collective(const std::string& what, Traffic traffic, double whole,
                          const std::vector<std::string>& axes, const MeshLinks& links,
                          const LinkOptions& options = {});

// The same in groups of a part of the axes (axis_index_groups), which share an array of `whole`
// bytes each: as long as the slowest of them takes. Error as group_links.
CostStep price_collective(const std::string& what, Traffic traffic, double whole,
                          const std::vector<std::string>& axes,
                          std::span<const std::vector<Index>> groups, const MeshLinks& links,
                          const LinkOptions& options = {});

// Makes the collective of a priced product that runs over this one axis go round a ring while its
// blocks are multiplied (collective_matmul.h): n - 1 permutes of a block, of its halves when both
// ways, behind which n - 1 of the n parts of the product hide. `part` is one of them, which takes
// the place of the n-th of the whole: its blocks are smaller, and sums are read again.
void send_round(Cost& cost, const std::string& axis, bool both_ways, const MatmulCost& part,
                const MeshLinks& links, const LinkOptions& options = {});
// The product that price_matmul prices for one device.
MatmulCost local_product(const MatmulPlacement& placement, const MatmulPrice& price);

// The sizes of a layer: B tokens, D features, F hidden ones, of the whole mesh.
struct LayerSize {
  Index b = 0, d = 0, f = 0;
};
// What is priced of it.
struct LayerPrice {
  // Of activations, weights and gradients, and of partial sums on their way, as the book counts;
  // kref itself sends those in f32.
  DType dtype = DType::kBF16;
  bool forward = true, backward = true;
  LinkOptions links = {};
};

// A layer's steps (layer_steps.h), on the links of a mesh. Error as check_layer, and for sizes
// below 1.
Cost price_layer(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                 const LayerPrice& price = {});

// Bytes on one device. State: weights in `dtype`, and two f32 moments each where the layer is
// trained; kept for the backward pass, or live when the hidden value is made: x, x w_in (x w_gate),
// the hidden value; the largest weight that is gathered before it is used.
struct LayerMemory {
  double state = 0, kept = 0, gathered = 0;
  double total() const { return state + kept + gathered; }
};
// Error as price_layer.
LayerMemory layer_memory(const LayerPlan& plan, const LayerSize& size, const Mesh& mesh,
                         DType dtype = DType::kBF16, bool trained = true);

}  // namespace kref
