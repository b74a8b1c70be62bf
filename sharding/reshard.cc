// SPDX-License-Identifier: Apache-2.0
#include "sharding/reshard.h"

#include "sharding/reshard_move.h"

namespace kref {
namespace {

using Kind = ReshardStep::Kind;

bool sums(const ReshardStep& step) {
  return step.kind == Kind::kReduceScatter || step.kind == Kind::kAllReduce;
}

}  // namespace

bool communicates(const ReshardStep& step) {
  switch (step.kind) {
    case Kind::kReduceScatter:
    case Kind::kAllReduce:
    case Kind::kAllToAll:
    case Kind::kAllGather:
    case Kind::kPermute:
      return true;
    case Kind::kSlice:
    case Kind::kPad:
    case Kind::kMask:
    case Kind::kRelabel:
      break;
  }
  return false;
}

std::string to_string(const ReshardStep& step) {
  const std::string over =
      step.axes.empty() ? std::string() : detail::cat(" over ", axes_string(step.axes));
  const std::string along = detail::cat(over, " along dimension ", step.dim);
  switch (step.kind) {
    case Kind::kSlice:
      return "slice" + along;
    case Kind::kReduceScatter:
      return "ReduceScatter" + along;
    case Kind::kAllReduce:
      return "AllReduce" + over;
    case Kind::kAllToAll:
      return detail::cat("AllToAll", over, " from dimension ", step.dim, " to ", step.to_dim);
    case Kind::kAllGather:
      return "AllGather" + along;
    case Kind::kPermute:
      return "CollectivePermute to " + to_string(step.to.spec);
    case Kind::kPad:
      return detail::cat("own block among zeros", along);
    case Kind::kMask:
      return detail::cat("zeros but at index 0", over);
    case Kind::kRelabel:
      return "relabel to " + to_string(step.to);
  }
  return "?";
}

std::string to_string(const std::vector<ReshardStep>& plan) {
  if (plan.empty()) return "nothing moves";
  std::string out;
  for (const ReshardStep& step : plan) {
    if (!out.empty()) out += '\n';
    out += to_string(step);
  }
  return out;
}

Sharded reshard(const Sharded& x, const Placement& placement) {
  check_placement(placement, x.shape(), x.mesh(), detail::cat("reshard of ", x.type()));
  const std::vector<ReshardStep> plan = plan_reshard(x.placement(), placement, x.mesh());
  const std::vector<Index> shape(x.shape().begin(), x.shape().end());
  Sharded out = x;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    // Sums that follow each other are one sum: it is rounded once.
    while (i + 1 < plan.size() && sums(plan[i]) && sums(plan[i + 1])) ++i;
    std::vector<Array> blocks(out.blocks().begin(), out.blocks().end());
    if (plan[i].kind != Kind::kRelabel) {
      blocks = detail::move_blocks(out, plan[i].to);
    }
    out = Sharded(x.mesh(), shape, plan[i].to, std::move(blocks), "reshard");
  }
  return out;
}

}  // namespace kref
