// SPDX-License-Identifier: Apache-2.0
// Grid::check. The same steps are run twice from the same arrays, with different poison and in a
// different order of the parallel coordinates; an output bit that differs depended on one of them.
// NaN from legitimate inputs is the same in both and passes; a NaN that a maximum or a comparison
// swallows is found, since the other poison is an ordinary number.
#include <algorithm>
#include <cstring>

#include "dsl/contents.h"
#include "dsl/grid_run.h"
#include "dsl/work_meter.h"
#include "dsl/worker.h"

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
        original_(save(program, kept_)) {}

  Trace run() {
    Trace trace = pass({.strict = true, .in_place = true, .visited = &first_visits_}).trace;
    if (program_.steps == 0) return trace;  // the outputs stay as they are, whatever they held
    expected_ = save(program_, kept_);
    Strictness second{.strict = true, .other = kAllOperands, .compare = ~kept_, .order = &order_};
    std::uint64_t differing = 0;
    const Contents kept = again(second, kept_, &trace.order, &differing);
    for (std::size_t id = 0; id < kept.size(); ++id) {
      check_visited(id);
      if ((differing >> id & 1) == 0 && kept[id] == expected_[id]) continue;
      // Now that there is something to say all is stored and kept.
      expected_ = save(program_);
      second.compare = 0;
      report(id, again(second)[id]);
    }
    return trace;
  }

 private:
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

  struct Passed {
    Trace trace;
    std::uint64_t differing = 0;
  };

  Passed pass(const Strictness& strictness) {
    if (strictness.visited != nullptr) {
      for (const Operand& o : program_.operands) {
        strictness.visited->emplace_back(o.writes() ? static_cast<std::size_t>(o.cell_count()) : 0,
                                         -1);
      }
    }
    Failure failure;
    const VisitTable visits(program_, failure);
    Passed out;
    out.trace.operands.resize(program_.operands.size());
    const bool shared = strictness.order != nullptr && cores_ > 0;
    const Index share = shared ? cdiv(program_.points, cores_) : program_.points;
    for (Index core = 0; core * share < program_.points; ++core) {
      Worker worker(program_, strictness, body_, failure, visits);
      std::vector<Index> steps;
      if (shared) worker.record = &steps;
      worker.run_points(core * share, std::min((core + 1) * share, program_.points));
      failure.rethrow();
      for (const Index step : steps) out.trace.order.push_back({core, step});
      out.trace.steps += worker.steps_done();
      out.trace.operands = worker.counts();
      out.differing |= worker.differing();
    }
    return out;
  }

  // What another pass over the same arrays gives for some of the operands (bits); they keep what
  // the first pass gave.
  Contents again(const Strictness& strictness, std::uint64_t operands = kAllOperands,
                 std::vector<GridPoint>* points = nullptr, std::uint64_t* differing = nullptr) {
    restore(program_, original_);
    try {
      Passed passed = pass(strictness);
      if (points != nullptr) *points = std::move(passed.trace.order);
      if (differing != nullptr) *differing = passed.differing;
    } catch (...) {
      restore(program_, expected_);
      throw;
    }
    Contents out = save(program_, operands);
    restore(program_, expected_);
    return out;
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
  Contents expected_;
  Order first_visits_;
};

}  // namespace

Trace check(const Program& program, Body body, const CheckOptions& options) {
  const MeterScope unmetered(nullptr);
  return named(program, Checker(program, body, options).run());
}

}  // namespace kref::detail
