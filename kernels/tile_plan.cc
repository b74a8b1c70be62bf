// SPDX-License-Identifier: Apache-2.0
#include "kernels/tile_plan.h"

namespace kref::detail {
namespace {

struct Dim {
  Index extent = 1;
  std::array<Index, kMaxOperands> stride{};
};

// Dimension d of the output and what each operand does along it.
Dim matched_dim(const char* verb, const Operand* operands, std::size_t count, std::size_t d,
                bool empty) {
  const ArrayRef& out = operands[count - 1].view;
  Dim dim;
  dim.extent = out.extents[d];
  for (std::size_t o = 0; o < count; ++o) {
    const ArrayRef& v = operands[o].view;
    const std::size_t missing = out.rank - v.rank;
    if (d < missing) continue;  // broadcast: stride 0
    const Index extent = v.extents[d - missing];
    KREF_CHECK(extent == dim.extent || (extent == 1 && o + 1 < count), verb, ": ", operands[o].name,
               " is ", to_string(v), ", which does not fit ", operands[count - 1].name, " ",
               to_string(out));
    dim.stride[o] = extent == 1 ? 0 : v.strides[d - missing];
  }
  KREF_CHECK(dim.stride[count - 1] != 0 || dim.extent <= 1 || empty, verb, ": ",
             operands[count - 1].name, " repeats its elements along dimension ", d,
             " (stride 0), it cannot be written");
  return dim;
}

// True when dimension `outer` continues where `inner` ends, for every operand.
bool mergeable(const Dim& outer, const Dim& inner, std::size_t count) {
  for (std::size_t o = 0; o < count; ++o) {
    if (outer.stride[o] != inner.stride[o] * inner.extent) return false;
  }
  return true;
}

bool contiguous(const Dim& dim, std::size_t count) {
  for (std::size_t o = 0; o < count; ++o) {
    if (dim.stride[o] != 0 && dim.stride[o] != 1) return false;
  }
  return dim.stride[count - 1] == 1 || dim.extent == 1;
}

}  // namespace

TilePlan::TilePlan(const char* verb, const Operand* operands, std::size_t count, Inner inner)
    : count_(count) {
  KREF_DCHECK(count >= 1 && count <= kMaxOperands);
  const ArrayRef& out = operands[count - 1].view;
  std::array<Dim, kMaxRank + 2> dims;
  std::size_t n = 0;
  for (std::size_t o = 0; o < count; ++o) {
    KREF_CHECK(operands[o].view.rank <= out.rank, verb, ": ", operands[o].name, " is ",
               to_string(operands[o].view), ", which does not fit ", operands[count - 1].name, " ",
               to_string(out));
    element_bytes_[o] = static_cast<Index>(size_of(operands[o].view.dtype));
    first_.side[o].data = const_cast<void*>(operands[o].view.data);
  }
  for (const Index extent : out.shape()) empty_ = empty_ || extent == 0;
  for (std::size_t d = 0; d < out.rank; ++d) {
    const Dim dim = matched_dim(verb, operands, count, d, empty_);
    if (dim.extent == 1) continue;
    if (n > 0 && mergeable(dims[n - 1], dim, count)) {
      const Index outer = dims[n - 1].extent;
      dims[n - 1] = dim;
      dims[n - 1].extent *= outer;
    } else {
      dims[n++] = dim;
    }
  }
  // The innermost dimension becomes the row; one that is not contiguous becomes rows of one
  // element.
  Dim cols;
  if (inner == Inner::kColumns && n > 0 && contiguous(dims[n - 1], count)) cols = dims[--n];
  Dim rows;
  if (n > 0) rows = dims[--n];
  first_.rows = rows.extent, first_.cols = cols.extent;
  for (std::size_t o = 0; o < count; ++o) {
    first_.side[o].row_stride = rows.stride[o];
    first_.side[o].step = cols.extent == 1 ? 1 : cols.stride[o];
  }
  outer_ = n;
  for (std::size_t d = 0; d < n; ++d) {
    extents_[d] = dims[d].extent;
    for (std::size_t o = 0; o < count; ++o) strides_[o][d] = dims[d].stride[o];
  }
}

}  // namespace kref::detail
