// SPDX-License-Identifier: Apache-2.0
#include "golden/compared.h"

#include <algorithm>
#include <cmath>

namespace kref {

double past_range(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kBF16:
      return 0x1p128;
    case DType::kF16:
    case DType::kF8E5M2:
      return 0x1p16;
    case DType::kF8E4M3:
      return 480;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

Compared::Compared(const Expectation& expected, const Array& actual, BoundKind kind)
    : expected_(expected),
      actual_(actual),
      bounds_(kind == BoundKind::kLikely ? expected.likely : expected.worst),
      past_(past_range(actual.dtype())) {
  const auto n = static_cast<std::size_t>(actual.size());
  KREF_CHECK(expected.value.size() == n, "judge: output ", expected.output, " has ", n,
             " elements, expected ", expected.value.size());
  KREF_DCHECK(expected.integers.empty() ||
              (actual.dtype() == DType::kI64 && expected.integers.size() == n && bounds_.empty()));
  KREF_DCHECK(expected.likely.size() == expected.worst.size());
  KREF_DCHECK(bounds_.empty() || bounds_.size() == n);
  KREF_DCHECK(expected.overflow.empty() || expected.overflow.size() == n);
  // Without blocks, the output is one tile.
  const Blocks& blocks = expected.blocks;
  KREF_DCHECK(blocks.extents.empty() || blocks.extents.size() == rank());
  KREF_DCHECK(blocks.shards.empty() || blocks.shards.size() == rank());
  KREF_DCHECK(blocks.axes.empty() || blocks.axes.size() == rank());
  for (auto* v : {&tile_counts_, &block_, &shard_, &shard_tiles_, &strides_}) v->resize(rank());
  for (std::size_t d = 0; d < rank(); ++d) {
    shard_[d] = std::max<Index>(1, blocks.shards.empty() ? shape()[d] : blocks.shards[d]);
    block_[d] = std::max<Index>(1, blocks.extents.empty() ? shard_[d] : blocks.extents[d]);
    shard_tiles_[d] = cdiv(shard_[d], block_[d]);
    KREF_DCHECK(shape()[d] % shard_[d] == 0);
    tile_counts_[d] = shape()[d] / shard_[d] * shard_tiles_[d];
    tiles_ *= tile_counts_[d];
    if (blocks.axes.empty() || blocks.axes[d].empty()) continue;
    if (d == 0 || blocks.axes[d] != blocks.axes[d - 1]) grid_axes_.push_back(blocks.axes[d]);
  }
  Index stride = 1;
  for (std::size_t d = rank(); d-- > 0;) strides_[d] = stride, stride *= shape()[d];
}

double Compared::ratio_beyond(double a, double e, double b, std::uint8_t overflow) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(e)) return std::isnan(a) ? 0 : kInfinity;
  if (std::isnan(a)) {
    if ((overflow & Expectation::kNaN) != 0) return 0;
    if (dtype() != DType::kF8E4M3) return kInfinity;
    return std::fabs(e) >= past_ ? 0 : fraction(past_ - std::fabs(e), b);
  }
  if (std::isinf(a)) {
    const double along = a > 0 ? e : -e;  // > 0: on the side of the infinity
    if (along >= past_) return 0;         // both infinite, or the range is left
    if ((overflow & (a > 0 ? Expectation::kPlusInfinity : Expectation::kMinusInfinity)) != 0)
      return 0;
    if (std::isinf(e) || std::isinf(past_)) return kInfinity;
    return fraction(past_ - along, b);
  }
  if (std::isinf(e)) return kInfinity;
  return fraction(std::fabs(a - e), b);  // finite, but huge
}

double Compared::integer_ratio(Index i, Index j) const {
  return actual_integer(i) == expected_integer(j) ? 0 : std::numeric_limits<double>::infinity();
}

Index Compared::tile_of(Index element) const {
  Index tile = 0;
  for (std::size_t d = 0; d < rank(); ++d) {
    const Index at = element / strides_[d] % shape()[d];
    tile = tile * tile_counts_[d] + at / shard_[d] * shard_tiles_[d] + at % shard_[d] / block_[d];
  }
  return tile;
}

std::vector<Index> Compared::unflatten_tile(Index tile) const {
  std::vector<Index> out(rank());
  for (std::size_t d = rank(); d-- > 0;) out[d] = tile % tile_counts_[d], tile /= tile_counts_[d];
  return out;
}

std::vector<Index> Compared::grid_index(Index tile) const {
  const std::vector<Index> at = unflatten_tile(tile);
  const std::vector<std::string>& axes = expected_.blocks.axes;
  std::vector<Index> out;
  for (std::size_t d = 0; d < rank(); ++d) {
    const Index local = at[d] % shard_tiles_[d];
    if (axes.empty()) {
      out.push_back(local);
    } else if (!axes[d].empty() && d > 0 && axes[d] == axes[d - 1]) {
      out.back() = out.back() * shard_tiles_[d] + local;
    } else if (!axes[d].empty()) {
      out.push_back(local);
    }
  }
  return out;
}

std::vector<Index> Compared::unflatten(Index element) const {
  std::vector<Index> out(rank());
  for (std::size_t d = 0; d < rank(); ++d) out[d] = element / strides_[d] % shape()[d];
  return out;
}

Index Compared::flatten(const std::vector<Index>& at) const {
  Index element = 0;
  for (std::size_t d = 0; d < rank(); ++d) element += at[d] * strides_[d];
  return element;
}

void Compared::tile_box(Index tile, std::vector<Index>& start, std::vector<Index>& extents) const {
  start = unflatten_tile(tile);
  extents.resize(rank());
  for (std::size_t d = 0; d < rank(); ++d) {
    const Index inside = start[d] % shard_tiles_[d] * block_[d];  // its part of the dimension
    start[d] = start[d] / shard_tiles_[d] * shard_[d] + inside;
    extents[d] = std::min(block_[d], shard_[d] - inside);
  }
}

}  // namespace kref
