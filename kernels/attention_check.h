// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention, forward and backward, refuse, and what they work on: operands seen
// as [B, heads, rows, columns] whatever the layout. `who` is the kernel that messages name.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "kernels/flash_attention.h"

namespace kref::detail {

struct AttentionSizes {
  Index batches, heads, groups, queries, keys, depth, width;  // B, H, G, T, S, D, E
};

// [B, T, H, D] seen as [B, H, T, D].
template <class Void>
BasicArrayRef<Void> by_heads(BasicArrayRef<Void> a, Layout layout) {
  if (layout == Layout::kBTHD && a.rank == 4) {
    std::swap(a.extents[1], a.extents[2]);
    std::swap(a.strides[1], a.strides[2]);
  }
  return a;
}

// Error unless `a` has that shape, of which the first `may_be_one` extents may also be 1, and
// stride 1 in its last dimension.
void check_shape(const char* who, const char* name, const ArrayRef& a,
                 std::initializer_list<Index> expected, std::size_t may_be_one = 0);
void check_dtype(const char* who, const char* name, const ArrayRef& a, bool legal,
                 const char* expected);

// Error, naming the operand, unless inputs and options fit each other. q, k and v are by_heads
// afterwards.
AttentionSizes check_attention(const char* who, AttentionInputs& in,
                               const AttentionOptions& options);

// `chosen` where `tile` has a 0, else that, at most the size of the array; Error on a negative one.
AttentionTile checked_tile(const char* who, const AttentionTile& tile, const AttentionTile& chosen,
                           const AttentionSizes& n);

// Those that are there, with their names.
std::vector<std::pair<const char*, ArrayRef>> named_inputs(const AttentionInputs& in);

// The inputs with zeros of extent 1 where D, E or S is 0, since such a dimension has no blocks; the
// key that stands for none is one that nobody sees. `kept` owns what is new.
AttentionInputs without_empty(const AttentionInputs& in, const AttentionSizes& n,
                              std::vector<Array>& kept);

}  // namespace kref::detail
