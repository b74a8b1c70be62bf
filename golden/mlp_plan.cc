// SPDX-License-Identifier: Apache-2.0
// What each device does in a layer: the steps of its strategy, as the sharding layer lists and
// prices them.
#include "golden/mlp_op.h"
#include "golden/plan.h"

namespace kref {
namespace {

void add(Plan& plan, const MlpRun& run, const std::vector<LayerStep>& steps) {
  const std::vector<LayerStepWork> work =
      layer_work(run.layer.plan, steps, run.mesh, run.b, run.d, run.f, run.dtype, run.hidden);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    plan.flops += work[i].flops;
    if (steps[i].kind == LayerStep::Kind::kDrop) continue;
    plan.steps.push_back(to_string(steps[i]));
    if (steps[i].kind != LayerStep::Kind::kCollective) continue;
    plan.transfers.push_back(
        {detail::cat(to_string(steps[i].collective), " of ", steps[i].in[0]), work[i].bytes});
  }
}

}  // namespace

Plan plan_mlp(const Run& given) {
  const MlpRun run = read_mlp(given);
  Plan plan;
  plan.summary = detail::cat("strategy ", name_of(run.layer.plan.strategy),
                             run.vjp ? ", forward and backward" : "",
                             " (cp: on the critical path, bg: in the background)");
  add(plan, run, forward_steps(run.layer.plan));
  if (run.vjp) add(plan, run, backward_steps(run.layer.plan));
  return plan;
}

}  // namespace kref
