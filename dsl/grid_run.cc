// SPDX-License-Identifier: Apache-2.0
#include "dsl/grid_run.h"

#include <omp.h>

#include <algorithm>

#include "dsl/threads.h"
#include "dsl/work_meter.h"
#include "dsl/worker.h"

namespace kref {

namespace detail {

namespace {

// What the threads of one run share.
struct Team {
  Team(const Program& p, Body b) : program(p), body(b), visits(p, failure) {
    trace.operands.resize(p.operands.size());
  }

  // One thread's part: takes the chunks that are left, in order. Does not throw.
  void work() {
    try {
      Index first = next.fetch_add(1) * chunk;
      if (first >= program.points) return;  // nothing left: no windows either
      Worker worker(program, {}, body, failure, visits);
      for (; first < program.points; first = next.fetch_add(1) * chunk) {
        if (first * program.inner >= failure.step) break;
        worker.run_points(first, std::min(first + chunk, program.points));
      }
      const std::lock_guard lock(mutex);
      trace.steps += worker.steps_done();
      for (std::size_t id = 0; id < trace.operands.size(); ++id) {
        const OperandTrace& count = worker.counts()[id];
        trace.operands[id].fetches += count.fetches;
        trace.operands[id].write_backs += count.write_backs;
        trace.operands[id].bytes += count.bytes;
      }
    } catch (...) {
      failure.report(-1, std::current_exception());  // no memory for a worker: no step had begun
    }
  }

  const Program& program;
  const Body body;
  Failure failure;
  const VisitTable visits;
  Index chunk = 1;
  std::atomic<Index> next{0};
  std::mutex mutex;
  Trace trace;
};

}  // namespace

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
  Team team(program, body);
  int n = static_cast<int>(std::clamp<Index>(program.points, 1, threads()));
  if (program.one_thread || omp_in_parallel() != 0) n = 1;
  const int team_threads = n > 1 ? team_size(program, n) : 1;
  n = std::min(n, team_threads);
  // Contiguous chunks reuse blocks from point to point; sixteen a thread even out their costs.
  team.chunk = std::max<Index>(1, n == 1 ? program.points : program.points / (Index{16} * n));
  if (team_threads > 1) {
#pragma omp parallel num_threads(team_threads)
    team.work();
  } else {
    team.work();
  }
  team.failure.rethrow();
  return named(program, std::move(team.trace));
}

}  // namespace detail
}  // namespace kref
