// SPDX-License-Identifier: Apache-2.0
// Which operands share memory, and whether they may.
#include <algorithm>
#include <cstdlib>

#include "dsl/overlap.h"
#include "dsl/program.h"

namespace kref::detail {
namespace {

void check_distinct_elements(const Program& program, const Operand& o) {
  const MutableArrayRef& a = o.array;
  std::vector<std::size_t> dims;  // of extent above 1, the smallest stride first
  for (std::size_t d = 0; d < a.rank; ++d) {
    if (a.extents[d] > 1) dims.push_back(d);
  }
  std::ranges::sort(dims, {}, [&](std::size_t d) { return std::abs(a.strides[d]); });
  Index reach = 0;  // of the dimensions with smaller strides, in elements
  for (const std::size_t d : dims) {
    const Index stride = std::abs(a.strides[d]);
    KREF_CHECK(stride > reach, subject(program, o), ": dimension ", d, " of the array has stride ",
               a.strides[d], ", so that different elements share memory");
    reach += stride * (a.extents[d] - 1);
  }
}

bool same_strides(const MutableArrayRef& a, const MutableArrayRef& b) {
  if (a.rank != b.rank) return false;
  for (std::size_t d = 0; d < a.rank; ++d) {
    if (a.strides[d] != b.strides[d] && (a.extents[d] > 1 || b.extents[d] > 1)) return false;
  }
  return true;
}

// One of the two is written, and both have elements.
void check_pair(Program& program, std::size_t first, std::size_t second) {
  Operand &a = program.operands[first], &b = program.operands[second];
  if (!overlap(a.array, b.array)) return;
  const Operand& writer = b.writes() ? b : a;
  const Operand& other = b.writes() ? a : b;
  const auto pair = [&] {
    return cat(subject(program, writer), " is aliased to '", other.name, "': ");
  };
  KREF_CHECK(other.kind != Kind::kPrefetch, subject(program, writer), " has the memory of table '",
             other.name, "': a table stays as it is, expected another array");
  KREF_CHECK(a.array.data == b.array.data, subject(program, writer), " overlaps a part of '",
             other.name, "', expected the same array or another one");
  KREF_CHECK(!(a.writes() && b.writes()), subject(program, writer), " has the memory of '",
             other.name, "', and both are written");
  KREF_CHECK(writer.array.dtype == other.array.dtype, pair(), "its element type is ",
             name_of(writer.array.dtype), ", expected ", name_of(other.array.dtype));
  KREF_CHECK(std::ranges::equal(writer.array.shape(), other.array.shape()), pair(), "its shape is ",
             shape_string(writer.array.shape()), ", expected ", shape_string(other.array.shape()));
  KREF_CHECK(same_strides(a.array, b.array), pair(), "its strides differ");
  // The same view: windows of their own give the contract's order.
  a.copies = b.copies = true;
  program.aliases.push_back(b.writes() ? Alias{second, first} : Alias{first, second});
}

}  // namespace

void check_memory(Program& program) {
  const auto& operands = program.operands;
  program.aliases.clear();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& a = operands[i];
    if (a.kind == Kind::kScratch || a.array.size() == 0) continue;
    if (a.writes()) check_distinct_elements(program, a);
    for (std::size_t j = 0; j < i; ++j) {
      const Operand& b = operands[j];
      if (b.kind == Kind::kScratch || b.array.size() == 0) continue;
      if (a.writes() || b.writes()) check_pair(program, j, i);
    }
  }
}

}  // namespace kref::detail
