// SPDX-License-Identifier: Apache-2.0
// The rules about block indices: in range, and output blocks visited in one run of steps.
#include <map>

#include "dsl/program.h"

namespace kref::detail {

void check_block(const Program& program, const Operand& operand, const Index* block, Index step) {
  for (std::size_t d = 0; d < operand.rank(); ++d) {
    if (block[d] >= 0 && block[d] < operand.blocks[d]) [[likely]]
      continue;
    Index start = 0, end = 0;
    const bool element = (operand.elements >> d & 1) != 0;
    const bool fits = !__builtin_mul_overflow(block[d], operand.unit[d], &start) &&
                      !__builtin_sub_overflow(start, operand.low[d], &start) &&
                      !__builtin_add_overflow(start, operand.block[d], &end);
    throw Error(cat(subject(program, operand), ": block ", block_text(operand, block), " of ",
                    step_text(program, step), " is out of range: dimension ", d,
                    element ? " has windows that start at 0:" : " has blocks 0:", operand.blocks[d],
                    fits ? cat(", elements ", start, ':', end) : "", ", extent ",
                    operand.array.extents[d]));
  }
}

namespace {

using Tuple = std::array<Index, kMaxRank>;  // the parts of a block index that one axis decides

// The visits of an output, seen one axis at a time. An index map given as data takes each number
// from one axis, so a block index is a tuple of independent parts, one for each axis.
class Visits {
 public:
  Visits(const Program& program, const Operand& operand) : program_(program), operand_(operand) {}

  Tuple part(std::size_t axis, Index c) const {
    Shape<kMaxAxes> at{};
    at[axis] = c;
    Tuple out{};
    for (std::size_t d = 0; d < operand_.rank(); ++d) {
      const AxisExpr& e = operand_.map.exprs[d];
      if (e.axis() == static_cast<int>(axis)) out[d] = e(at.data());
    }
    return out;
  }

  // The lowest coordinate with the same part as an earlier one, and that one; {-1, -1} if there is
  // none. Repeats that follow one another do not count where `runs` are allowed.
  std::pair<Index, Index> repeat(std::size_t axis, bool runs) const {
    const Index size = program_.axes[axis].size;
    bool monotone = true;
    for (std::size_t d = 0; d < operand_.rank(); ++d) {
      const AxisExpr& e = operand_.map.exprs[d];
      if (e.axis() != static_cast<int>(axis)) continue;
      if (e.injective()) return {-1, -1};
      monotone = monotone && e.monotone();
    }
    if (monotone && runs) return {-1, -1};
    if (monotone) {
      for (Index c = 1; c < size; ++c) {
        if (part(axis, c) == part(axis, c - 1)) return {c - 1, c};
      }
      return {-1, -1};
    }
    std::map<Tuple, Index> seen;  // to the last coordinate of that part
    for (Index c = 0; c < size; ++c) {
      const auto [it, fresh] = seen.try_emplace(part(axis, c), c);
      if (!fresh && !(runs && it->second == c - 1)) return {it->second, c};
      it->second = c;
    }
    return {-1, -1};
  }

  bool constant(std::size_t axis) const {
    const Index size = program_.axes[axis].size;
    if (size == 1 || (operand_.axes >> axis & 1) == 0) return true;
    for (Index c = 1; c < size; ++c) {
      if (part(axis, c) != part(axis, 0)) return false;
    }
    return true;
  }

 private:
  const Program& program_;
  const Operand& operand_;
};

void block_at(const Program& program, const Operand& operand, Index step, Index* block) {
  Shape<kMaxAxes> at{};
  program.coordinates_of(step, at.data());
  for (std::size_t d = 0; d < operand.rank(); ++d) block[d] = operand.map.exprs[d](at.data());
}

}  // namespace

// They are where each axis has a dimension in which its neighbouring coordinates start a window or
// more apart.
bool apart_windows(const Program& program, const Operand& operand) {
  if (operand.elements == 0) return true;
  for (std::size_t a = 0; a < program.axes.size(); ++a) {
    if (program.axes[a].size == 1 || (operand.axes >> a & 1) == 0) continue;
    bool apart = false;
    for (std::size_t d = 0; d < operand.rank(); ++d) {
      const AxisExpr& e = operand.map.exprs[d];
      if (e.axis() != static_cast<int>(a) || !e.injective()) continue;
      Shape<kMaxAxes> at{};
      const Index first = e(at.data());
      at[a] = 1;
      const Index step = (e(at.data()) - first) * operand.unit[d];
      apart = apart || step >= operand.block[d] || -step >= operand.block[d];
    }
    if (!apart) return false;
  }
  return true;
}

// A run of equal block indices must be the only one of that block. Let L be the last axis on which
// the index depends. Two coordinates of an earlier axis with the same part give the same blocks,
// with other blocks (of L) between them: every earlier axis must be injective. On L itself equal
// parts must follow one another. Axes after L stay within a run. A parallel axis must be injective
// wherever it stands: its coordinates must not share a block.
void check_visits(const Program& program, const Operand& operand) {
  const Visits visits(program, operand);
  const std::size_t n = program.axes.size();
  for (std::size_t a = 0; a < n && program.axes[a].parallel; ++a) {
    const ProgramAxis& axis = program.axes[a];
    if (axis.size == 1) continue;
    const bool ignored = (operand.axes >> a & 1) == 0;
    const auto [before, again] = ignored ? std::pair<Index, Index>(0, 1) : visits.repeat(a, false);
    if (again < 0) continue;
    Shape<kMaxRank> block{};
    const Index step = again * axis.stride;
    block_at(program, operand, step, block.data());
    const std::string where =
        cat("block ", block_text(operand, block.data()), " of ", step_text(program, step),
            " is that of ", step_text(program, before * axis.stride), " as well");
    KREF_CHECK(!ignored, subject(program, operand), " ignores parallel axis '", axis.name,
               "': ", where, "; name it in the index map or make it sequential");
    throw Error(cat(subject(program, operand), " shares a block between coordinates ", before,
                    " and ", again, " of parallel axis '", axis.name, "': ", where));
  }

  if (operand.any_revisit()) return;
  std::size_t last = n;
  for (std::size_t a = n; a-- > 0 && last == n;) {
    if (!visits.constant(a)) last = a;
  }
  if (last == n) return;
  Index step = program.steps, previous = 0;
  for (std::size_t a = 0; a <= last; ++a) {
    const ProgramAxis& axis = program.axes[a];
    if (axis.size == 1) continue;
    const auto [before, again] = visits.repeat(a, a == last);
    if (again < 0 || again * axis.stride >= step) continue;
    step = again * axis.stride;
    previous = before * axis.stride;
  }
  if (step == program.steps) return;
  Shape<kMaxRank> block{}, other{};
  block_at(program, operand, step, block.data());
  Index end = previous;
  do {
    block_at(program, operand, ++end, other.data());
  } while (other == block);
  throw Error(cat(subject(program, operand), ": block ", block_text(operand, block.data()), " of ",
                  step_text(program, step), " was left before: it was visited in ",
                  end - 1 == previous ? step_text(program, previous)
                                      : cat("steps ", previous, " through ", end - 1),
                  ", and an output block is visited in consecutive steps"));
}

}  // namespace kref::detail
