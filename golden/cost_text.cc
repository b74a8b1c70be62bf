// SPDX-License-Identifier: Apache-2.0
// A price in words and as JSON.
#include <algorithm>
#include <cstdio>

#include "golden/cost.h"

namespace kref {
namespace {

// Three digits with the unit that leaves one to three of them before the point.
std::string scaled(double value, double unit, std::initializer_list<const char*> names) {
  const char* const* name = names.begin();
  double v = value / unit;
  while (v >= 999.5 && name + 1 != names.end()) v /= 1000, ++name;
  char text[40];
  const int places = v >= 99.95 || v == 0 ? 0 : v >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", places, v, *name);
  return text;
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}
std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string work_text(const CostStep& step) {
  if (step.moves) {
    return bytes_text(step.sent_bytes) + " sent, " + bytes_text(step.link.hop_bytes) + " a hop" +
           (step.background ? ", in the background" : "");
  }
  std::string out = scaled(step.unit.flops, 1, {"flops", "kflops", "Mflops", "Gflops", "Tflops"}) +
                    ", " + bytes_text(step.unit.hbm_bytes) + " of HBM";
  if (step.unit.steps == 0) return out;
  return out + detail::cat(", ", step.unit.steps, " grid steps, scalar unit ") +
         seconds_text(step.unit.scalar);
}

nlohmann::ordered_json step_json(const CostStep& step) {
  nlohmann::ordered_json out = {{"step", step.what},
                                {"seconds", step.seconds()},
                                {"bound_by", step.bound_by()},
                                {"background", step.background}};
  if (step.moves) {
    out["axes"] = step.axes;
    out["sent_bytes"] = step.sent_bytes;
    out["hop_bytes"] = step.link.hop_bytes;
    out["bandwidth_seconds"] = step.link.bandwidth;
    out["latency_seconds"] = step.link.latency;
  } else {
    out["flops"] = step.unit.flops;
    out["hbm_bytes"] = step.unit.hbm_bytes;
    if (step.unit.transcendentals > 0) out["transcendentals"] = step.unit.transcendentals;
    out["compute_seconds"] = step.unit.compute;
    out["hbm_seconds"] = step.unit.hbm;
    out["vmem_seconds"] = step.unit.vmem;
    out["scalar_seconds"] = step.unit.scalar;
    out["grid_steps"] = step.unit.steps;
    out["index_operations"] = step.unit.index_operations;
  }
  return out;
}

nlohmann::ordered_json totals_json(const Cost& cost) {
  nlohmann::ordered_json out = {{"expected", cost.expected()},
                                {"at_least", cost.lower()},
                                {"at_most", cost.upper()},
                                {"compute", cost.compute_seconds()},
                                {"links", cost.moved_seconds()}};
  return out;
}

nlohmann::ordered_json axes_json(const Cost& cost) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  const auto bytes = cost.axis_bytes();
  for (const auto& [axis, seconds] : cost.axis_seconds()) {
    out[axis] = {{"seconds", seconds}, {"sent_bytes", bytes.at(axis)}};
  }
  return out;
}

constexpr std::size_t kTime = 8;

}  // namespace

std::string seconds_text(double seconds) { return scaled(seconds, 1e-9, {"ns", "us", "ms", "s"}); }
std::string bytes_text(double bytes) { return scaled(bytes, 1, {"B", "kB", "MB", "GB", "TB"}); }

std::string cost_text(const Run& run, const PricedRun& priced, const TimedRun* timed) {
  const Cost& cost = priced.cost;
  std::string out = run.origin + ": " + run.op + " on " + to_string(priced.links.slice) + '\n';
  if (run.mesh) out += "mesh " + to_string(priced.links) + '\n';
  if (cost.steps.empty()) return out + "nothing moves and nothing is computed\n";
  std::size_t width = 0;
  for (const CostStep& step : cost.steps) width = std::max(width, step.what.size());
  for (const CostStep& step : cost.steps) {
    out += "  " + padded(step.what, width) + "  " + right(seconds_text(step.seconds()), kTime);
    out += "  " + padded(step.bound_by(), 14) + "  " + work_text(step) + '\n';
  }
  out += "expected " + seconds_text(cost.expected()) + "; at least " + seconds_text(cost.lower()) +
         " (" + cost.bound_by() + ") if all overlaps, at most " + seconds_text(cost.upper()) +
         " if nothing does\n";
  const auto bytes = cost.axis_bytes();
  for (const auto& [axis, seconds] : cost.axis_seconds()) {
    out += "  links of " + axis + ": " + bytes_text(bytes.at(axis)) + " sent by a device, " +
           seconds_text(seconds) + '\n';
  }
  if (!bytes.empty()) {
    out += "  a message of less than " + bytes_text(latency_bytes(priced.links.slice.chip)) +
           " takes the time of its hops\n";
  }
  if (timed != nullptr) out += clock_text(*timed);
  if (const auto serving = run_serving(run, priced.links)) out += to_string(*serving) + '\n';
  const auto conditions = run_conditions(run, priced.links.slice);
  return conditions ? out + conditions_text(*conditions) : out;
}

