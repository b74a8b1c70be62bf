// SPDX-License-Identifier: Apache-2.0
#include "golden/operation.h"

#include <algorithm>
#include <cstring>

#include "golden/attention_vjp_op.h"
#include "golden/collective_matmul_op.h"
#include "golden/collective_op.h"
#include "golden/decode_op.h"
#include "golden/file_text.h"
#include "golden/matmul_op.h"
#include "golden/mlp_op.h"
#include "golden/nearest.h"

namespace kref {
namespace {

constexpr std::string_view kCotangent = "ct.";

std::vector<std::string> names_of(const std::vector<TensorRule>& rules, const char* prefix = "") {
  std::vector<std::string> names;
  for (const TensorRule& rule : rules) names.push_back(std::string(prefix) + rule.name);
  return names;
}

// The names that may have a spec: primal ones of `own`, and those whose cotangent is in `other`
// (in.ct.z of a vjp takes out_specs.z).
std::vector<std::string> spec_names(const std::vector<TensorRule>& own,
                                    const std::vector<TensorRule>& other) {
  std::vector<std::string> names;
  for (const std::string& name : names_of(own)) {
    if (!name.starts_with(kCotangent)) names.push_back(name);
  }
  for (const std::string& name : names_of(other)) {
    if (name.starts_with(kCotangent)) names.push_back(name.substr(kCotangent.size()));
  }
  return names;
}

// Every key of `given`, behind `prefix`, is in `known`.
template <class Map>
void check_known(const Run& run, const char* what, const std::string& prefix, const Map& given,
                 const std::vector<std::string>& known) {
  for (const auto& [name, value] : given) {
    const std::string full = prefix + name;
    if (std::find(known.begin(), known.end(), full) != known.end()) continue;
    refuse_run(run, "unknown ", what, ' ', quote(full), "; known: ", joined(known),
               did_you_mean(full, known));
  }
}

void check_present(const Run& run, const char* prefix, const std::vector<TensorRule>& rules,
                   const std::map<std::string, Array>& given) {
  for (const TensorRule& rule : rules) {
    if (rule.optional || given.contains(rule.name)) continue;
    refuse_run(run, "tensor ", prefix, rule.name, " [", rule.dims, "] is missing");
  }
}

// Devices enough to run, and no spec without a mesh.
void check_mesh(const Run& run, bool priced) {
  if (run.mesh) {
    if (priced) return;
    try {
      check_runnable(*run.mesh);
    } catch (const Error& e) {
      refuse_run(run, e.what());
    }
    return;
  }
  const auto refuse = [&](const char* key, const std::string& name) {
    refuse_run(run, key, ' ', quote(name), " names mesh axes, but the run has no mesh");
  };
  const auto split = [](const PartitionSpec& spec) { return !(spec == PartitionSpec()); };
  for (const auto& [name, spec] : run.in_specs) {
    if (split(spec)) refuse("in_specs", name);
  }
  for (const auto& [name, out] : run.out_specs) {
    if (split(out.spec) || !out.unreduced.empty()) refuse("out_specs", name);
  }
}

}  // namespace

std::span<const Operation> operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list = {matmul_operation(), attention_operation(),
                                   attention_vjp_operation(), decode_operation()};
    for (Operation& operation : collective_operations()) list.push_back(std::move(operation));
    list.push_back(collective_matmul_operation());
    for (Operation& operation : mlp_operations()) list.push_back(std::move(operation));
    return list;
  }();
  return all;
}

const Operation& find_operation(const std::string& name) {
  std::vector<std::string> known;
  for (const Operation& operation : operations()) {
    if (operation.name == name) return operation;
    known.emplace_back(operation.name);
  }
  throw Error(detail::cat("unknown operation ", quote(name), "; known: ", joined(known),
                          did_you_mean(name, known)));
}

void check_declared(const Operation& operation, const Run& run, bool with_outputs, bool priced) {
  check_known(run, "tensor", "in.", run.in, names_of(operation.inputs, "in."));
  check_known(run, "tensor", "out.", run.out, names_of(operation.outputs, "out."));
  check_known(run, "name in in_specs,", "", run.in_specs,
              spec_names(operation.inputs, operation.outputs));
  check_known(run, "name in out_specs,", "", run.out_specs,
              spec_names(operation.outputs, operation.inputs));
  check_mesh(run, priced);
  check_present(run, "in.", operation.inputs, run.in);
  if (with_outputs) check_present(run, "out.", operation.outputs, run.out);

  std::vector<std::string> options;
  for (const OptionRule& rule : operation.options) options.emplace_back(rule.name);
  check_known(run, "option", "", run.set.get_ref<const nlohmann::json::object_t&>(), options);
  for (const OptionRule& rule : operation.options) {
    if (std::strcmp(rule.fallback, "required") == 0 && !run.set.contains(rule.name)) {
      refuse_run(run, "option ", rule.name, " is missing; expected ", rule.note);
    }
  }
}

void check_array(const Run& run, const std::string& tensor, const Array& found, DType dtype,
                 std::span<const Index> shape) {
  if (found.dtype() != dtype) {
    refuse_run(run, tensor, " has element type ", name_of(found.dtype()), ", expected ",
               name_of(dtype));
  }
  if (!std::ranges::equal(shape, found.shape())) {
    refuse_run(run, tensor, " has shape ", shape_string(found.shape()), ", expected ",
               shape_string(shape));
  }
}

void check_output(const Run& run, const std::string& name, DType dtype,
                  std::span<const Index> shape) {
  const auto at = run.out.find(name);
  if (at != run.out.end()) check_array(run, "out." + name, at->second, dtype, shape);
}

}  // namespace kref
