// SPDX-License-Identifier: Apache-2.0
// Run: one run of one operation - what went in, the options, the placement, and what came out of
// the machine that is being judged (spec/runs.md section 1).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "dsl/array.h"
#include "sharding/mesh.h"
#include "sharding/partition_spec.h"

namespace kref {

struct Run {
  std::string origin;  // the file it came from, or "command line": the first word of every message
  std::string op;      // "matmul", "attention.vjp", ...
  nlohmann::json set = nlohmann::json::object();  // options, always an object

  // Global arrays by name without "in." and "out."; cotangents as "ct.NAME".
  std::map<std::string, Array> in, out;

  std::optional<Mesh> mesh;  // absent = one device
  std::map<std::string, PartitionSpec> in_specs;
  std::map<std::string, OutSpec> out_specs;

  std::map<std::string, std::string> metadata;  // every key of the file, known or not
};

// The spec of an array in in_specs or out_specs: replicated where there is none.
template <class Spec>
Spec spec_of(const std::map<std::string, Spec>& specs, const std::string& name) {
  const auto at = specs.find(name);
  return at == specs.end() ? Spec() : at->second;
}

// Reads a run file: a safetensors file with metadata. Error (one line that names the file and the
// reason) for anything runs.md does not allow; what depends on the operation is checked by
// Operation::validate.
Run read_run(const std::string& path);

// Writes `run` as a run file: its inputs, outputs, options, placement and metadata ("source" and
// unknown keys are kept).
void write_run(const std::string& path, const Run& run);

}  // namespace kref
