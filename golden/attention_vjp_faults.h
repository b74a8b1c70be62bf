// SPDX-License-Identifier: Apache-2.0
// What wrong backward passes of attention do, for the judge to recognise: the faults of the forward
// pass (attention_faults.h) made in both, and those that a backward pass has of its own.
#pragma once

#include <string>
#include <vector>

#include "golden/expectation.h"
#include "golden/run.h"

namespace kref {

// The alternatives of an output of a validated attention.vjp run, all of them faults. Cheap until
// one is tried. A fault of the forward pass is tried on a few rows of ct.q first, so that one that
// shows there too is told from others before all rows are computed again.
std::vector<Alternative> attention_vjp_faults(const Run& run, const std::string& output);

}  // namespace kref
