// SPDX-License-Identifier: Apache-2.0
// Which sharding for this layer on this slice: every strategy on every mesh, ranked.
#include <algorithm>

#include "golden/cost.h"
#include "golden/mlp_op.h"

namespace kref {
namespace {

// The mesh of a strategy with x devices along the data axis and y along the model axis; nothing
// where the strategy has no use for one of them.
std::optional<Mesh> mesh_of(LayerStrategy strategy, Index x, Index y) {
  const bool data = uses_data_axis(strategy) || splits_features(strategy),
             model = uses_model_axis(strategy);
  if ((!data && x > 1) || (!model && y > 1)) return std::nullopt;
  if (data && model && (x == 1 || y == 1)) return std::nullopt;
  std::vector<MeshAxis> axes;
  if (data) axes.push_back({"X", x});
  if (model) axes.push_back({"Y", y});
  return Mesh(axes);
}

}  // namespace

Sweep sweep_layer(const Run& given, const CostRequest& request) {
  KREF_CHECK(given.op == "mlp" || given.op == "mlp.vjp", "--sweep: ", given.op,
             " has no strategies, expected mlp (forward) or mlp.vjp (forward and backward)");
  KREF_CHECK(request.slice.has_value(),
             "--sweep: expected --slice, the chips to divide the work "
             "over, as in --slice 4x4x4");
  KREF_CHECK(request.network.empty(),
             "--sweep: --network is given, but the meshes that are ranked lie on one slice");
  Run run = given;
  for (const char* name : {"strategy", "data_axis", "model_axis"}) run.set.erase(name);
  run.mesh.reset();
  run.in_specs.clear(), run.out_specs.clear();
  check_declared(find_operation(run.op), run, false, true);
  const MlpRun mlp = read_mlp(run);
  // As a run of it is refused: nothing is divided, and the conditions of such a layer are infinite.
  KREF_CHECK(mlp.b > 0 && mlp.d > 0 && mlp.f > 0, "--sweep: B = ", mlp.b, ", D = ", mlp.d,
             ", F = ", mlp.f, ", expected sizes of at least 1");
  Sweep sweep{{mlp.b, mlp.d, mlp.f}, mlp.vjp, *request.slice, {}, 0};
  const Index chips = sweep.slice.chip_count();
  std::vector<LayerStrategy> strategies(std::begin(kLayerStrategies), std::end(kLayerStrategies));
  if (!mlp.vjp) strategies.push_back(LayerStrategy::kStationary);
  for (const LayerStrategy strategy : strategies) {
    for (Index x = 1; x <= chips; ++x) {
      if (chips % x != 0) continue;
      const std::optional<Mesh> mesh = mesh_of(strategy, x, chips / x);
      if (!mesh || (strategy == LayerStrategy::kNone && chips > 1)) continue;
      LayerPlan plan{.strategy = strategy, .gate = mlp.layer.plan.gate};
      try {
        const MeshLinks links = lay_out(request.chip, *mesh, sweep.slice);
        const LayerPrice price{.dtype = mlp.dtype, .forward = true, .backward = mlp.vjp};
        sweep.rows.push_back({plan, *mesh, price_layer(plan, sweep.size, links, price),
                              layer_memory(plan, sweep.size, *mesh, mlp.dtype, mlp.vjp)});
      } catch (const Error&) {
        ++sweep.refused;
      }
    }
  }
  const auto key = [](const SweepRow& row) {
    return std::pair(row.cost.expected(), row.cost.upper());
  };
  std::stable_sort(sweep.rows.begin(), sweep.rows.end(),
                   [&](const SweepRow& a, const SweepRow& b) { return key(a) < key(b); });
  return sweep;
}

}  // namespace kref
