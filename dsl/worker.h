// SPDX-License-Identifier: Apache-2.0
// Worker: one thread's way through a grid, with its windows and scratch. Internal to dsl/.
#pragma once

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>

#include "dsl/poison.h"
#include "dsl/program.h"
#include "dsl/thread_share.h"

namespace kref::detail {

// The error of the step that comes first, whichever thread meets it first. Made by the thread that
// runs the grid.
struct Failure {
  static constexpr Index kNone = std::numeric_limits<Index>::max();
  std::atomic<Index> step{kNone};  // its place in the order of the run
  // When whoever runs the grid is to stop; null: never.
  const std::atomic<bool>* const stop = stop_signal();

  void report(Index at, std::exception_ptr what);
  // After all threads are done.
  void rethrow();

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

// The visits of the outputs whose index map is a callable, or whose Element windows are not told
// apart by their expressions, found before the first body runs. A body must never work on a block
// that the body of another visit may hold, so that a fault must be known before either of them
// starts.
class VisitTable {
 public:
  // Goes through all steps in order. The first one at which a map throws, names no block or comes
  // back to a block is reported to `failure`: neither it nor a later one is to run.
  VisitTable(const Program& program, Failure& failure);
  static bool counts(const Operand& o) { return o.writes() && o.tabled; }
  // The step at which the (first) visit of that cell of an operand that counts begins; -1: none.
  Index begin(std::size_t operand, Index cell) const {
    return begins_[operand][static_cast<std::size_t>(cell)];
  }

 private:
  std::vector<std::vector<Index>> begins_;
};

struct Strictness {
  bool strict = false;        // copy every window, scratch anew at each parallel point
  bool in_place = false;      // but not those of inputs
  bool dry = false;           // count what would move, and leave arrays and bodies alone
  std::uint64_t other = 0;    // operands (bits) that take Pattern::kOther where they are poison
  std::uint64_t compare = 0;  // outputs (bits) that are held against their arrays, not stored
  const std::vector<std::vector<Index>>* order = nullptr;  // of each axis' coordinates; null: as is
  // Of each output: the step in which each cell was come to first, -1 where none; null: not wanted.
  std::vector<std::vector<Index>>* visited = nullptr;
};

// One operand's current block.
struct Window {
  Shape<kMaxRank> block{};      // its index
  Shape<kMaxRank> next{};       // that of the step being prepared
  Shape<kMaxRank> extents{};    // of the part inside the array
  Shape<kMaxRank> margins{};    // of the block before that part
  Index margin = 0;             // the same in elements of a copied block
  Index bytes = 0;              // of that part
  std::byte* origin = nullptr;  // its first element in the array
  bool visiting = false;
  bool edge = false;
  bool copied = false;     // the data is in the buffer
  bool touched = false;    // out: the block holds poison or what was written, no stale data
  std::vector<bool> seen;  // Revisit::kAny: cells that were visited
  Bytes memory;
  std::byte* buffer = nullptr;
};

class Worker : public StepData {
 public:
  Worker(const Program& program, const Strictness& strictness, Body body, Failure& failure,
         const VisitTable& visits);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs the points first..end-1 with all their steps; stops early when an earlier step failed.
  // Never throws: errors go to the failure.
  void run_points(Index first, Index end);

  void make_whole(std::size_t id);
  void make_inside(std::size_t id);
  // Per operand, in the order of the program.
  const std::vector<OperandTrace>& counts() const { return counts_; }
  Index steps_done() const { return steps_done_; }
  // The numbers of the steps done, in order, where that was asked for.
  std::vector<Index>* record = nullptr;
  // Outputs (bits) that were compared and differ.
  std::uint64_t differing() const { return differing_; }

 private:
  void start_point(Index point);
  std::uint32_t advance();
  void enter_step(std::uint32_t moved, bool new_point);
  bool evaluate(const Operand& o, std::uint32_t moved, const Shape<kMaxRank>& before,
                Shape<kMaxRank>& block);
  void visit(std::size_t id);
  void enter(std::size_t id);
  static void locate(const Operand& o, Window& w);
  void leave(std::size_t id);
  void leave_all();
  void copy_in(std::size_t id);
  void touch(std::size_t id);
  bool fetched_by_previous_step(std::size_t id);
  bool come_back(std::size_t id);
  void allocate(std::size_t id);
  Pattern pattern(std::size_t id) const {
    return (strictness_.other >> id & 1) != 0 ? Pattern::kOther : Pattern::kPoison;
  }
  void check_guards(std::size_t id);

  const Program& program_;
  const Strictness strictness_;
  const Body body_;
  Failure& failure_;
  const VisitTable& visits_;
  Shape<kMaxAxes> digits_{};  // coordinates before permutation
  Shape<kMaxAxes> at_{};
  std::vector<OperandView> view_store_;
  std::vector<Window> windows_;
  std::vector<OperandTrace> counts_;
  std::vector<std::uint32_t> moving_;  // ids of in, out, in_out
  std::uint64_t outputs_ = 0;          // ids of out, in_out, as bits
  std::uint64_t differing_ = 0;
  Index steps_done_ = 0;
  Index ahead_ = 0;  // of a step's number: its place in the order of the run
  bool chunk_start_ = false;
};

}  // namespace kref::detail