nlohmann::ordered_json cost_json(const Run& run, const PricedRun& priced, const TimedRun* timed) {
  nlohmann::ordered_json out = {{"run", run.origin}, {"op", run.op}};
  out["chip"] = priced.links.slice.chip.name;
  out["slice"] = priced.links.slice.shape;
  out["wraps"] = priced.links.slice.wraps;
  out["mesh"] = run.mesh ? nlohmann::ordered_json(to_string(*run.mesh)) : nlohmann::ordered_json();
  out["steps"] = nlohmann::ordered_json::array();
  for (const CostStep& step : priced.cost.steps) out["steps"].push_back(step_json(step));
  out["seconds"] = totals_json(priced.cost);
  out["bound_by"] = priced.cost.steps.empty() ? "nothing" : priced.cost.bound_by();
  out["axes"] = axes_json(priced.cost);
  if (timed != nullptr) out["clock"] = clock_json(*timed);
  out["message_bytes"] = latency_bytes(priced.links.slice.chip);
  if (const auto conditions = run_conditions(run, priced.links.slice)) {
    out["conditions"] = conditions_json(*conditions);
  }
  if (const auto serving = run_serving(run, priced.links)) out["serving"] = serving_json(*serving);
  return out;
}

std::string sweep_text(const Sweep& sweep) {
  std::string out = detail::cat("mlp B=", sweep.size.b, " D=", sweep.size.d, " F=", sweep.size.f,
                                sweep.backward ? ", forward and backward" : ", forward", ", on ",
                                to_string(sweep.slice), '\n');
  std::size_t width = 8;
  for (const SweepRow& row : sweep.rows) {
    width = std::max(width, std::string_view(name_of(row.plan.strategy)).size());
  }
  out += padded("strategy", width) +
         "  mesh           expected  at least   at most   compute     links  memory a chip"
         "  bound by\n";
  for (const SweepRow& row : sweep.rows) {
    out += padded(name_of(row.plan.strategy), width) + "  " + padded(to_string(row.mesh), 13);
    for (const double seconds : {row.cost.expected(), row.cost.lower(), row.cost.upper(),
                                 row.cost.compute_seconds(), row.cost.moved_seconds()}) {
      out += "  " + right(seconds_text(seconds), kTime);
    }
    const bool fits = row.memory.total() <= sweep.slice.chip.hbm_bytes;
    out += "  " + right(bytes_text(row.memory.total()), 13) + "  " + row.cost.bound_by() +
           (fits ? "" : ", memory does not suffice") + '\n';
  }
  if (sweep.rows.empty()) out += "no mesh divides these sizes\n";
  if (sweep.refused > 0) {
    out +=
        detail::cat(sweep.refused, " more do not divide the sizes, or do not fit on the slice\n");
  }
  return out + conditions_text(layer_conditions(sweep.size, sweep.slice));
}

nlohmann::ordered_json sweep_json(const Sweep& sweep) {
  nlohmann::ordered_json out = {{"op", sweep.backward ? "mlp.vjp" : "mlp"},
                                {"b", sweep.size.b},
                                {"d", sweep.size.d},
                                {"f", sweep.size.f},
                                {"chip", sweep.slice.chip.name},
                                {"slice", sweep.slice.shape},
                                {"wraps", sweep.slice.wraps},
                                {"refused", sweep.refused}};
  out["rows"] = nlohmann::ordered_json::array();
  for (const SweepRow& row : sweep.rows) {
    out["rows"].push_back({{"strategy", name_of(row.plan.strategy)},
                           {"mesh", to_string(row.mesh)},
                           {"seconds", totals_json(row.cost)},
                           {"bound_by", row.cost.bound_by()},
                           {"axes", axes_json(row.cost)},
                           {"memory",
                            {{"state", row.memory.state},
                             {"kept", row.memory.kept},
                             {"gathered", row.memory.gathered},
                             {"total", row.memory.total()}}}});
  }
  out["conditions"] = conditions_json(layer_conditions(sweep.size, sweep.slice));
  return out;
}

}  // namespace kref
