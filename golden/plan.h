// SPDX-License-Identifier: Apache-2.0
// Plan: what every device does in one run: steps, what it sends, what it computes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "golden/run.h"
#include "sharding/link_cost.h"
#include "sharding/replica_groups.h"

namespace kref {

// One collective that a device takes part in.
struct PlannedTransfer {
  std::string collective;  // "all_gather(X, axis=0, tiled=true) of y"
  double bytes = 0;        // that one device sends, by ring algorithms (sharding_semantics 2.6)
  std::optional<Traffic> traffic = {};  // what it is to links; nothing: a permutation, or no move
  std::vector<std::string> axes = {};   // of the mesh, first major
  AxisIndexGroups groups = {};          // of indices along them; none: all are one
};

struct Plan {
  std::string summary;                           // "case 3 (contraction sharded on both sides)"
  int matmul_case = 0;                           // 1 to 4 of a sharded matmul, else 0
  std::vector<std::string> steps;                // in order: "psum_scatter z along columns over Y"
  std::vector<PlannedTransfer> transfers;        // in order
  double flops = 0;                              // of one device; a multiply-add counts 2
  std::vector<std::vector<std::string>> groups;  // of a collective: names of the devices, by rank

  // Of all transfers together.
  double bytes() const {
    double sum = 0;
    for (const PlannedTransfer& transfer : transfers) sum += transfer.bytes;
    return sum;
  }
};

// Of validated runs.
Plan plan_matmul(const Run& run);
Plan plan_collective(const Run& run);
Plan plan_mlp(const Run& run);

// For people: operation, tensors with their placement, options and source of a run; then its plan,
// where its operation has one. Error when the run is not valid.
std::string describe_run(const Run& run);
// The same as JSON: run, op, set, mesh, tensors, source; and plan (case, steps, transfers, bytes,
// flops, groups), null where there is none.
nlohmann::ordered_json describe_run_json(const Run& run);

}  // namespace kref
