// SPDX-License-Identifier: Apache-2.0
// Which operands share memory, and whether they may.
#include <algorithm>
#include <cstdlib>

#include "dsl/program.h"

namespace kref::detail {
namespace {

// First byte and the one after the last.
struct Span {
  std::uintptr_t begin, end;
};

Span span_of(const MutableArrayRef& a) {
  auto begin = reinterpret_cast<std::uintptr_t>(a.data), end = begin;
  if (a.size() == 0) return {begin, begin};
  const auto element = static_cast<Index>(size_of(a.dtype));
  for (std::size_t d = 0; d < a.rank; ++d) {
    const Index reach = (a.extents[d] - 1) * a.strides[d] * element;
    (reach < 0 ? begin : end) += static_cast<std::uintptr_t>(reach);
  }
  return {begin, end + static_cast<std::uintptr_t>(element)};
}

// Dimensions of extent above 1, the largest stride first.
std::vector<std::size_t> by_stride(const MutableArrayRef& a) {
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < a.rank; ++d) {
    if (a.extents[d] > 1) dims.push_back(d);
  }
  std::sort(dims.begin(), dims.end(), [&](std::size_t x, std::size_t y) {
    return std::abs(a.strides[x]) > std::abs(a.strides[y]);
  });
  return dims;
}

void check_distinct_elements(const Program& program, const Operand& o) {
  Index reach = 0;  // of the dimensions with smaller strides, in elements
  std::vector<std::size_t> dims = by_stride(o.array);
  std::reverse(dims.begin(), dims.end());
  for (const std::size_t d : dims) {
    const Index stride = std::abs(o.array.strides[d]);
    KREF_CHECK(stride > reach, subject(program, o), ": dimension ", d, " of the array has stride ",
               o.array.strides[d], ", so that different elements share memory");
    reach += stride * (o.array.extents[d] - 1);
  }
}

bool same_strides(const MutableArrayRef& a, const MutableArrayRef& b) {
  if (a.rank != b.rank) return false;
  for (std::size_t d = 0; d < a.rank; ++d) {
    if (a.strides[d] != b.strides[d] && (a.extents[d] > 1 || b.extents[d] > 1)) return false;
  }
  return true;
}

// Whether two views with the same strides have an element in common: whether
// sum(stride[d] * e[d]) = delta for some e[d] in -(extent of b - 1) .. extent of a - 1.
bool meet(const MutableArrayRef& a, const MutableArrayRef& b, const std::vector<std::size_t>& dims,
          std::size_t from, Index delta) {
  if (from == dims.size()) return delta == 0;
  Index below = 0, above = 0;  // what the later dimensions can contribute
  for (std::size_t i = from + 1; i < dims.size(); ++i) {
    const std::size_t d = dims[i];
    const Index stride = std::abs(a.strides[d]);
    const bool up = a.strides[d] >= 0;
    below += stride * ((up ? b : a).extents[d] - 1);
    above += stride * ((up ? a : b).extents[d] - 1);
  }
  const std::size_t d = dims[from];
  const Index stride = a.strides[d];
  if (stride == 0) return meet(a, b, dims, from + 1, delta);
  // Few e leave a rest within reach; the bounds are widened by 1 for the roundings of `/`.
  const Index size = std::abs(stride), sign = stride > 0 ? 1 : -1;
  const Index low = sign > 0 ? -(b.extents[d] - 1) : -(a.extents[d] - 1);
  const Index high = sign > 0 ? a.extents[d] - 1 : b.extents[d] - 1;
  for (Index e = std::max(low, (delta - above) / size - 1);
       e <= std::min(high, (delta + below) / size + 1); ++e) {
    const Index rest = delta - size * e;
    if (rest >= -below && rest <= above && meet(a, b, dims, from + 1, rest)) return true;
  }
  return false;
}

// One of the two is written.
void check_pair(const Program& program, Operand& a, Operand& b) {
  const Span sa = span_of(a.array), sb = span_of(b.array);
  if (sa.begin >= sb.end || sb.begin >= sa.end) return;
  const Operand& writer = b.writes() ? b : a;
  const Operand& other = b.writes() ? a : b;
  const auto pair = [&] {
    return cat(subject(program, writer), " is aliased to '", other.name, "': ");
  };
  if (a.array.data == b.array.data) {
    KREF_CHECK(!(a.writes() && b.writes()), subject(program, writer), " has the memory of '",
               other.name, "', and both are written");
    KREF_CHECK(writer.array.dtype == other.array.dtype, pair(), "its element type is ",
               name_of(writer.array.dtype), ", expected ", name_of(other.array.dtype));
    KREF_CHECK(std::ranges::equal(writer.array.shape(), other.array.shape()), pair(),
               "its shape is ", shape_string(writer.array.shape()), ", expected ",
               shape_string(other.array.shape()));
    KREF_CHECK(same_strides(a.array, b.array), pair(), "its strides differ");
  } else if (a.element_bytes == b.element_bytes && same_strides(a.array, b.array)) {
    const std::intptr_t bytes =
        static_cast<std::byte*>(b.array.data) - static_cast<std::byte*>(a.array.data);
    const auto element = static_cast<std::intptr_t>(a.element_bytes);
    std::vector<std::size_t> dims;
    for (std::size_t d = 0; d < a.rank(); ++d) {
      if (a.array.extents[d] > 1 || b.array.extents[d] > 1) dims.push_back(d);
    }
    std::sort(dims.begin(), dims.end(), [&](std::size_t x, std::size_t y) {
      return std::abs(a.array.strides[x]) > std::abs(a.array.strides[y]);
    });
    const bool shared = bytes % element != 0 || meet(a.array, b.array, dims, 0, bytes / element);
    KREF_CHECK(!shared, subject(program, writer), " overlaps a part of '", other.name,
               "', expected the same array or another one");
    return;
  }
  // The same view, or memory that may be shared and may be merely interleaved: windows of their own
  // give the contract's order in either case.
  a.copies = b.copies = true;
}

}  // namespace

void check_memory(Program& program) {
  auto& operands = program.operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Operand& a = operands[i];
    if (a.kind == Kind::kScratch || a.array.size() == 0) continue;
    if (a.writes()) check_distinct_elements(program, a);
    for (std::size_t j = 0; j < i; ++j) {
      Operand& b = operands[j];
      if (b.kind == Kind::kScratch || b.array.size() == 0) continue;
      if (a.writes() || b.writes()) check_pair(program, b, a);
    }
  }
}

}  // namespace kref::detail
