// SPDX-License-Identifier: Apache-2.0
// What differs from one collective to the next beside shapes: its name, its groups, and which
// groups it may have. For devices, typed bodies and run files alike.
#pragma once

#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "sharding/collectives.h"
#include "sharding/link_cost.h"

namespace kref::detail {

// The name that JAX has for it: pmax and pmin are one value.
template <class Op>
const char* name_of_op(const Op& op) {
  if constexpr (std::is_same_v<Op, Pmax>) return op.min ? "pmin" : "pmax";
  if constexpr (std::is_same_v<Op, Pargmax>) return op.min ? "pargmin" : "pargmax";
  return Op::kName;
}

// What travels, for its price: a broadcast goes round as a gather does, a sum to one member as a
// reduce-scatter does. None of what sends pair by pair, or nothing.
template <class Op>
constexpr std::optional<Traffic> traffic_of(const Op&) {
  if constexpr (std::is_same_v<Op, AllGather> || std::is_same_v<Op, Pbroadcast>) {
    return Traffic::kAllGather;
  } else if constexpr (std::is_same_v<Op, PsumScatter> || std::is_same_v<Op, PsumTo>) {
    return Traffic::kReduceScatter;
  } else if constexpr (std::is_same_v<Op, Psum> || std::is_same_v<Op, Pmean> ||
                       std::is_same_v<Op, Pmax> || std::is_same_v<Op, Pargmax>) {
    return Traffic::kAllReduce;
  } else if constexpr (std::is_same_v<Op, Ppermute> || std::is_same_v<Op, OwnSlice> ||
                       std::is_same_v<Op, Pvary>) {
    return std::nullopt;
  }
  return Traffic::kAllToAll;  // all_to_all, and its ragged form
}

// Its axis_index_groups; none where it takes none.
template <class Op>
const AxisIndexGroups& groups_of(const Op& op) {
  static const AxisIndexGroups none;
  if constexpr (requires { op.axis_index_groups; }) {
    return op.axis_index_groups;
  } else {
    return none;
  }
}

// Where the result depends on the size of the group, the groups have one size.
template <class Op>
GroupSizes group_sizes(const Op& op) {
  if constexpr (std::is_same_v<Op, Ppermute>) return GroupSizes::kMeshOrder;
  if constexpr (std::is_same_v<Op, Pvary>) return op.mean ? GroupSizes::kEqual : GroupSizes::kAny;
  constexpr bool equal = std::is_same_v<Op, AllGather> || std::is_same_v<Op, OwnSlice> ||
                         std::is_same_v<Op, PsumScatter> || std::is_same_v<Op, AllToAll> ||
                         std::is_same_v<Op, Pmean>;
  return equal ? GroupSizes::kEqual : GroupSizes::kAny;
}

// Without an axis a collective is the identity, whatever its other options say. Pargmax, which
// gives a rank, needs one.
template <class Op>
bool is_identity(const Op& op) {
  return !std::is_same_v<Op, Pargmax> && op.axis_name.names.empty();
}

// Shape and element type of one device's result, of a group of n. Error as those of the collective.
struct ResultType {
  std::vector<Index> shape;
  DType dtype = DType::kF32;
};
template <class Op>
ResultType result_type(const Op& op, std::span<const Index> in, DType dtype, Index n) {
  if (is_identity(op)) return {{in.begin(), in.end()}, dtype};
  ResultType out;
  out.dtype = op.result_dtype(dtype);
  out.shape = op.result_shape(in, n);
  return out;
}

}  // namespace kref::detail
