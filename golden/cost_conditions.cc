// SPDX-License-Identifier: Apache-2.0
// The planning numbers of a layer on a slice (sharding/planning.h, serving.h), beside its price.
#include <cstdio>

#include "golden/cost.h"
#include "golden/mlp_op.h"
#include "sharding/planning.h"
#include "sharding/serving.h"

namespace kref {
namespace {

// "2550", "33.7", "0.36": three digits, or all before the point.
std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, value >= 99.95 ? "%.0f" : "%.3g", value);
  return text;
}

// Of 1, 2, .. axes of links.
std::string by_axes(const std::vector<double>& values) {
  std::string out;
  for (std::size_t k = 0; k < values.size(); ++k) {
    out += detail::cat(k > 0 ? ", " : "", number(values[k]), " on ");
    out += k > 0 ? std::to_string(k + 1) : "an axis of links";
  }
  return out;
}

}  // namespace

LayerConditions layer_conditions(const LayerSize& size, const Slice& slice) {
  const Chip& chip = slice.chip;
  const auto b = static_cast<double>(size.b), f = static_cast<double>(size.f),
             chips = static_cast<double>(slice.chip_count());
  LayerConditions out;
  out.tokens_a_chip = b / chips;
  for (Index axes = 1; axes <= chip.link_axes(); ++axes) {
    out.data_tokens.push_back(data_parallel_tokens(chip, static_cast<double>(axes)));
    out.model_chips.push_back(tensor_parallel_chips(chip, f, static_cast<double>(axes)));
  }
  // One axis of links for the model axis of the mesh, the others for the data axis.
  const auto data_axes = static_cast<double>(chip.link_axes() - 1);
  out.data_axis = optimal_data_axis(b, f, chips, data_axes);
  out.mixed_tokens = mixed_tokens(chip, f, data_axes);
  out.slice_tokens = slice_tokens(chip);
  out.ring_columns = hidden_columns(chip, true);
  out.message_bytes = latency_bytes(chip);
  if (b < hbm_intensity(chip)) out.decode_chips = decode_model_axis(f, b, hbm_to_link(chip));
  for (std::size_t k = 0; k < slice.shape.size(); ++k) {
    out.lines = out.lines || (slice.shape[k] > 1 && !slice.wraps[k]);
  }
  return out;
}

std::optional<LayerConditions> run_conditions(const Run& run, const Slice& slice) {
  if (run.op != "mlp" && run.op != "mlp.vjp") return std::nullopt;
  const MlpRun mlp = read_mlp(run);
  return layer_conditions({.b = mlp.b, .d = mlp.d, .f = mlp.f}, slice);
}

std::optional<ServingPlan> run_serving(const Run& run, const MeshLinks& links) {
  if (run.op != "mlp" || !run.mesh) return std::nullopt;
  const MlpRun mlp = read_mlp(run);
  if (static_cast<double>(mlp.b) >= hbm_intensity(links.slice.chip)) return std::nullopt;
  return serving_plan(mlp.layer.plan, {.b = mlp.b, .d = mlp.d, .f = mlp.f}, links,
                      {.dtype = mlp.dtype});
}

nlohmann::ordered_json serving_json(const ServingPlan& serving) {
  nlohmann::ordered_json out = {{"moved", nlohmann::ordered_json::array()},
                                {"move_seconds", serving.move_seconds},
                                {"read_seconds", serving.read_seconds},
                                {"penalty", serving.penalty()},
                                {"better", nlohmann::ordered_json::array()}};
  for (const LayerStep& step : serving.moved) out["moved"].push_back(to_string(step));
  for (const ServingChoice& c : serving.better) {
    out["better"].push_back({{"strategy", name_of(c.plan.strategy)},
                             {"mesh", to_string(c.mesh)},
                             {"seconds", c.seconds}});
  }
  return out;
}

std::string conditions_text(const LayerConditions& c) {
  std::string out = "in bf16 a product takes longer than what its strategy sends, with";
  out += c.lines ? " rings (lines, as here, send half as much)\n" : " rings\n";
  out += "  dp, fsdp  from " + by_axes(c.data_tokens) + " tokens a chip; here " +
         number(c.tokens_a_chip) + '\n';
  out += "  tp        up to " + by_axes(c.model_chips) + " chips\n";
  out += "  fsdp_tp   from " + number(c.mixed_tokens) + " tokens a chip, with X near " +
         number(c.data_axis) + '\n';
  out += "  dp between slices from " + number(c.slice_tokens) + " tokens a slice\n";
  out +=
      "  a ring of blocks that go both ways from " + number(c.ring_columns) + " columns a device\n";
  if (c.decode_chips) {
    out += "weights are read from HBM for so few tokens: tp up to " + number(*c.decode_chips) +
           " chips until its links take longer\n";
  }
  return out;
}

nlohmann::ordered_json conditions_json(const LayerConditions& c) {
  nlohmann::ordered_json out = {
      {"tokens_a_chip", c.tokens_a_chip},       {"data_parallel_tokens", c.data_tokens},
      {"tensor_parallel_chips", c.model_chips}, {"optimal_data_axis", c.data_axis},
      {"mixed_tokens", c.mixed_tokens},         {"slice_tokens", c.slice_tokens},
      {"ring_columns", c.ring_columns},         {"message_bytes", c.message_bytes}};
  if (c.decode_chips) out["decode_model_axis"] = *c.decode_chips;
  return out;
}

}  // namespace kref
