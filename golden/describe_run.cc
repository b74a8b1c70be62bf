// SPDX-License-Identifier: Apache-2.0
// One run in words: its tensors on their devices, and what each device does.
#include <algorithm>

#include "golden/file_text.h"
#include "golden/operation.h"
#include "golden/options.h"
#include "golden/plan.h"
#include "golden/report_text.h"

namespace kref {
namespace {

constexpr std::string_view kCotangent = "ct.";

struct Placed {
  std::string name;  // "in.x", "out.ct.x"
  Array array;
  std::string spec;   // "P('X', None)"; "" without a mesh
  std::string local;  // shape of a device's block; "" without a mesh
};

// The placement of a tensor: in.ct.NAME takes that of the output NAME, and the other way round.
OutSpec placement(const Run& run, bool in, std::string name) {
  const bool cotangent = name.starts_with(kCotangent);
  if (cotangent) name = name.substr(kCotangent.size());
  if (in != cotangent) {
    const auto at = run.in_specs.find(name);
    return at == run.in_specs.end() ? OutSpec{} : OutSpec{at->second, {}};
  }
  const auto at = run.out_specs.find(name);
  return at == run.out_specs.end() ? OutSpec{} : at->second;
}

std::vector<Placed> tensors(const Operation& operation, const Run& given) {
  const Run run = operation.placed == nullptr ? given : operation.placed(given);
  std::vector<Placed> out;
  for (const bool in : {true, false}) {
    for (const auto& [name, array] : in ? run.in : run.out) {
      Placed t{(in ? "in." : "out.") + name, array, "", ""};
      if (run.mesh) {
        const OutSpec spec = placement(run, in, name);
        t.spec = to_string(spec);
        // Behind the leading dimensions, of which each device has one index.
        const std::span<const Index> shape = array.shape().subspan(spec.unreduced.size());
        t.local = shape_string(local_shape(spec.spec, shape, *run.mesh));
      }
      out.push_back(std::move(t));
    }
  }
  return out;
}

std::string source_of(const Run& run) {
  const auto at = run.metadata.find("source");
  return at == run.metadata.end() ? "" : at->second;
}

// The operation of a run, which it checks: what was put out only where it is there.
const Operation& checked(const Run& run) {
  const Operation& operation = find_operation(run.op);
  operation.validate(run, !run.out.empty());
  return operation;
}

// Of a count: all of its digits.
std::string number(double value) { return detail::number(value, 15); }

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

std::string text_of(const Plan& plan) {
  constexpr std::size_t kMostGroups = 8, kMostMembers = 16;
  std::string out = "plan: " + plan.summary + '\n';
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (g == kMostGroups) {
      out += detail::cat("  and ", plan.groups.size() - g, " groups more\n");
      break;
    }
    out += "  group";
    for (std::size_t m = 0; m < std::min(plan.groups[g].size(), kMostMembers); ++m) {
      out += ' ' + plan.groups[g][m];
    }
    out += plan.groups[g].size() > kMostMembers ? " ..\n" : "\n";
  }
  for (const std::string& step : plan.steps) out += "  " + step + '\n';
  out += plan.transfers.empty() ? "a device sends nothing\n" : "a device sends\n";
  std::size_t width = 5;
  for (const PlannedTransfer& t : plan.transfers) width = std::max(width, t.collective.size());
  const auto line = [&](const std::string& what, double bytes) {
    out += "  " + padded(what, width) + "  " + number(bytes) + " bytes\n";
  };
  for (const PlannedTransfer& t : plan.transfers) line(t.collective, t.bytes);
  if (plan.transfers.size() > 1) line("total", plan.bytes());
  return plan.flops > 0 ? out + "a device computes " + number(plan.flops) + " flops\n" : out;
}

nlohmann::ordered_json json_of(const Plan& plan) {
  nlohmann::ordered_json out = {{"summary", plan.summary}};
  out["case"] =
      plan.matmul_case == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(plan.matmul_case);
  out["steps"] = plan.steps;
  out["transfers"] = nlohmann::ordered_json::array();
  for (const PlannedTransfer& t : plan.transfers) {
    out["transfers"].push_back({{"collective", t.collective}, {"bytes", t.bytes}});
  }
  out["bytes"] = plan.bytes();
  out["flops"] = plan.flops;
  out["groups"] = plan.groups;
  return out;
}

}  // namespace

std::string describe_run(const Run& run) {
  const Operation& operation = checked(run);
  const std::vector<Placed> all = tensors(operation, run);
  std::string out = run.origin + ": " + run.op + ", " + operation.summary + "\n";
  if (run.mesh) {
    out += detail::cat("mesh ", to_string(*run.mesh), ", ", run.mesh->device_count(), " devices\n");
  }
  std::size_t names = 0, arrays = 0, specs = 0;
  for (const Placed& t : all) {
    names = std::max(names, t.name.size());
    arrays = std::max(arrays, to_string(t.array).size());
    specs = std::max(specs, t.spec.size());
  }
  for (const Placed& t : all) {
    out += "  " + padded(t.name, names) + "  ";
    if (!run.mesh) {
      out += to_string(t.array) + '\n';
      continue;
    }
    out += padded(to_string(t.array), arrays) + "  " + padded(t.spec, specs);
    out += "  " + t.local + " a device\n";
  }
  for (const auto& [name, value] : run.set.items())
    out += "  " + name + " = " + shown(value) + '\n';
  if (const std::string source = source_of(run); !source.empty()) {
    out += "  source: " + quote(source) + '\n';
  }
  return operation.plan == nullptr ? out : out + text_of(operation.plan(run));
}

nlohmann::ordered_json describe_run_json(const Run& run) {
  const Operation& operation = checked(run);
  nlohmann::ordered_json out = {{"run", run.origin}, {"op", run.op}, {"set", run.set}};
  out["mesh"] = run.mesh ? nlohmann::ordered_json(to_string(*run.mesh)) : nlohmann::ordered_json();
  out["tensors"] = nlohmann::ordered_json::array();
  for (const Placed& t : tensors(operation, run)) {
    nlohmann::ordered_json entry = {{"name", t.name}, {"dtype", name_of(t.array.dtype())}};
    const std::span<const Index> shape = t.array.shape();
    entry["shape"] = std::vector<Index>(shape.begin(), shape.end());
    if (run.mesh) {
      entry["spec"] = t.spec;
      entry["local"] = nlohmann::ordered_json::parse(t.local);
    }
    out["tensors"].push_back(std::move(entry));
  }
  out["source"] = source_of(run);
  out["plan"] = operation.plan == nullptr ? nlohmann::ordered_json() : json_of(operation.plan(run));
  return out;
}

}  // namespace kref
