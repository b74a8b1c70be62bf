// SPDX-License-Identifier: Apache-2.0
// The points of a grid, or some of them, on a team of threads. Internal to dsl/.
#pragma once

#include "dsl/worker.h"

namespace kref::detail {

// What is to be run, and how.
struct Job {
  const Program& program;
  const Strictness strictness;
  const Body body;
  Failure& failure;
  const VisitTable& visits;
};

// What running it came to.
struct Passed {
  Trace trace;                  // an entry an operand of the program, without names
  std::uint64_t differing = 0;  // outputs (bits) that were compared and differ
};

// How many threads may run the points of a program now.
int threads_for(const Program& program);
// The points first..end-1, in the order of the strictness, with all their steps, on up to `most`
// threads. Errors of bodies go to the job's failure, which is rethrown by the caller; Error as of
// team_size.
Passed run_points(const Job& job, Index first, Index end, int most);
// Adds the counts of every operand to the sums, which are none yet or as many.
void add_counts(const std::vector<OperandTrace>& counts, std::vector<OperandTrace>& sums);

}  // namespace kref::detail
