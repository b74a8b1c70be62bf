// SPDX-License-Identifier: Apache-2.0
#include "sharding/cost_model.h"

#include <algorithm>

#include "dsl/check.h"
#include "sharding/group_links.h"

namespace kref {
namespace {

double devices_along(const Mesh& mesh, const std::vector<std::string>& axes) {
  double n = 1;
  for (const std::string& axis : axes) n *= static_cast<double>(mesh.size(axis));
  return n;
}

// What one device sends of V: of a gather all blocks but one; of an exchange its own block but for
// a part.
double sent_of(Traffic traffic, double whole, double n) {
  const double once = whole * (n - 1) / n;
  if (traffic == Traffic::kAllReduce) return 2 * once;
  return traffic == Traffic::kAllToAll ? once / n : once;
}

Roofline sum_of_units(const Cost& cost) {
  Roofline sum;
  for (const CostStep& step : cost.steps) {
    if (!step.moves) sum += step.unit;
  }
  return sum;
}

}  // namespace

std::string CostStep::bound_by() const {
  return moves ? std::string("link ") + name_of(link.regime()) : unit.bound_by();
}

std::map<std::string, double> Cost::axis_seconds() const {
  std::map<std::string, double> out;
  for (const CostStep& step : steps) {
    for (const std::string& axis : step.axes) out[axis] += step.seconds();
  }
  return out;
}

std::map<std::string, double> Cost::axis_bytes() const {
  std::map<std::string, double> out;
  for (const CostStep& step : steps) {
    for (const std::string& axis : step.axes) out[axis] += step.sent_bytes;
  }
  return out;
}

double Cost::compute_seconds() const {
  double sum = 0;
  for (const CostStep& step : steps) sum += step.moves ? 0 : step.seconds();
  return sum;
}

double Cost::moved_seconds() const {
  double sum = 0;
  for (const CostStep& step : steps) sum += step.moves ? step.seconds() : 0;
  return sum;
}

double Cost::lower() const {
  double most = sum_of_units(*this).lower();
  for (const auto& entry : axis_seconds()) most = std::max(most, entry.second);
  return most;
}

double Cost::expected() const {
  double waited = 0;
  for (const CostStep& step : steps) waited += step.background ? 0 : step.seconds();
  std::map<std::string, double> busy = axis_seconds();
  for (const CostStep& step : steps) {
    for (const std::string& axis : step.axes) busy[axis] += step.exposed;
  }
  for (const auto& entry : busy) waited = std::max(waited, entry.second);
  return waited;
}

double Cost::upper() const { return compute_seconds() + moved_seconds(); }

std::string Cost::bound_by() const {
  const Roofline units = sum_of_units(*this);
  std::string name = units.bound_by();
  double most = units.lower();
  for (const auto& entry : axis_seconds()) {
    if (entry.second <= most) continue;
    most = entry.second;
    name = "links of " + entry.first;
  }
  return name;
}

CostStep price_collective(const std::string& what, Traffic traffic, double whole,
                          const std::vector<std::string>& axes, const MeshLinks& links,
                          const LinkOptions& options) {
  CostStep step{.what = what, .axes = axes, .moves = true};
  step.traffic = traffic;
  step.link = link_time(traffic, whole, links.of(axes), links.slice.chip, options);
  step.sent_bytes = sent_of(traffic, whole, devices_along(links.mesh, axes));
  return step;
}

CostStep price_collective(const std::string& what, Traffic traffic, double whole,
                          const std::vector<std::string>& axes,
                          std::span<const std::vector<Index>> groups, const MeshLinks& links,
                          const LinkOptions& options) {
  CostStep step{.what = what, .axes = axes, .moves = true};
  step.traffic = traffic;
  for (const std::vector<Index>& group : groups) {
    const LinkTime time =
        link_time(traffic, whole, group_links(group, axes, links), links.slice.chip, options);
    if (time.seconds() > step.link.seconds()) step.link = time;
    const auto n = static_cast<double>(group.size());
    step.sent_bytes = std::max(step.sent_bytes, sent_of(traffic, whole, n));
  }
  return step;
}

MatmulCost local_product(const MatmulPlacement& placement, const MatmulPrice& price) {
  const MatmulShape& local = placement.local;
  MatmulCost product{.m = static_cast<double>(local.m),
                     .n = static_cast<double>(local.n),
                     .k = static_cast<double>(local.k),
                     .shared_y = local.shared_y,
                     .x = price.dtype,
                     .y = price.dtype,
                     .z = price.out_dtype,
                     .compute = price.dtype,
                     .passes = price.passes,
                     .tile_m = price.tile_m,
                     .tile_n = price.tile_n,
                     .tile_k = price.tile_k};
  for (const Index b : local.batch) product.batch *= static_cast<double>(b);
  return product;
}

Cost price_matmul(const MatmulPlacement& placement, const MeshLinks& links,
                  const MatmulPrice& price) {
  Cost cost;
  const MatmulWork work = matmul_work(placement, price.dtype);
  const MatmulCost product = local_product(placement, price);
  CostStep multiply{.what = "multiply"};
  multiply.unit = matmul_roofline(links.slice.chip, product);
  // Operands are gathered before the product, z is summed after it.
  bool multiplied = false;
  for (const MatmulWork::Transfer& transfer : work.transfers) {
    const bool before = transfer.traffic == Traffic::kAllGather;
    if (!before && !multiplied) cost.steps.push_back(multiply);
    multiplied = multiplied || !before;
    const double n = devices_along(links.mesh, transfer.axes);
    if (n <= 1) continue;
    cost.steps.push_back(price_collective(transfer.collective, transfer.traffic,
                                          whole_bytes(transfer.traffic, transfer.bytes, n),
                                          transfer.axes, links, price.links));
  }
  if (!multiplied) cost.steps.push_back(multiply);
  return cost;
}

void send_round(Cost& cost, const std::string& axis, bool both_ways, const MatmulCost& part,
                const MeshLinks& links, const LinkOptions& options) {
  const Index n = links.mesh.size(axis);
  if (n == 1) return;
  const auto one = [&](const CostStep& step) {
    return step.moves && step.axes == std::vector<std::string>{axis};
  };
  const auto step = std::find_if(cost.steps.begin(), cost.steps.end(), one);
  KREF_CHECK(step != cost.steps.end(), "no collective over the axis ", axis, " goes round");
  std::vector<std::pair<Index, Index>> pairs;
  for (Index i = 0; i < n; ++i) {
    pairs.emplace_back(i, (i + n - 1) % n);
    if (both_ways) pairs.emplace_back(i, (i + 1) % n);
  }
  const double hop_bytes = step->link.hop_bytes / (both_ways ? 2 : 1);
  const LinkTime hop = permute_time(hop_bytes, pairs, links.of({axis}), links.slice.chip, options);
  const auto hops = static_cast<double>(n - 1);
  step->what += both_ways ? ", round both ways" : ", round one way";
  step->link = {hop.bandwidth * hops, hop.latency * hops, hop_bytes};
  step->sent_bytes = hop.hop_bytes * hops * (both_ways ? 2 : 1);
  step->background = true;
  const Roofline unit = matmul_roofline(links.slice.chip, part);
  step->exposed = unit.lower();
  for (CostStep& product : cost.steps) {
    if (product.moves) continue;
    product.unit = {};
    for (Index i = 0; i < n; ++i) product.unit += unit;
  }
}

}  // namespace kref
