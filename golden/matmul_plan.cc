// SPDX-License-Identifier: Apache-2.0
// What each device does in a matmul, as the sharding layer places and prices it.
#include "golden/matmul_op.h"
#include "golden/plan.h"
#include "sharding/sharded_matmul.h"

namespace kref {
namespace {

std::string product(MatmulShape local) {
  local.trans_x = local.trans_y = false;
  return detail::cat("multiply ", shape_string(local.x()), " by ", shape_string(local.y()));
}

}  // namespace

Plan plan_matmul(const Run& given) {
  const MatmulRun run = read_matmul(given);
  Plan plan;
  if (!run.placement) {
    const MatmulShape shape{run.batch, run.m, run.n, run.k, run.shared_y, false, false};
    plan.summary = "one device";
    plan.steps = {product(shape)};
    plan.flops = matmul_work(place_matmul(Mesh(), shape, {}, {}, {}), DType::kF32).flops;
    return plan;
  }
  const MatmulPlacement& placement = *run.placement;
  plan.summary = to_string(placement.which);
  plan.matmul_case = static_cast<int>(placement.which);
  for (const MatmulStep& step : placement.steps) {
    const bool multiplies = step.kind == MatmulStep::Kind::kMultiply;
    plan.steps.push_back(multiplies ? product(placement.local) : to_string(step));
  }
  const MatmulWork work = matmul_work(placement, given.in.at("x").dtype());
  plan.flops = work.flops;
  for (const MatmulWork::Transfer& one : work.transfers) {
    plan.transfers.push_back({one.collective, one.bytes, one.traffic, one.axes});
  }
  return plan;
}

}  // namespace kref
