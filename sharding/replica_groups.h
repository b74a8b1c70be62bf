// SPDX-License-Identifier: Apache-2.0
// Which devices take part in one collective together (sharding_semantics 2.0).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/mesh.h"
#include "sharding/partition_spec.h"

namespace kref {

// `axis_name` of a collective: one mesh axis or several, the first one major: "X", axes("X", "Y").
// None at all: every device is a group of its own.
struct AxisNames {
  std::vector<std::string> names;

  AxisNames() = default;
  AxisNames(const char* name) : names{name} {}
  AxisNames(std::string name) : names{std::move(name)} {}
  AxisNames(std::vector<std::string> several) : names(std::move(several)) {}
  AxisNames(SpecEntry entry) : names(std::move(entry.axes)) {}

  bool operator==(const AxisNames&) const = default;
};

// "X", "(X,Y)", "()".
std::string to_string(const AxisNames& axes);

// `axis_index_groups`: lists of indices along the (flattened) axes; the place in its list is the
// rank of a member. None: all indices are one group.
using AxisIndexGroups = std::vector<std::vector<Index>>;

// The group of one device: devices that differ in nothing but the named axes.
struct ReplicaGroup {
  std::vector<Index> members;  // device numbers by rank
  Index rank = 0;              // of the device itself

  Index size() const { return static_cast<Index>(members.size()); }
};

// What the groups of a collective have to fulfil.
// kMeshOrder: the axes are named in the order of the mesh, too, as lax.ppermute asks.
enum class GroupSizes { kAny, kEqual, kMeshOrder };

// Refuses, naming `operation`: an axis that the mesh lacks ("unbound axis name", with the axes
// there are), an axis named twice, groups that are not a partition of the indices ("must cover all
// indices exactly once"; nor may one be empty), groups of unequal size where kEqual ("must be
// equally sized"), axes in another order than the mesh's where kMeshOrder.
void check_groups(const Mesh& mesh, const AxisNames& axes, const AxisIndexGroups& groups,
                  GroupSizes sizes, std::string_view operation);

// The group of `device`; for what check_groups passed. Members in row-major order over the axes in
// the order in which they are named.
ReplicaGroup replica_group(const Mesh& mesh, const AxisNames& axes, const AxisIndexGroups& groups,
                           Index device);
// Every group of the mesh, ordered by the lowest device number in each.
std::vector<std::vector<Index>> replica_groups(const Mesh& mesh, const AxisNames& axes,
                                               const AxisIndexGroups& groups);

// Devices along the axes: the product of their sizes. Error as check_groups.
Index axis_size(const Mesh& mesh, const AxisNames& axes);
// Row-major index of a device along the axes, the first one major. Error as check_groups.
Index axis_index(const Mesh& mesh, const AxisNames& axes, Index device);

}  // namespace kref
