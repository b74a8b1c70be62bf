// SPDX-License-Identifier: Apache-2.0
// The virtual clock of a run: its devices are launched on shapes alone, and what they do is priced.
#include "dsl/work_meter.h"
#include "golden/cost.h"
#include "golden/run_launch.h"

namespace kref {
namespace {

// Of an operation whose devices are not launched: its steps, one after the other on each device.
RunLog log_of_steps(const Cost& cost, const Mesh& mesh) {
  RunLog log;
  log.open(mesh);
  for (Index d = 0; d < mesh.device_count(); ++d) {
    DeviceLog& device = log.devices[static_cast<std::size_t>(d)];
    for (const CostStep& step : cost.steps) {
      if (!step.moves) {
        device.charge(step.what, step.unit);
        continue;
      }
      LoggedTransfer transfer{.axes = step.axes};
      transfer.members = replica_group(mesh, AxisNames(step.axes), {}, d).members;
      transfer.traffic = step.traffic;
      transfer.sent_bytes = step.sent_bytes;
      device.await(device.start(step.what, std::move(transfer)));
    }
  }
  log.complete = true;
  return log;
}

// The critical path with what follows itself in one row.
struct Stretch {
  const CriticalStep* step;
  Index count = 0;
  double seconds = 0;
};
std::vector<Stretch> stretches(const TimedRun& timed) {
  std::vector<Stretch> out;
  for (const CriticalStep& step : timed.critical) {
    const bool same = !out.empty() && out.back().step->what == step.what &&
                      out.back().step->bound_by == step.bound_by;
    if (!same) out.push_back({&step});
    ++out.back().count;
    out.back().seconds += step.end - step.begin;
  }
  return out;
}

}  // namespace

ClockOptions clock_as_run(const Run&) { return {}; }

ClockOptions clock_mlp_run(const Run& run) {
  return {.links = {}, .floats = run.in.at("x").dtype()};
}

TimedRun time_run(const Run& run, const PricedRun& priced) {
  const Mesh mesh = run.mesh.value_or(Mesh());
  check_runnable(mesh);
  const Operation& operation = find_operation(run.op);
  if (!run.mesh || operation.clock == nullptr) {
    return time_run(log_of_steps(priced.cost, mesh), priced.links);
  }
  RunLog log;
  {
    const RunLogScope scope(log);
    const ShapesOnly shapes;
    static_cast<void>(operation.compute(run));
  }
  // What is not placed is not launched.
  if (log.devices.empty()) return time_run(log_of_steps(priced.cost, mesh), priced.links);
  return time_run(log, priced.links, operation.clock(run));
}

std::string clock_text(const TimedRun& timed) {
  constexpr std::size_t kMostRows = 16;
  std::string out = "virtual clock " + seconds_text(timed.seconds()) + ", the critical path";
  const char* before = ": ";
  for (const auto& [name, seconds] : timed.bound()) {
    out += before + name + ' ' + seconds_text(seconds);
    before = ", ";
  }
  out += timed.critical.empty() ? " is empty\n" : "\n";
  const std::vector<Stretch> all = stretches(timed);
  for (std::size_t i = 0; i < all.size() && i < kMostRows; ++i) {
    const CriticalStep& step = *all[i].step;
    out += detail::cat("  device ", timed.mesh.device_name(step.device), ' ', step.what,
                       all[i].count > 1 ? detail::cat(", ", all[i].count, " times") : "", ": ",
                       seconds_text(all[i].seconds), ", ", step.bound_by, '\n');
  }
  if (all.size() > kMostRows) out += detail::cat("  and ", all.size() - kMostRows, " more\n");
  return out;
}

nlohmann::ordered_json clock_json(const TimedRun& timed) {
  nlohmann::ordered_json out = {{"seconds", timed.seconds()},
                                {"bound_by", timed.bound_by()},
                                {"bound", timed.bound()},
                                {"compute", timed.compute_seconds()}};
  out["axes"] = nlohmann::ordered_json::object();
  const auto bytes = timed.axis_bytes();
  for (const auto& [axis, seconds] : timed.axis_seconds()) {
    out["axes"][axis] = {{"seconds", seconds}, {"sent_bytes", bytes.at(axis)}};
  }
  out["critical_path"] = nlohmann::ordered_json::array();
  for (const CriticalStep& step : timed.critical) {
    out["critical_path"].push_back({{"step", step.what},
                                    {"device", timed.mesh.device_name(step.device)},
                                    {"begin", step.begin},
                                    {"end", step.end},
                                    {"bound_by", step.bound_by}});
  }
  return out;
}

}  // namespace kref
