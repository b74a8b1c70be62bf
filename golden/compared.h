// SPDX-License-Identifier: Apache-2.0
// Compared: an output beside its expectation, as the judge and its pattern guesses see it.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "dsl/array.h"
#include "golden/expectation.h"
#include "golden/judge.h"
#include "golden/rounding.h"

namespace kref {

// The first number past the largest finite one of a type, as if its exponents went on: what an
// overflowed result stands for. Infinity for F64 and for integers.
double past_range(DType type);

// The view of one output. Keeps references: both must outlive it.
class Compared {
 public:
  Compared(const Expectation& expected, const Array& actual, BoundKind kind);

  Index size() const { return actual_.size(); }
  std::size_t rank() const { return actual_.rank(); }
  std::span<const Index> shape() const { return actual_.shape(); }
  DType dtype() const { return actual_.dtype(); }
  const Array& array() const { return actual_; }
  const Expectation& expectation() const { return expected_; }

  double actual(Index i) const { return actual_.at(i); }
  double expected(Index i) const { return expected_.value[static_cast<std::size_t>(i)]; }
  double bound(Index i) const { return bounds_.empty() ? 0 : bounds_[static_cast<std::size_t>(i)]; }
  // Both kinds, whichever counts.
  double likely_bound(Index i) const {
    return exact() ? 0 : expected_.likely[static_cast<std::size_t>(i)];
  }
  double worst_bound(Index i) const {
    return exact() ? 0 : expected_.worst[static_cast<std::size_t>(i)];
  }
  std::uint8_t overflow(Index i) const {
    return expected_.overflow.empty() ? std::uint8_t{Expectation::kNoOverflow}
                                      : expected_.overflow[static_cast<std::size_t>(i)];
  }
  bool exact() const { return bounds_.empty(); }
  // Are there values of 64 bits, which count in place of the doubles?
  bool integers() const { return !expected_.integers.empty(); }
  std::int64_t expected_integer(Index i) const {
    return expected_.integers[static_cast<std::size_t>(i)];
  }
  std::int64_t actual_integer(Index i) const {
    return actual_.elements<std::int64_t>()[static_cast<std::size_t>(i)];
  }

  // How far `actual` is from `expected` as a fraction of `bound`: at most 1 when it is right, never
  // NaN. Infinity where no bound helps. A bound that is no finite number bounds nothing, so it
  // counts as 0: it must not pass everything. See judge.h for values that are not finite.
  double ratio(double actual, double expected, double bound, std::uint8_t overflow) const {
    const double difference = actual > expected ? actual - expected : expected - actual;
    // One test sends everything that is not finite on either side to the slow path.
    if (difference < kHuge) [[likely]]
      return fraction(difference, bound);
    return ratio_beyond(actual, expected, bound, overflow);
  }
  double ratio(Index i) const {
    if (integers()) return integer_ratio(i, i);
    return ratio(actual(i), expected(i), bound(i), overflow(i));
  }
  bool wrong(Index i) const { return !(ratio(i) <= 1); }

  // For guesses. Is element i right if it ought to be `value`, whose error is that of the true one
  // but for the rounding of a larger number to the output's type?
  bool fits(Index i, double value) const {
    double more = exact() ? 0 : half_spacing(dtype(), value) - half_spacing(dtype(), expected(i));
    if (!(more > 0)) more = 0;
    return ratio(actual(i), value, bound(i) + more, Expectation::kNoOverflow) <= 1;
  }
  // Is element i right if it ought to be what is expected of element j?
  bool holds(Index i, Index j) const {
    if (integers()) return integer_ratio(i, j) <= 1;
    return ratio(actual(i), expected(j), bound(j), overflow(j)) <= 1;
  }

  // Blocks: the tiles of the whole output, numbered row-major, each inside one device's part.
  Index tiles() const { return tiles_; }
  Index block(std::size_t d) const { return block_[d]; }  // extent of a block, at least 1
  Index tile_of(Index element) const;                     // flat tile number
  std::vector<Index> unflatten(Index element) const;      // per dimension
  Index flatten(const std::vector<Index>& at) const;
  // What a device's grid calls a tile: its index along each axis, from 0 in each device's part, and
  // the names of the axes (none without blocks: an index along each dimension).
  std::vector<Index> grid_index(Index tile) const;
  const std::vector<std::string>& grid_axes() const { return grid_axes_; }
  // Start and extents of a tile, cut at the edge of its device's part.
  void tile_box(Index tile, std::vector<Index>& start, std::vector<Index>& extents) const;
  // Calls visit(flat element) for each element of a tile, row-major, until it returns false;
  // returns whether it went through.
  template <class Visit>
  bool for_tile(Index tile, Visit&& visit) const;
  // The same of the elements of a box.
  template <class Visit>
  bool for_box(const std::vector<Index>& start, const std::vector<Index>& extents,
               Visit&& visit) const;

 private:
  static constexpr double kHuge = 0x1p1023;
  std::vector<Index> unflatten_tile(Index tile) const;  // per dimension
  static double fraction(double difference, double bound);
  // As ratio, of element i against the value of element j.
  double integer_ratio(Index i, Index j) const;
  double ratio_beyond(double actual, double expected, double bound, std::uint8_t overflow) const;

  const Expectation& expected_;
  const Array& actual_;
  const std::vector<double>& bounds_;
  double past_;
  // Per dimension: tiles in all, extent of a block, of one device's part, tiles in such a part.
  std::vector<Index> tile_counts_, block_, shard_, shard_tiles_, strides_;
  std::vector<std::string> grid_axes_;
  Index tiles_ = 1;
};

inline double Compared::fraction(double difference, double bound) {
  if (difference == 0) return 0;
  const bool bounds = bound > 0 && bound <= std::numeric_limits<double>::max();
  return bounds ? difference / bound : std::numeric_limits<double>::infinity();
}

template <class Visit>
bool Compared::for_tile(Index tile, Visit&& visit) const {
  std::vector<Index> start, extents;
  tile_box(tile, start, extents);
  return for_box(start, extents, visit);
}

template <class Visit>
bool Compared::for_box(const std::vector<Index>& start, const std::vector<Index>& extents,
                       Visit&& visit) const {
  for (const Index e : extents) {
    if (e == 0) return true;
  }
  std::vector<Index> at(rank(), 0);
  for (;;) {
    Index element = 0;
    for (std::size_t d = 0; d < rank(); ++d) element += (start[d] + at[d]) * strides_[d];
    if (!visit(element)) return false;
    std::size_t d = rank();
    while (d > 0 && ++at[d - 1] == extents[d - 1]) at[--d] = 0;
    if (d == 0) return true;
  }
}

}  // namespace kref
