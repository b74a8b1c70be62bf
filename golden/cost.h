// SPDX-License-Identifier: Apache-2.0
// What a run takes on TPUs: its price by operation, and how `kref cost` tells it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "golden/operation.h"
#include "sharding/cost_model.h"

namespace kref {

struct MatmulRun;  // golden/matmul_op.h
struct RingPlan;   // sharding/collective_matmul.h

// ---- Operation::price of each operation. The run's mesh is that of the links.
Cost price_matmul_run(const Run& run, const MeshLinks& links);
Cost price_ring_run(const Run& run, const MatmulRun& matmul, const RingPlan& plan,
                    const MeshLinks& links);
Cost price_collective_run(const Run& run, const MeshLinks& links);
Cost price_attention_run(const Run& run, const MeshLinks& links);
Cost price_decode_run(const Run& run, const MeshLinks& links);
// mlp: forward; mlp.vjp: forward and backward, which a step of training takes.
Cost price_mlp_run(const Run& run, const MeshLinks& links);

// On what it runs.
struct CostRequest {
  Chip chip;
  std::optional<Slice> slice = {};
  std::vector<std::string> network = {};  // axes of the mesh that lie between slices
};

struct PricedRun {
  Cost cost;
  MeshLinks links;
};

// Error for a run that its operation does not take, an operation that has no price, and a mesh that
// does not fit on the slice. Meshes may have any number of devices.
PricedRun price_run(const Run& run, const CostRequest& request);

// A run of shapes alone: "bf16[8192,28672]" by name. What follows from the others may be left out:
// w_out and ct.y of mlp, lengths of decode_attention (full caches). Error for text that is no such
// thing.
struct NamedShape {
  std::string name, text;
};
// The array of one: its elements are not there, unless they are integers or bools: 0.
Array read_shape(const NamedShape& given);
Run run_of_shapes(const std::string& op, const std::vector<NamedShape>& shapes);

// A table for people; the same as JSON: run, op, chip, slice, mesh, links, steps, seconds, axes.
std::string cost_text(const Run& run, const PricedRun& priced);
nlohmann::ordered_json cost_json(const Run& run, const PricedRun& priced);

// ---- Which sharding for this layer on this slice?

struct SweepRow {
  LayerPlan plan;
  Mesh mesh;
  Cost cost;
  LayerMemory memory;
};
struct Sweep {
  LayerSize size;
  bool backward = false;
  Slice slice;
  std::vector<SweepRow> rows;  // the least expected time first; with equal ones the least at most
  std::size_t refused = 0;     // meshes whose devices do not divide the sizes, or do not fit
};
// A run of mlp or mlp.vjp under every strategy, on every mesh of one or two axes that the slice has
// devices for. Error for another operation, and without a slice.
Sweep sweep_layer(const Run& run, const CostRequest& request);
std::string sweep_text(const Sweep& sweep);
nlohmann::ordered_json sweep_json(const Sweep& sweep);

// "12.3 us", "1.40 ms"; "16.8 MB": of numbers for people.
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace kref
