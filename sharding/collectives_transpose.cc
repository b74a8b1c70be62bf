// SPDX-License-Identifier: Apache-2.0
// The transposes of the linear collectives (sharding_semantics 2.2).
#include "sharding/collectives.h"

namespace kref {

// What is no sum carries no SumOptions, so that those of a sum do not come back from its transpose:
// transpose(transpose(op)) == op where they are the default.

// The own slice of an invariant value is the transpose where the result counts as one value of the
// group; where it counts as n values, or is to become partial sums, their sum is due.
LinearCollective AllGather::transpose(Typing typing) const {
  if (to == GatherTo::kInvarying && typing == Typing::kChecked) {
    return OwnSlice{axis_name, axis, tiled, axis_index_groups};
  }
  return PsumScatter{axis_name, axis, tiled, axis_index_groups, {}};
}

LinearCollective OwnSlice::transpose(Typing typing) const {
  KREF_CHECK(typing == Typing::kChecked,
             "own_slice: takes a value that all members share, which typing unchecked does not "
             "know: it has no transpose there");
  return AllGather{axis_name, axis, tiled, axis_index_groups, GatherTo::kInvarying};
}

LinearCollective PsumScatter::transpose(Typing) const {
  return AllGather{axis_name, scatter_dimension, tiled, axis_index_groups, GatherTo::kVarying};
}

LinearCollective Psum::transpose(Typing typing) const {
  if (typing == Typing::kChecked) return Pvary{axis_name, axis_index_groups, false};
  return *this;
}

LinearCollective Pvary::transpose(Typing typing) const {
  if (typing == Typing::kUnchecked) return *this;
  if (mean) return Pmean{axis_name, axis_index_groups, {}};
  return Psum{axis_name, axis_index_groups, {}};
}

LinearCollective Pmean::transpose(Typing typing) const {
  if (typing == Typing::kChecked) return Pvary{axis_name, axis_index_groups, true};
  return *this;
}

LinearCollective AllToAll::transpose(Typing) const {
  return AllToAll{axis_name, concat_axis, split_axis, tiled, axis_index_groups};
}

LinearCollective Ppermute::transpose(Typing) const {
  Ppermute out = *this;
  for (auto& pair : out.perm) std::swap(pair.first, pair.second);
  return out;
}

LinearCollective Pbroadcast::transpose(Typing) const {
  return PsumTo{axis_name, source, axis_index_groups, {}};
}

LinearCollective PsumTo::transpose(Typing) const {
  return Pbroadcast{axis_name, target, axis_index_groups};
}

LinearCollective transpose(const LinearCollective& op, Typing typing) {
  return std::visit([&](const auto& o) { return o.transpose(typing); }, op);
}

Array apply(const LinearCollective& op, Device& device, const Array& x, CallSite where) {
  return std::visit([&](const auto& o) { return o(device, x, where); }, op);
}

}  // namespace kref
