// SPDX-License-Identifier: Apache-2.0
#include "sharding/serving_plan.h"

#include <algorithm>
#include <cstdio>

#include "dsl/check.h"

namespace kref {
namespace {

bool is_weight(const std::string& name) { return name.starts_with("w_"); }

double forward_seconds(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                       LayerPrice price) {
  price.backward = false;
  return price_layer(plan, size, links, price).expected();
}

// Bytes of one device's block of a weight.
double block_bytes(const LayerPlan& plan, const std::string& weight, const LayerSize& size,
                   const Mesh& mesh, DType dtype) {
  const bool out = weight == "w_out";
  const std::vector<Index> shape =
      local_shape(spec_of(layer_specs(plan), weight),
                  std::vector<Index>{out ? size.f : size.d, out ? size.d : size.f}, mesh);
  return static_cast<double>(shape[0]) * static_cast<double>(shape[1]) *
         static_cast<double>(size_of(dtype));
}

std::vector<ServingChoice> choices(bool gate, const LayerSize& size, const Slice& slice,
                                   const LayerPrice& price) {
  std::vector<ServingChoice> out;
  const auto add = [&](LayerStrategy strategy, const Mesh& mesh) {
    const LayerPlan plan{.strategy = strategy, .gate = gate};
    try {
      const MeshLinks links = lay_out(slice.chip, mesh, slice);
      out.push_back({plan, mesh, forward_seconds(plan, size, links, price)});
    } catch (const Error&) {
      // These sizes, or this slice, do not have it.
    }
  };
  const Index chips = slice.chip_count();
  add(LayerStrategy::kTp, Mesh({{"Y", chips}}));
  for (Index x = 2; x < chips; ++x) {
    if (chips % x == 0) add(LayerStrategy::kStationary, Mesh({{"X", x}, {"Y", chips / x}}));
  }
  std::stable_sort(out.begin(), out.end(), [](const ServingChoice& a, const ServingChoice& b) {
    return a.seconds < b.seconds;
  });
  return out;
}

std::string milliseconds(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

}  // namespace

ServingPlan serving_plan(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                         const LayerPrice& price) {
  LayerPrice forward = price;
  forward.forward = true, forward.backward = false;
  const Cost cost = price_layer(plan, size, links, forward);
  ServingPlan out;
  out.given = {plan, links.mesh, cost.expected()};
  for (const LayerStep& step : forward_steps(plan)) {
    if (step.kind != LayerStep::Kind::kCollective || !is_weight(step.in[0])) continue;
    const auto priced = std::find_if(cost.steps.begin(), cost.steps.end(),
                                     [&](const CostStep& s) { return s.what == to_string(step); });
    if (priced == cost.steps.end()) continue;  // along an axis of one device: nothing moves
    out.moved.push_back(step);
    out.move_seconds += priced->seconds();
    out.read_seconds +=
        block_bytes(plan, step.in[0], size, links.mesh, price.dtype) / links.slice.chip.hbm_rate;
  }
  out.better = choices(plan.gate, size, links.slice, forward);
  return out;
}

void check_serving(const LayerPlan& plan, const LayerSize& size, const MeshLinks& links,
                   const LayerPrice& price) {
  const ServingPlan serving = serving_plan(plan, size, links, price);
  KREF_CHECK(serving.moved.empty(), "strategy ", name_of(plan.strategy), ": ", to_string(serving));
}

std::string to_string(const ServingPlan& s) {
  if (s.moved.empty()) return "decoding moves no weights";
  std::string out = "decoding moves weights (";
  for (std::size_t i = 0; i < s.moved.size(); ++i) {
    out +=
        detail::cat(i > 0 ? ", " : "", to_string(s.moved[i].collective), " of ", s.moved[i].in[0]);
  }
  char times[40];
  std::snprintf(times, sizeof times, "%.3g", s.penalty());
  out += detail::cat("): ", milliseconds(s.move_seconds), ", ", times, " times the ",
                     milliseconds(s.read_seconds), " of reading a share of them from HBM; ");
  if (s.better.empty()) {
    return out + "these sizes do not divide over the chips, so take a smaller slice for a replica";
  }
  const ServingChoice& best = s.better[0];
  return out + detail::cat("take ", name_of(best.plan.strategy), " on ", to_string(best.mesh), ": ",
                           milliseconds(best.seconds), " a step and not ",
                           milliseconds(s.given.seconds));
}

}  // namespace kref
