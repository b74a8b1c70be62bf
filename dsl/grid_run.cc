// SPDX-License-Identifier: Apache-2.0
#include "dsl/grid_run.h"

#include <omp.h>

#include <algorithm>

#include "dsl/team.h"
#include "dsl/threads.h"
#include "dsl/work_meter.h"

namespace kref {

namespace detail {

namespace {

// What the threads that run some points share.
struct Team {
  // One thread's part: takes the chunks that are left, in order. Does not throw.
  void work() {
    try {
      Index first = next.fetch_add(chunk);
      if (first >= end) return;  // nothing left: no windows either
      Worker worker(job.program, job.strictness, job.body, job.failure, job.visits);
      for (; first < end; first = next.fetch_add(chunk)) {
        if (first * job.program.inner >= job.failure.step) break;
        worker.run_points(first, std::min(first + chunk, end));
      }
      const std::lock_guard lock(mutex);
      passed.differing |= worker.differing();
      passed.trace.steps += worker.steps_done();
      add_counts(worker.counts(), passed.trace.operands);
    } catch (...) {
      job.failure.report(-1,
                         std::current_exception());  // no memory for a worker: no step had begun
    }
  }

  const Job& job;
  const Index end, chunk;
  std::atomic<Index> next;
  std::mutex mutex;
  Passed passed;
};

}  // namespace

void add_counts(const std::vector<OperandTrace>& counts, std::vector<OperandTrace>& sums) {
  sums.resize(counts.size());
  for (std::size_t id = 0; id < sums.size(); ++id) {
    sums[id].fetches += counts[id].fetches;
    sums[id].write_backs += counts[id].write_backs;
    sums[id].bytes += counts[id].bytes;
  }
}

int threads_for(const Program& program) {
  if (program.one_thread || omp_in_parallel() != 0) return 1;
  return static_cast<int>(std::clamp<Index>(program.points, 1, threads()));
}

Passed run_points(const Job& job, Index first, Index end, int most) {
  int n = static_cast<int>(std::clamp<Index>(end - first, 1, most));
  const int team_threads = n > 1 ? team_size(job.program, n) : 1;
  n = std::min(n, team_threads);
  // Contiguous chunks reuse blocks from point to point; sixteen a thread even out their costs.
  const Index chunk = n == 1 ? end - first : (end - first) / (Index{16} * n);
  Team team{job, end, std::max<Index>(1, chunk), first, {}, {}};
  team.passed.trace.operands.resize(job.program.operands.size());
  if (team_threads > 1) {
#pragma omp parallel num_threads(team_threads)
    team.work();
  } else {
    team.work();
  }
  return std::move(team.passed);
}

Trace named(const Program& program, Trace trace) {
  std::vector<OperandTrace> out;
  for (std::size_t id = 0; id < program.operands.size(); ++id) {
    const Operand& o = program.operands[id];
    if (o.kind == Kind::kScratch) continue;
    if (o.kind == Kind::kPrefetch && trace.steps > 0) {
      trace.operands[id].fetches = 1;
      trace.operands[id].bytes = o.array.size() * static_cast<Index>(o.element_bytes);
    }
    trace.operands[id].name = o.name;
    out.push_back(std::move(trace.operands[id]));
  }
  trace.operands = std::move(out);
  return trace;
}

Trace run(const Program& program, Body body) {
  const MeterScope unmetered(nullptr);
  Failure failure;
  const VisitTable visits(program, failure);
  Passed passed =
      run_points({program, {}, body, failure, visits}, 0, program.points, threads_for(program));
  failure.rethrow();
  return named(program, std::move(passed.trace));
}

}  // namespace detail
}  // namespace kref
