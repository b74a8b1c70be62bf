// SPDX-License-Identifier: Apache-2.0
// Shapes of the results, with the errors of sharding_semantics 2.5.
#include <algorithm>

#include "sharding/collectives_run.h"

namespace kref {
namespace detail {

std::size_t dimension(const char* collective, const char* option, Index d, std::size_t rank) {
  const auto r = static_cast<Index>(rank);
  KREF_CHECK(d >= -r && d < r, collective, ": ", option, "=", d,
             " is not a dimension, expected at least ", -r, " and less than ", r);
  return static_cast<std::size_t>(d < 0 ? d + r : d);
}

Index product(std::span<const Index> shape, std::size_t first, std::size_t last) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  Index out = 1;
  for (std::size_t d = first; d < last; ++d) out *= shape[d];
  return out;
}

}  // namespace detail

namespace {

using detail::dimension;

std::vector<Index> same(std::span<const Index> in) { return {in.begin(), in.end()}; }

// a n elements along a dimension; Error where an Index does not count them.
Index times(const char* collective, Index a, Index n) {
  const Index both[] = {a, n};
  return detail::checked_product(collective, both, 2);
}

std::vector<Index> inserted(const char* collective, std::vector<Index> shape, std::size_t at,
                            Index n) {
  KREF_CHECK(shape.size() < kMaxRank, collective, ": operand ", shape_string(shape), " of rank ",
             shape.size(), " gets one more dimension, expected at most ", kMaxRank);
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), n);
  return shape;
}

std::vector<Index> removed(std::vector<Index> shape, std::size_t at) {
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
  return shape;
}

// The block of one member: 1 / n of dimension d, or index `rank` of it.
std::vector<Index> block_shape(const char* collective, const char* option, Index axis, bool tiled,
                               std::span<const Index> in, Index n) {
  const std::size_t d = dimension(collective, option, axis, in.size());
  std::vector<Index> out = same(in);
  if (tiled) {
    KREF_CHECK(in[d] % n == 0, collective, ": ", option, "=", axis, " of operand ",
               shape_string(in), " has ", in[d], " elements, which must be divisible by ",
               "shard_count ", n);
    out[d] /= n;
    return out;
  }
  KREF_CHECK(in[d] == n, collective, ": ", option, "=", axis, " of operand ", shape_string(in),
             " has ", in[d], " elements, which must match shard count ", n, " (tiled=false)");
  return removed(out, d);
}

// A group of that size has the member.
void check_member(const char* collective, const char* option, Index member, Index n) {
  KREF_CHECK(member >= 0 && member < n, collective, ": ", option, "=", member,
             " is not a member of a group of ", n, ", expected 0 .. ", n - 1);
}

void check_permutation(const Ppermute& op, Index n) {
  std::vector<bool> sends(static_cast<std::size_t>(n)), gets(sends);
  for (const auto& [source, destination] : op.perm) {
    const auto s = static_cast<std::size_t>((source % n + n) % n),
               d = static_cast<std::size_t>((destination % n + n) % n);
    const char* what = sends[s] ? "source " : "destination ";
    const Index named = sends[s] ? source : destination;
    const auto member = static_cast<Index>(sends[s] ? s : d);
    KREF_CHECK(!sends[s] && !gets[d], "ppermute: ", what, named,
               named == member ? "" : detail::cat(" (", member, " modulo ", n, ")"),
               " is named twice in perm of a group of ", n,
               ", sources and destinations must be unique");
    sends[s] = gets[d] = true;
  }
  if (!op.permutation) return;
  const bool inside = std::all_of(op.perm.begin(), op.perm.end(), [n](const auto& pair) {
    return std::min(pair.first, pair.second) >= 0 && std::max(pair.first, pair.second) < n;
  });
  KREF_CHECK(inside && static_cast<Index>(op.perm.size()) == n, "pshuffle: `perm` of ",
             op.perm.size(), " entries does not represent a permutation of 0 .. ", n - 1);
}

}  // namespace

std::vector<Index> AllGather::result_shape(std::span<const Index> in, Index n) const {
  if (!tiled) {
    return inserted(kName, same(in), dimension(kName, "axis", axis, in.size() + 1), n);
  }
  std::vector<Index> out = same(in);
  Index& extent = out[dimension(kName, "axis", axis, in.size())];
  extent = times(kName, extent, n);
  return out;
}

std::vector<Index> OwnSlice::result_shape(std::span<const Index> in, Index n) const {
  return block_shape(kName, "axis", axis, tiled, in, n);
}

std::vector<Index> PsumScatter::result_shape(std::span<const Index> in, Index n) const {
  return block_shape(kName, "scatter_dimension", scatter_dimension, tiled, in, n);
}

std::vector<Index> AllToAll::result_shape(std::span<const Index> in, Index n) const {
  const std::size_t split = dimension(kName, "split_axis", split_axis, in.size()),
                    concat = dimension(kName, "concat_axis", concat_axis, in.size());
  std::vector<Index> out = same(in);
  if (tiled) {
    KREF_CHECK(in[split] % n == 0, kName, ": split_axis=", split_axis, " of operand ",
               shape_string(in), " has ", in[split],
               " elements, which has to be divisible by the size of the named axis ",
               to_string(axis_name), ", ", n);
    out[split] /= n;
    out[concat] = times(kName, out[concat], n);
    return out;
  }
  KREF_CHECK(in[split] == n, kName, ": split_axis=", split_axis, " of operand ", shape_string(in),
             " has ", in[split], " elements; tiled=false requires the size of the mapped axis ",
             to_string(axis_name), ", ", n, ", to equal x.shape[split_axis]");
  return inserted(kName, removed(out, split), concat, n);
}

std::vector<Index> Ppermute::result_shape(std::span<const Index> in, Index n) const {
  check_permutation(*this, n);
  return same(in);
}

std::vector<Index> Pbroadcast::result_shape(std::span<const Index> in, Index n) const {
  check_member(kName, "source", source, n);
  return same(in);
}

std::vector<Index> PsumTo::result_shape(std::span<const Index> in, Index n) const {
  check_member(kName, "target", target, n);
  return same(in);
}

std::vector<Index> Pargmax::result_shape(std::span<const Index> in, Index) const {
  KREF_CHECK(axis_name.names.size() == 1, detail::name_of_op(*this), ": axis_name is ",
             to_string(axis_name), ", expected one mesh axis");
  return same(in);
}

std::vector<Index> Psum::result_shape(std::span<const Index> in, Index) const { return same(in); }
std::vector<Index> Pvary::result_shape(std::span<const Index> in, Index) const { return same(in); }
std::vector<Index> Pmean::result_shape(std::span<const Index> in, Index) const { return same(in); }
std::vector<Index> Pmax::result_shape(std::span<const Index> in, Index) const { return same(in); }

DType AllGather::result_dtype(DType in) const { return in; }
DType OwnSlice::result_dtype(DType in) const { return in; }
DType AllToAll::result_dtype(DType in) const { return in; }
DType Ppermute::result_dtype(DType in) const { return in; }
DType Pbroadcast::result_dtype(DType in) const { return in; }
DType Pmax::result_dtype(DType in) const { return in; }
DType Pargmax::result_dtype(DType) const { return DType::kI32; }
DType Pvary::result_dtype(DType in) const { return !mean || is_float(in) ? in : DType::kF32; }

}  // namespace kref
