// SPDX-License-Identifier: Apache-2.0
// The collectives of run files and their reverse-mode twins (spec/runs.md section 3): their
// declarations.
#pragma once

#include "golden/operation.h"

namespace kref {

// all_gather, psum, pmean, pmax, pmin, psum_scatter, all_to_all, ppermute, each followed by its
// .vjp where it has one: the declarations that operations() lists.
std::vector<Operation> collective_operations();

// The output of a validated run, computed by the devices of a mesh (sharding/).
std::map<std::string, Array> compute_collective(const Run& run);

// What the output of a validated run ought to hold.
std::vector<Expectation> expect_collective(const Run& run);

}  // namespace kref
