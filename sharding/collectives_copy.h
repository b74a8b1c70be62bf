// SPDX-License-Identifier: Apache-2.0
// Copies of a box of one array to a box of another; for collectives_*.cc.
#pragma once

#include <array>
#include <cstddef>

#include "sharding/transport.h"

namespace kref::detail {

// As many elements along each dimension, and how far apart they are on both sides, in elements. The
// last dimension varies fastest; dimensions keep their order on both sides.
struct Box {
  struct Dim {
    Index extent, from, to;
  };
  std::array<Dim, kMaxRank + 2> dims{};
  std::size_t rank = 0;
  Index from_begin = 0, to_begin = 0;

  void add(Index extent, Index from, Index to) { dims[rank++] = {extent, from, to}; }
};

// Copies between local memory.
void copy_box(const std::byte* from, std::byte* to, Box box, std::size_t element);

// Copies from what member `rank` offered.
void copy_box(Exchange& exchange, Index rank, std::byte* to, Box box, std::size_t element);

}  // namespace kref::detail
