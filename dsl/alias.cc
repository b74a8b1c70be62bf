// SPDX-License-Identifier: Apache-2.0
// An output aliased to an input: which coordinates of the parallel axes may touch the same
// elements. Steps of one point follow one another and may read what earlier ones stored; points run
// side by side, so that what one writes no other may read.
#include <algorithm>

#include "dsl/program.h"

namespace kref::detail {
namespace {

// Where the blocks of an operand start in one dimension, in elements, for the coordinates of the
// axis that decides it.
class Starts {
 public:
  Starts(const Program& program, const Operand& o, std::size_t d)
      : expr_(o.map.exprs[d]),
        block_(o.block[d]),
        unit_(o.unit[d]),
        low_(o.low[d]),
        size_(expr_.constant() ? 1 : program.axes[static_cast<std::size_t>(expr_.axis())].size) {}

  Index size() const { return size_; }
  Index block() const { return block_; }
  Index at(Index coordinate) const {
    Shape<kMaxAxes> at{};
    if (!expr_.constant()) at[static_cast<std::size_t>(expr_.axis())] = coordinate;
    return expr_(at.data()) * unit_ - low_;
  }

 private:
  const AxisExpr& expr_;
  Index block_, unit_, low_, size_;
};

// True when no block of `reader` meets one of `writer` in that dimension: at all, or, where both
// take their index from one axis, at different coordinates of it.
bool apart(const Program& program, const Operand& writer, const Operand& reader, std::size_t d,
           bool same_coordinate_may_meet) {
  constexpr Index kMost = Index{1} << 20;  // coordinates worth a look
  const Starts written(program, writer, d), read(program, reader, d);
  if (written.size() > kMost || read.size() > kMost) return false;
  std::vector<std::pair<Index, Index>> sorted;  // start of a written block, its coordinate
  sorted.reserve(static_cast<std::size_t>(written.size()));
  for (Index c = 0; c < written.size(); ++c) sorted.emplace_back(written.at(c), c);
  std::ranges::sort(sorted);
  for (Index c = 0; c < read.size(); ++c) {
    const Index begin = read.at(c), end = begin + read.block();
    auto it = std::ranges::upper_bound(sorted, begin - written.block(), {},
                                       &std::pair<Index, Index>::first);
    for (; it != sorted.end() && it->first < end; ++it) {
      if (!(same_coordinate_may_meet && it->second == c)) return false;
    }
  }
  return true;
}

// True when steps at different coordinates of a parallel axis never meet. The writer's index is
// injective along the axis (check_visits), so the same expressions and extents are enough.
bool apart_along(const Program& program, const Operand& writer, const Operand& reader, int axis) {
  bool same = true;
  for (std::size_t d = 0; d < writer.rank(); ++d) {
    if (writer.map.exprs[d].axis() != axis) continue;
    same =
        same && writer.map.exprs[d].same(reader.map.exprs[d]) && writer.block[d] == reader.block[d];
  }
  if (same) return true;
  for (std::size_t d = 0; d < writer.rank(); ++d) {
    if (writer.map.exprs[d].axis() == axis && reader.map.exprs[d].axis() == axis &&
        apart(program, writer, reader, d, true)) {
      return true;
    }
  }
  return false;
}

bool never_meet(const Program& program, const Operand& writer, const Operand& reader) {
  for (std::size_t d = 0; d < writer.rank(); ++d) {
    if (apart(program, writer, reader, d, false)) return true;
  }
  return false;
}

}  // namespace

void check_aliases(Program& program) {
  for (const Alias& alias : program.aliases) {
    const Operand &writer = program.operands[alias.writer],
                  &reader = program.operands[alias.reader];
    if (writer.map.callable != nullptr || reader.map.callable != nullptr) {
      program.one_thread = true;
      continue;
    }
    for (std::size_t a = 0; a < program.axes.size() && program.axes[a].parallel; ++a) {
      if (program.axes[a].size == 1 || apart_along(program, writer, reader, static_cast<int>(a))) {
        continue;
      }
      if (never_meet(program, writer, reader)) break;  // along no axis
      throw Error(cat(subject(program, writer), " is aliased to '", reader.name,
                      "', and along parallel axis '", program.axes[a].name,
                      "' one coordinate would read what another one writes: the index of '",
                      writer.name, "' is ", index_text(writer), " in blocks of ",
                      shape_string({writer.block.data(), writer.rank()}), ", that of '",
                      reader.name, "' ", index_text(reader), " in blocks of ",
                      shape_string({reader.block.data(), reader.rank()}),
                      ", expected the same, a sequential axis, or an in_out operand"));
    }
  }
}

}  // namespace kref::detail
