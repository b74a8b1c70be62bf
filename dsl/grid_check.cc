// SPDX-License-Identifier: Apache-2.0
// Grid::check. The same steps are run twice from the same arrays, with different poison and in a
// different order of the parallel coordinates; an output bit that differs depended on one of them.
// NaN from legitimate inputs is the same in both and passes; a NaN that a maximum or a comparison
// swallows is found, since the other poison is an ordinary number.
//
// Each pass runs on the threads that a run would have. A body that carries something captured from
// one point of the parallel axes to another would then be a race instead of a finding: so the first
// points are run twice on one thread, and where they differ, and wherever there is something to
// report, all that follows is on one thread too. What only later points carry on is the race here
// that it is in a run, and mostly still a finding.
#include <algorithm>
#include <cstring>

#include "dsl/contents.h"
#include "dsl/grid_run.h"
#include "dsl/team.h"
#include "dsl/work_meter.h"

namespace kref::detail {
namespace {

using Order = std::vector<std::vector<Index>>;

// A seeded permutation of each parallel axis, never the identity where there is another.
Order permuted(const Program& program, std::uint64_t seed) {
  Order order;
  const auto next = [&seed] {  // splitmix64
    std::uint64_t z = (seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  for (const ProgramAxis& a : program.axes) {
    std::vector<Index>& p = order.emplace_back();
    if (!a.parallel) continue;
    p.resize(static_cast<std::size_t>(a.size));
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<Index>(i);
    for (std::size_t i = p.size(); i > 1; --i) std::swap(p[i - 1], p[next() % i]);
    if (p.size() > 1 && std::ranges::is_sorted(p)) std::rotate(p.begin(), p.begin() + 1, p.end());
  }
  return order;
}

class Checker {
 public:
  Checker(const Program& program, Body body, const CheckOptions& options)
      : program_(program),
        body_(body),
        cores_(options.cores),
        order_(permuted(program, options.seed)),
        kept_(kept_of(program)),
        original_(save(program, kept_)),
        visits_(program, failure_) {
    const bool worth = program.points >= kLeastPoints && program.steps > 0;
    if (worth && failure_.step == Failure::kNone) threads_ = threads_for(program);
  }

  Trace run() {
    Trace trace = first_pass();
    if (program_.steps == 0) return trace;  // the outputs stay as they are, whatever they held
    expected_ = save(program_, kept_);
    Strictness second{.strict = true, .other = kAllOperands, .compare = ~kept_, .order = &order_};
    Passed passed;
    const Contents kept = again([&] { passed = pass(second); }, kept_);
    trace.order = std::move(passed.trace.order);
    for (std::size_t id = 0; id < kept.size(); ++id) {
      check_visited(id);
      if ((passed.differing >> id & 1) == 0 && kept[id] == expected_[id]) continue;
      // Now that there is something to say all is stored and kept.
      threads_ = 1;
      expected_ = save(program_);
      second.compare = 0;
      report(id, again(second)[id]);
    }
    return trace;
  }

 private:
  // How many points are tried on one thread, and how many there must be for the trial, which adds
  // as many to the second pass, to cost less than two threads save.
  static constexpr Index kTried = 2, kLeastPoints = 8;

  // Outputs (bits) of which a second pass must find what the first one found: those that are read.
  // The others are held against what the first pass left.
  static std::uint64_t kept_of(const Program& program) {
    std::uint64_t kept = 0;
    for (std::size_t id = 0; id < program.operands.size(); ++id) {
      const Operand& o = program.operands[id];
      if (o.kind == Kind::kInOut || o.copies || o.any_revisit()) kept |= std::uint64_t{1} << id;
    }
    return kept;
  }

  // The steps in order, which leave their outputs in the arrays.
  Trace first_pass() {
    const Strictness in_order{.strict = true, .in_place = true, .visited = &first_visits_};
    Trace trace;
    const Index tried = threads_ > 1 ? kTried : 0;
    forget_visits();
    if (tried > 0) {
      trace = pass(in_order, failure_, 0, tried, 1).trace;
      expected_ = save(program_, kept_);
      if (!same_again(tried)) {
        threads_ = 1;
        restore(program_, original_);
        return first_pass();
      }
    }
    const Trace rest = pass(in_order, failure_, tried, program_.points, threads_).trace;
    trace.steps += rest.steps;
    add_counts(rest.operands, trace.operands);
    return trace;
  }

  // Do the first points give the same in the other order, with the other poison? An exception is
  // no answer: it comes again, where its turn is.
  bool same_again(Index points) {
    const Strictness other{.strict = true, .other = kAllOperands, .compare = ~kept_};
    std::uint64_t differing = 0;
    const auto backwards = [&] {
      Failure failure;
      Worker worker(program_, other, body_, failure, visits_);
      for (Index point = points; point-- > 0;) worker.run_points(point, point + 1);
      failure.rethrow();
      differing = worker.differing();
    };
    try {
      return again(backwards, kept_) == expected_ && differing == 0;
    } catch (...) {
      return false;
    }
  }

  void forget_visits() {
    first_visits_.clear();
    for (const Operand& o : program_.operands) {
      first_visits_.emplace_back(o.writes() ? static_cast<std::size_t>(o.cell_count()) : 0, -1);
    }
  }

  Passed pass(const Strictness& strictness, Failure& failure, Index first, Index end, int most) {
    Passed out = run_points({program_, strictness, body_, failure, visits_}, first, end, most);
    failure.rethrow();
    return out;
  }

  // All points, in the order of `strictness`.
  Passed pass(const Strictness& strictness) {
    Failure failure;
    if (strictness.order == nullptr || cores_ == 0)
      return pass(strictness, failure, 0, program_.points, threads_);
    Passed out;
    const Index share = cdiv(program_.points, cores_);
    for (Index core = 0; core * share < program_.points; ++core) {
      Worker worker(program_, strictness, body_, failure, visits_);
      std::vector<Index> steps;
      worker.record = &steps;
      worker.run_points(core * share, std::min((core + 1) * share, program_.points));
      failure.rethrow();
      for (const Index step : steps) out.trace.order.push_back({core, step});
      out.differing |= worker.differing();
    }
    return out;
  }

  // What `steps`, run over the same arrays, give for some of the operands (bits); they keep what is
  // expected of them.
  template <class F>
  Contents again(const F& steps, std::uint64_t operands) {
    restore(program_, original_);
    try {
      steps();
    } catch (...) {
      restore(program_, expected_);
      throw;
    }
    Contents out = save(program_, operands);
    restore(program_, expected_);
    return out;
  }
  Contents again(const Strictness& strictness) {
    return again([&] { pass(strictness); }, kAllOperands);
  }

  // An output that shares memory with an input keeps the input's blocks where it is not visited.
  void check_visited(std::size_t id) const {
    const Operand& o = program_.operands[id];
    if (o.kind != Kind::kOut || o.copies) return;
    const auto& visited = first_visits_[id];
    const auto missing = std::ranges::find(visited, Index{-1});
    if (missing == visited.end()) return;
    Shape<kMaxRank> block{};
    Index rest = missing - visited.begin();
    for (std::size_t d = o.rank(); d-- > 0;) {
      block[d] = rest % o.cells[d];
      rest /= o.cells[d];
    }
    throw Error(cat(subject(program_, o), o.elements == 0 ? ": block " : ": cell ",
                    block_text(o, block.data()), " is visited by no step, ",
                    o.elements == 0 ? "its elements are" : "it is", " undefined"));
  }

  // Names the lowest element that differs, and whose poison it depends on: one operand after the
  // other is given the other poison alone.
  [[noreturn]] void report(std::size_t id, const SavedArray& second) {
    const Operand& o = program_.operands[id];
    const std::size_t size = o.element_bytes;
    std::size_t element = 0, count = 0;
    for (std::size_t i = second.size / size; i-- > 0;) {
      if (std::memcmp(second.data() + i * size, expected_[id].data() + i * size, size) == 0)
        continue;
      element = i;
      ++count;
    }
    KREF_CHECK(count > 0, subject(program_, o),
               ": the same step gives one thing and then another: "
               "the body depends on something that changes from call to call");
    const auto differs = [&](const Contents& c) {
      return std::memcmp(c[id].data() + element * size, expected_[id].data() + element * size,
                         size) != 0;
    };
    const std::string where = place(id, element);
    const std::string more =
        count == 1 ? "" : cat(" (", count - 1, " more ", count == 2 ? "differs)" : "differ)");
    const auto failure = [&](const std::string& what) { return Error(where + what + more); };
    if (differs(again({.strict = true, .order = &order_}))) {
      throw failure(
          "depends on the order of the parallel coordinates: something is carried from one to "
          "another");
    }
    for (std::size_t source = 0; source < program_.operands.size(); ++source) {
      const Contents changed = again({.strict = true, .other = std::uint64_t{1} << source});
      if (!differs(changed)) continue;
      const Operand& from = program_.operands[source];
      if (source == id && holds(expected_[id], element, o, Pattern::kPoison) &&
          holds(changed[id], element, o, Pattern::kOther)) {
        throw failure(cat("is never written: an output's block starts as poison",
                          o.copies ? ", also when aliased to an input" : "",
                          "; in_out is the operand that starts with the array's contents"));
      }
      throw failure(cat("depends on poison in '", from.name, "': ",
                        from.reads() ? "the part of an edge block outside the array is read"
                                     : "elements are read that no step had written",
                        from.kind == Kind::kScratch && program_.points > 1
                            ? " since a parallel axis moved"
                            : ""));
    }
    throw failure("depends on poison: something uninitialised is read");
  }

  static bool holds(const SavedArray& array, std::size_t element, const Operand& o,
                    Pattern pattern) {
    return is_pattern(array.data() + element * o.element_bytes, o.array.dtype, pattern);
  }

  // "grid 'g': output 'z': element (3,5) of block (1,0), visited from step 4 (i=1, j=0), ".
  std::string place(std::size_t id, std::size_t element) const {
    const Operand& o = program_.operands[id];
    Shape<kMaxRank> at{}, block{};
    auto rest = static_cast<Index>(element);
    Index cell = 0;
    for (std::size_t d = o.rank(); d-- > 0;) {
      at[d] = rest % o.array.extents[d];
      rest /= o.array.extents[d];
      block[d] = (o.elements >> d & 1) != 0 ? at[d] : at[d] / o.block[d];
    }
    for (std::size_t d = 0; d < o.rank(); ++d) cell = cell * o.cells[d] + block[d];
    const Index step = first_visits_[id][static_cast<std::size_t>(cell)];
    return cat(subject(program_, o), ": element ", block_text(o, at.data()),
               o.elements == 0 ? cat(" of block ", block_text(o, block.data())) : "", ", ",
               step < 0 ? std::string() : cat("visited from ", step_text(program_, step), ", "));
  }

  const Program& program_;
  const Body body_;
  const Index cores_;
  const Order order_;
  const std::uint64_t kept_;
  const Contents original_;
  Failure failure_;  // of the first pass, and of what is known before it
  const VisitTable visits_;
  int threads_ = 1;
  Contents expected_;
  Order first_visits_;
};

}  // namespace

Trace check(const Program& program, Body body, const CheckOptions& options) {
  const MeterScope unmetered(nullptr);
  return named(program, Checker(program, body, options).run());
}

}  // namespace kref::detail
