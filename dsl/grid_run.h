// SPDX-License-Identifier: Apache-2.0
// The two ways to execute a prepared program. Internal to dsl/.
#pragma once

#include "dsl/program.h"

namespace kref::detail {

// On a team of threads; see Grid::run.
Trace run(const Program& program, Body body);
// Under strict rules; see Grid::check.
Trace check(const Program& program, Body body, const CheckOptions& options);
// What it takes; without a body only what the declarations say. See Grid::cost.
GridCost cost(const Program& program, const Body* body);
// The number of threads with which this thread can open a parallel region now: `wanted` or more, of
// which the rest stays idle; fewer where nobody asked for a number. Error when that is less than
// set_threads asked for.
int team_size(const Program& program, int wanted);
// Puts names to counts that are in the order of the program's operands; drops the scratch.
Trace named(const Program& program, Trace trace);

}  // namespace kref::detail
