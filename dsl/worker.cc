// SPDX-License-Identifier: Apache-2.0
#include "dsl/worker.h"

#include <bit>
#include <string_view>
#include <typeinfo>

#include "dsl/overlap.h"

namespace kref::detail {

void Failure::report(Index at, std::exception_ptr what) {
  const std::lock_guard lock(mutex_);
  if (at >= step.load(std::memory_order_relaxed)) return;
  step.store(at, std::memory_order_relaxed);
  error_ = std::move(what);
}

void Failure::rethrow() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

namespace {

bool holds(const View& v, DType type, std::size_t rank, const void* p) {
  BasicArrayRef<const void> block;
  block.dtype = type, block.rank = rank, block.data = v.data;
  for (std::size_t d = 0; d < rank; ++d) {
    block.extents[d] = v.extents[d];
    block.strides[d] = v.strides[d];
  }
  const Reach reach = reach_of("block", block);
  const auto* const start = static_cast<const std::byte*>(v.data);
  return start + reach.begin <= p && p < start + reach.end;
}

// The operand in whose block of this step the memory lies; null: in none.
const Operand* holder(const Program& program, const OperandView* views, const void* p) {
  if (views == nullptr) return nullptr;
  for (std::size_t id = 0; id < program.operands.size(); ++id) {
    const Operand& o = program.operands[id];
    const OperandView& v = views[id];
    const std::size_t rank = o.rank() - o.batches;  // views are without those dimensions
    if ((v.whole_ready && holds(v.whole, o.array.dtype, rank, p)) ||
        (v.inside_ready && holds(v.inside, o.array.dtype, rank, p)))
      return &o;
  }
  return nullptr;
}

// The exception in flight, as the run ends with it. An Error of something that a body or an index
// map calls knows nothing of the grid: it gets grid and step in front, and the operand where a view
// of one was to reach outside of it. What else is derived from Error keeps its type, and our own
// refusals name all that already.
std::exception_ptr located(const Program& program, Index step, const OperandView* views) {
  try {
    throw;
  } catch (const OutsideView& e) {
    const Operand* const o = holder(program, views, e.view);
    const std::string place =
        o != nullptr ? subject(program, *o) : cat("grid '", program.name, "'");
    return std::make_exception_ptr(
        Error(cat(place, ": ", step_text(program, step), ": ", e.what())));
  } catch (const Error& e) {
    const std::string grid = cat("grid '", program.name, "': ");
    if (typeid(e) == typeid(Error) && !std::string_view(e.what()).starts_with(grid))
      return std::make_exception_ptr(Error(cat(grid, step_text(program, step), ": ", e.what())));
  } catch (...) {
  }
  return std::current_exception();
}

}  // namespace

Worker::Worker(const Program& program, const Strictness& strictness, Body body, Failure& failure,
               const VisitTable& visits)
    : program_(program), strictness_(strictness), body_(body), failure_(failure), visits_(visits) {
  const std::size_t n = program.operands.size();
  view_store_.resize(n);
  windows_.resize(n);
  counts_.resize(n);
  for (std::size_t id = 0; id < n; ++id) {
    const Operand& o = program.operands[id];
    OperandView& v = view_store_[id];
    v.whole.extents = o.block.data() + o.batches;
    v.inside.extents = windows_[id].extents.data() + o.batches;
    v.margins = windows_[id].margins.data() + o.batches;
    if (o.kind == Kind::kPrefetch) continue;
    if (o.any_revisit()) windows_[id].seen.resize(static_cast<std::size_t>(o.cell_count()));
    if (o.kind == Kind::kScratch) {
      if (strictness.dry) continue;
      allocate(id);
      v.whole.strides = o.window.data();
      v.whole.data = windows_[id].buffer;
      v.whole_ready = true;
      if (strictness.strict) continue;  // each point begins with poison
      fill_pattern(v.whole.data, o.array.dtype, o.window_size, pattern(id));
    } else {
      moving_.push_back(static_cast<std::uint32_t>(id));
      if (o.even) {
        windows_[id].extents = o.block;
        windows_[id].bytes = o.window_size * static_cast<Index>(o.element_bytes);
      }
      if (o.writes()) outputs_ |= std::uint64_t{1} << id;
    }
  }
  grid_program = &program;
  grid = program.id;
  at = at_.data();
  worker = this;
}

void Worker::start_point(Index point) {
  number = 0;
  ahead_ = point * program_.inner;
  for (std::size_t a = program_.axes.size(); a-- > 0;) {
    const ProgramAxis& axis = program_.axes[a];
    digits_[a] = 0;
    if (axis.parallel) {
      digits_[a] = point % axis.size;
      point /= axis.size;
    }
    at_[a] = digits_[a];
    if (strictness_.order != nullptr && axis.parallel) {
      at_[a] = (*strictness_.order)[a][static_cast<std::size_t>(digits_[a])];
    }
    number += at_[a] * axis.stride;
  }
  ahead_ -= number;
}

// Moves the sequential axes on; returns the set of axes that moved.
std::uint32_t Worker::advance() {
  ++number;
  std::uint32_t moved = 0;
  for (std::size_t a = program_.axes.size(); a-- > 0;) {
    moved |= 1u << a;
    if (++at_[a] < program_.axes[a].size) break;
    at_[a] = 0;
  }
  return moved;
}

// Writes the block index of this step to `block`, which has that of the step before where not all
// axes (bits) moved; returns whether it differs from `before`.
bool Worker::evaluate(const Operand& o, std::uint32_t moved, const Shape<kMaxRank>& before,
                      Shape<kMaxRank>& block) {
  if (o.map.callable != nullptr) {
    views = nullptr;  // an index map sees no blocks
    o.index_of(Step(*this), at, block.data());
    check_block(program_, o, block.data(), number);
    return block != before;
  }
  bool changed = false;
  for (std::size_t d = 0; d < o.rank(); ++d) {
    const AxisExpr& e = o.map.exprs[d];
    const std::uint32_t axis = e.constant() ? 0 : 1u << e.axis();
    if (moved != ~0u && (axis & moved) == 0) continue;
    // A test for divisors would become a division by 1, which is the longest part of a step that
    // stores one number.
    block[d] = (o.plain >> d & 1) != 0 ? at[e.axis()] : e(at);
    changed = changed || block[d] != before[d];
  }
  return changed;
}

void Worker::enter_step(std::uint32_t moved, bool new_point) {
  std::uint64_t changed = 0;
  for (const std::uint32_t id : moving_) {
    const Operand& o = program_.operands[id];
    Window& w = windows_[id];
    if (w.visiting && (o.axes & moved) == 0 && !(new_point && o.own_window)) continue;
    // A new parallel point is a new visit of an output, or of an input that bodies write: it must
    // not find its block there.
    const bool renew = !w.visiting || (new_point && (o.writes() || o.own_window));
    if (evaluate(o, moved, w.block, w.next) || renew) changed |= std::uint64_t{1} << id;
  }
  // All stores of the step before come before the fetches of this one: an output may be aliased to
  // an input.
  for (std::uint64_t rest = changed & outputs_; rest != 0; rest &= rest - 1) {
    leave(static_cast<std::size_t>(std::countr_zero(rest)));
  }
  for (std::uint64_t rest = changed; rest != 0; rest &= rest - 1) {
    enter(static_cast<std::size_t>(std::countr_zero(rest)));
  }
  views = view_store_.data();
}

void Worker::run_points(Index first, Index end) {
  try {
    chunk_start_ = true;
    const Step step(*this);
    for (Index point = first; point < end; ++point) {
      start_point(point);
      if (strictness_.strict) {
        for (std::size_t id = 0; id < windows_.size(); ++id) {
          const Operand& o = program_.operands[id];
          if (o.kind != Kind::kScratch) continue;
          fill_pattern(windows_[id].buffer, o.array.dtype, o.window_size, pattern(id));
        }
      }
      std::uint32_t moved = ~0u;
      for (Index t = 0; t < program_.inner; ++t) {
        if (t > 0) moved = advance();
        if (number + ahead_ >= failure_.step.load(std::memory_order_relaxed)) [[unlikely]]
          break;
        if (failure_.stop != nullptr && failure_.stop->load(std::memory_order_relaxed))
            [[unlikely]] {
          throw Stopped(cat("grid '", program_.name, "': stopped before step ", number));
        }
        enter_step(moved, t == 0);
        chunk_start_ = false;
        if (record != nullptr) record->push_back(number);
        if (body_.call != nullptr) body_.call(body_.object, step);
        ++steps_done_;
        if (strictness_.strict) {
          for (std::size_t id = 0; id < windows_.size(); ++id) check_guards(id);
        }
      }
    }
    leave_all();
  } catch (...) {
    failure_.report(number + ahead_, located(program_, number, views));
  }
}

void Worker::leave_all() {
  for (const std::uint32_t id : moving_) leave(id);
}

// True when the step before this one had the same block, so that the contract's single core would
// not have fetched it again; asked where a thread starts in the middle of the grid.
bool Worker::fetched_by_previous_step(std::size_t id) {
  if (number == 0 || strictness_.order != nullptr) return false;
  const Shape<kMaxAxes> here = at_;
  Shape<kMaxRank> before{};
  program_.coordinates_of(--number, at_.data());
  bool same = false;
  try {
    same = !evaluate(program_.operands[id], ~0u, windows_[id].next, before);
  } catch (...) {
    // Whatever is wrong there is the other thread's to report.
  }
  at_ = here;
  ++number;
  return same;
}

}  // namespace kref::detail
