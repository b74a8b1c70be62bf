// SPDX-License-Identifier: Apache-2.0
// A layer's steps, priced.
#include <algorithm>

#include "dsl/check.h"
#include "kernels/passes.h"
#include "sharding/cost_model.h"

namespace kref {
namespace {

void check(const LayerPlan& plan, const LayerSize& size, const Mesh& mesh) {
  KREF_CHECK(size.b > 0 && size.d > 0 && size.f > 0, "layer: B = ", size.b, ", D = ", size.d,
             ", F = ", size.f, ", expected sizes of at least 1");
  check_layer(plan, mesh, size.b, size.d, size.f);
}

CostStep price_product(const std::string& what, const LayerStepWork& work, const Chip& chip,
                       DType dtype) {
  CostStep step{.what = what};
  step.unit = matmul_roofline(chip, {.m = static_cast<double>(work.m),
                                     .n = static_cast<double>(work.n),
                                     .k = static_cast<double>(work.k),
                                     .x = dtype,
                                     .y = dtype,
                                     .z = dtype,
                                     .compute = dtype,
                                     .passes = product_passes(dtype, Precision::kF32)});
  return step;
}

void add(Cost& cost, const LayerPlan& plan, const std::vector<LayerStep>& steps,
         const LayerSize& size, const MeshLinks& links, const LayerPrice& price) {
  const std::vector<LayerStepWork> work =
      layer_work(plan, steps, links.mesh, size.b, size.d, size.f, price.dtype, price.dtype);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    using Kind = LayerStep::Kind;
    const Kind kind = steps[i].kind;
    // What is done element by element is done while a product's blocks leave: no time of its own.
    if (kind == Kind::kProduct || kind == Kind::kAddProduct) {
      cost.steps.push_back(
          price_product(to_string(steps[i]), work[i], links.slice.chip, price.dtype));
    }
    if (kind != Kind::kCollective || work[i].bytes == 0) continue;  // a slice moves nothing
    const double bytes = work[i].whole * static_cast<double>(size_of(price.dtype));
    CostStep moved = price_collective(to_string(steps[i]), work[i].traffic, bytes, work[i].axes,
                                      links, price.links);
    moved.background = !steps[i].critical;
    cost.steps.push_back(std::move(moved));
  }
}

double elements(const PartitionSpec& spec, Index rows, Index columns, const Mesh& mesh) {
  const std::vector<Index> local = local_shape(spec, std::vector<Index>{rows, columns}, mesh);
  return static_cast<double>(local[0]) * static_cast<double>(local[1]);
}

}  // namespace

Cost price_layer(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                 const LayerPrice& price) {
  check(plan, size, links.mesh);
  Cost cost;
  if (price.forward) add(cost, plan, forward_steps(plan), size, links, price);
  if (price.backward) add(cost, plan, backward_steps(plan), size, links, price);
  return cost;
}

LayerMemory layer_memory(const LayerPlan& plan, const LayerSize& size, const Mesh& mesh,
                         DType dtype, bool trained) {
  check(plan, size, mesh);
  const double moments = trained ? 8 : 0;
  const auto element = static_cast<double>(size_of(dtype));
  const LayerSpecs specs = layer_specs(plan);
  const double in = elements(specs.w_in, size.d, size.f, mesh);
  const double out = elements(specs.w_out, size.f, size.d, mesh);
  const double x = elements(specs.x, size.b, size.d, mesh);
  const auto along = [&](bool uses, const std::string& axis) {
    return uses ? static_cast<double>(mesh.size(axis)) : 1;
  };
  const double data = along(uses_data_axis(plan.strategy), plan.data_axis);
  const double model = along(uses_model_axis(plan.strategy), plan.model_axis);
  const double slices = along(!plan.slice_axis.empty(), plan.slice_axis);
  const double hidden =
      static_cast<double>(size.b) / (slices * data) * static_cast<double>(size.f) / model;
  LayerMemory memory;
  memory.state = ((plan.gate ? 2 : 1) * in + out) * (element + moments);
  memory.kept = (x * (plan.keep_input ? model : 1) + (plan.gate ? 3 : 2) * hidden) * element;
  if (shards_weights(plan.strategy)) memory.gathered = std::max(in, out) * data * element;
  return memory;
}

}  // namespace kref
