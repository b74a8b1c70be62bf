// SPDX-License-Identifier: Apache-2.0
// What a run takes on TPUs: its price by operation, and how `kref cost` tells it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "golden/operation.h"
#include "sharding/cost_model.h"
#include "sharding/serving_plan.h"
#include "sharding/virtual_clock.h"

namespace kref {

struct MatmulRun;  // golden/matmul_op.h
struct RingPlan;   // sharding/collective_matmul.h

// ---- Operation::price of each operation. The run's mesh is that of the links.
Cost price_matmul_run(const Run& run, const MeshLinks& links);
Cost price_ring_run(const Run& run, const MatmulRun& matmul, const RingPlan& plan,
                    const MeshLinks& links);
Cost price_collective_run(const Run& run, const MeshLinks& links);
Cost price_attention_run(const Run& run, const MeshLinks& links);
// attention.vjp: forward, which leaves o and lse, and the gradients.
Cost price_attention_vjp_run(const Run& run, const MeshLinks& links);
Cost price_decode_run(const Run& run, const MeshLinks& links);
// mlp: forward; mlp.vjp: forward and backward, which a step of training takes.
Cost price_mlp_run(const Run& run, const MeshLinks& links);

// ---- Operation::clock. As the devices run it; floats as of the layer's type, which kref sends and
// multiplies in F32 where it sums.
ClockOptions clock_as_run(const Run& run);
ClockOptions clock_mlp_run(const Run& run);

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

// The virtual clock of a priced run. Its devices run the operation's own code, on shapes alone;
// operations that launch none (attention, decode_attention), and runs without a mesh, go by the
// steps of their price. Error for a mesh of more than kMaxRunDevices devices.
TimedRun time_run(const Run& run, const PricedRun& priced);

// An operand of which the shape alone is known: "bf16[8192,28672]" by name.
struct NamedShape {
  std::string name, text;
};
// The array of one: its elements are not there, unless they are integers or bools: 0. Error for
// text that is no such thing.
Array read_shape(const NamedShape& given);
// Adds them to a run, and what follows from others and may be left out: w_out and ct.y of mlp, ct.o
// of attention.vjp, lengths of decode_attention. Lengths of which the shape alone is known are all
// that fits: full caches, all rows and keys. Error, as read_shape, and for an operand that is
// there.
void add_shapes(Run& run, const std::vector<NamedShape>& shapes);

// A table for people; the same as JSON: run, op, chip, slice, mesh, links, steps, seconds, axes,
// clock. Without a timed run nothing is said of clocks.
std::string cost_text(const Run& run, const PricedRun& priced, const TimedRun* timed = nullptr);
nlohmann::ordered_json cost_json(const Run& run, const PricedRun& priced,
                                 const TimedRun* timed = nullptr);
// What the clock says, for both.
std::string clock_text(const TimedRun& timed);
nlohmann::ordered_json clock_json(const TimedRun& timed);

// The Trace Event format: a JSON object with traceEvents, which Perfetto opens.
nlohmann::ordered_json trace_json(const TimedRun& timed, const MeshLinks& links);

// ---- When is a layer compute-bound on this slice?

// The book's conditions (sharding_semantics 6.3, 6.5), in bf16 and on rings.
struct LayerConditions {
  double tokens_a_chip = 0;  // that there are
  std::vector<double>
      data_tokens;  // that dp and fsdp need, on 1, 2, .. axes of links: C/W over them
  std::vector<double> model_chips;  // that tp may have, on as many: F over C/W, times them
  // X of fsdp_tp that is best, and tokens a chip that it needs then; one axis of links for Y, the
  // others for X.
  double data_axis = 0, mixed_tokens = 0;
  double slice_tokens = 0;   // that dp between slices needs of each
  double ring_columns = 0;   // that a device needs of a collective matmul both ways
  double message_bytes = 0;  // below which a message takes the time of its hop
  // Chips among which weights that are read from HBM may be split: F over B times HBM/W. Not set:
  // there are tokens enough to be compute-bound.
  std::optional<double> decode_chips = {};
  bool lines = false;  // the slice has axes that do not wrap
};
LayerConditions layer_conditions(const LayerSize& size, const Slice& slice);
// Of a run of mlp or mlp.vjp; nothing for others.
std::optional<LayerConditions> run_conditions(const Run& run, const Slice& slice);
// The forward pass of so few tokens as a step of decoding has (below C / HBM, so that weights are
// read, not multiplied): what the run's plan moves of the weights, and the plans that do not.
// Nothing for other runs, and for mlp without a mesh.
std::optional<ServingPlan> run_serving(const Run& run, const MeshLinks& links);
nlohmann::ordered_json serving_json(const ServingPlan& serving);
std::string conditions_text(const LayerConditions& conditions);
nlohmann::ordered_json conditions_json(const LayerConditions& conditions);

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
// devices for; of mlp also with weights that are split over both axes and stay. Error for another
// operation, and without a slice.
Sweep sweep_layer(const Run& run, const CostRequest& request);
std::string sweep_text(const Sweep& sweep);
nlohmann::ordered_json sweep_json(const Sweep& sweep);

// "12.3 us", "1.40 ms"; "16.8 MB": of numbers for people.
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace kref
