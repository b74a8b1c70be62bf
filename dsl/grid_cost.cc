// SPDX-License-Identifier: Apache-2.0
// Grid::cost: the grid is gone through once without data for what moves, and once with its body for
// what that computes.
#include "dsl/contents.h"
#include "dsl/grid_run.h"
#include "dsl/work.h"
#include "dsl/work_meter.h"
#include "dsl/worker.h"

namespace kref::detail {
namespace {

// While it lives, verbs of this thread count their work.
class Counting {
 public:
  explicit Counting(Work& work) : before_(counted_work) { counted_work = &work; }
  ~Counting() { counted_work = before_; }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  Work* before_;
};

Trace go_through(const Program& program, const Strictness& strictness, Body body) {
  Failure failure;
  const VisitTable visits(program, failure);
  Worker worker(program, strictness, body, failure, visits);
  worker.run_points(0, program.points);
  failure.rethrow();
  Trace trace;
  trace.steps = worker.steps_done();
  trace.operands = worker.counts();
  return named(program, std::move(trace));
}

}  // namespace

GridCost cost(const Program& program, const Body* body) {
  GridCost out;
  out.operands = go_through(program, {.dry = true}, {}).operands;
  out.steps = program.steps;
  std::size_t moved = 0;  // operands that have an entry in what moves
  for (const OperandTrace& o : out.operands) out.bytes += o.bytes;
  Index operations = static_cast<Index>(program.axes.size()), bytes = 0;  // of a step
  for (const Operand& o : program.operands) {
    const Index window = o.window_size * static_cast<Index>(o.element_bytes);
    if (o.moves()) operations += 4 * static_cast<Index>(o.rank()) + 1;
    if (o.moves() && o.reads()) bytes += window;
    if (o.kind == Kind::kScratch) bytes += 2 * window;
    if (o.writes()) out.block_bytes += out.operands[moved].write_backs * window;
    if (o.kind != Kind::kScratch) ++moved;
  }
  out.index_operations = program.steps * operations;
  out.block_bytes += program.steps * bytes;
  tpu_bytes(program, out.vmem_bytes, out.smem_bytes);
  if (body == nullptr || program.steps == 0) return out;
  const MeterScope unmetered(nullptr);
  const Contents contents = save(program);
  Work work;
  try {
    const Counting counting(work);
    go_through(program, {}, *body);
  } catch (...) {
    restore(program, contents);
    throw;
  }
  restore(program, contents);
  out.flops = work.flops;
  out.product_flops = work.product_flops;
  out.transcendentals = work.transcendentals;
  return out;
}

}  // namespace kref::detail
