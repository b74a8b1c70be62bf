// SPDX-License-Identifier: Apache-2.0
#include "dsl/view.h"

#include <limits>

#include "dsl/array.h"

namespace kref::detail {
namespace {

// start + size, or the largest number where no Index is as large.
Index behind(Index start, Index size) {
  Index end = 0;
  return __builtin_add_overflow(start, size, &end) ? std::numeric_limits<Index>::max() : end;
}

}  // namespace

void refuse_pick(const char* who, const void* view, std::size_t dimension, Index extent,
                 const Picked& p) {
  const std::string place = cat(who, ": dimension ", dimension, ": ");
  switch (p.kind) {
    case Pick::kFromEnd:
      throw OutsideView(
          cat(place, "from_end(", p.start, ") does not lie inside the extent ", extent), view);
    case Pick::kElement:
      throw OutsideView(cat(place, "element ", p.start, " does not lie inside the extent ", extent,
                            p.start < 0 ? "; from_end(1) is the last element" : ""),
                        view);
    case Pick::kStrided:
      throw OutsideView(cat(place, "start ", p.start, ", size ", p.size, ", stride ", p.stride,
                            p.size < 0 || p.stride < 0 ? ", expected size and stride >= 0"
                                                       : " does not lie inside the extent ",
                            p.size < 0 || p.stride < 0 ? "" : std::to_string(extent)),
                        view);
    default:
      throw OutsideView(
          p.size < 0 ? cat(place, "start ", p.start, ", size ", p.size, ", expected a size >= 0")
                     : cat(place, "start ", p.start, ", size ", p.size, ": elements ", p.start, ":",
                           behind(p.start, p.size), " do not lie inside the extent ", extent),
          view);
  }
}

void refuse_block(const void* view, std::size_t dimension, Index start, Index size, Index extent) {
  throw OutsideView(cat("Ref::block: dimension ", dimension, ": ", start, ":", behind(start, size),
                        " does not lie inside the extent ", extent),
                    view);
}

void refuse_element(const void* view, const Index* at, const Index* extents, std::size_t rank) {
  throw OutsideView(cat("element ", shape_string({at, rank}), " is asked for, the extents are ",
                        shape_string({extents, rank})),
                    view);
}

void reshaped_strides(const Index* extents, const Index* strides, std::size_t rank,
                      const Index* new_extents, std::size_t new_rank, Index* new_strides) {
  const std::string what = cat("Ref::reshape: ", shape_string({extents, rank}), " to ",
                               shape_string({new_extents, new_rank}));
  const Index size = checked_product("Ref::reshape", extents, rank),
              new_size = checked_product("Ref::reshape", new_extents, new_rank);
  KREF_CHECK(size == new_size, what, ": ", size, " elements, expected as many, found ", new_size);
  if (size == 0) return dense_strides("Ref::reshape", new_extents, new_rank, new_strides);
  // Neighbouring dimensions that continue each other are one run, the slowest first.
  struct Run {
    Index extent, stride;
  };
  std::array<Run, kMaxRank> runs{};
  std::size_t count = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    if (extents[d] == 1) continue;
    if (count > 0 && runs[count - 1].stride == strides[d] * extents[d]) {
      runs[count - 1] = {runs[count - 1].extent * extents[d], strides[d]};
    } else {
      runs[count++] = {extents[d], strides[d]};
    }
  }
  // The new dimensions divide the runs among themselves, from the fastest on.
  Run left{1, 1};
  for (std::size_t q = new_rank; q-- > 0;) {
    const Index extent = new_extents[q];
    if (extent > 1 && left.extent == 1) left = runs[--count];
    KREF_CHECK(left.extent % extent == 0 && (q + 1 < new_rank || extent == 1 || left.stride == 1),
               what, ": the strides are ", shape_string({strides, rank}), ", dimension ", q,
               " has no single one; copy the elements first");
    new_strides[q] = left.stride;
    left = {left.extent / extent, left.stride * extent};
  }
}

void check_transpose(const Index* extents, std::size_t rank, const std::size_t* order) {
  std::uint32_t seen = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    KREF_CHECK(order[d] < rank && (seen >> order[d] & 1) == 0, "Ref::transpose: dimension ", d,
               " is ", order[d], ", expected each of 0..", rank, " - 1 once");
    seen |= 1u << order[d];
  }
  KREF_CHECK(rank == 0 || order[rank - 1] == rank - 1 || extents[order[rank - 1]] == 1,
             "Ref::transpose: dimension ", order[rank - 1], " of ", shape_string({extents, rank}),
             " would be the last one: lanes stay where they are; the verb transpose moves them");
}

}  // namespace kref::detail
