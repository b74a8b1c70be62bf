// SPDX-License-Identifier: Apache-2.0
#include "sharding/replica_groups.h"

#include <algorithm>

#include "sharding/spelling.h"

namespace kref {
namespace {

// One named axis: how many devices along it, and how far apart their numbers are.
struct Along {
  Index size;
  Index stride;
};

void check_axes(const Mesh& mesh, const AxisNames& axes, std::string_view operation) {
  for (std::size_t k = 0; k < axes.names.size(); ++k) {
    const std::string& name = axes.names[k];
    KREF_CHECK(mesh.find(name), std::string(operation), ": unbound axis name '", abridged(name),
               "', the mesh has ", mesh.axes().empty() ? "no axes" : to_string(mesh));
    for (std::size_t j = 0; j < k; ++j) {
      KREF_CHECK(axes.names[j] != name, std::string(operation), ": axis '", name,
                 "' is named twice in ", to_string(axes));
    }
  }
}

std::vector<Along> along(const Mesh& mesh, const AxisNames& axes) {
  std::vector<Along> out;
  for (const std::string& name : axes.names) {
    const std::size_t at = mesh.index(name);
    Along axis{.size = mesh.axes()[at].size, .stride = 1};
    for (std::size_t k = at + 1; k < mesh.axes().size(); ++k) axis.stride *= mesh.axes()[k].size;
    out.push_back(axis);
  }
  return out;
}

Index size_along(const std::vector<Along>& list) {
  Index size = 1;
  for (const Along& axis : list) size *= axis.size;
  return size;
}

Index index_along(const std::vector<Along>& list, Index device) {
  Index index = 0;
  for (const Along& axis : list) index = index * axis.size + device / axis.stride % axis.size;
  return index;
}

// The device with `index` along the axes whose indices along all other axes are those of `first`,
// which has index 0 along the axes.
Index device_along(const std::vector<Along>& list, Index first, Index index) {
  for (std::size_t k = list.size(); k-- > 0;) {
    first += index % list[k].size * list[k].stride;
    index /= list[k].size;
  }
  return first;
}

}  // namespace

std::string to_string(const AxisNames& axes) {
  if (axes.names.size() == 1) return axes.names[0];
  std::string out = "(";
  for (std::size_t k = 0; k < axes.names.size(); ++k) {
    if (k > 0) out += ',';
    out += axes.names[k];
  }
  return out + ")";
}

void check_groups(const Mesh& mesh, const AxisNames& axes, const AxisIndexGroups& groups,
                  GroupSizes sizes, std::string_view operation) {
  check_axes(mesh, axes, operation);
  if (sizes == GroupSizes::kMeshOrder) {
    for (std::size_t k = 1; k < axes.names.size(); ++k) {
      KREF_CHECK(mesh.index(axes.names[k - 1]) < mesh.index(axes.names[k]), std::string(operation),
                 ": axis_name is ", to_string(axes),
                 ", expected the axes in the order of the mesh, ", to_string(mesh));
    }
  }
  if (groups.empty()) return;
  const std::string subject = detail::cat(std::string(operation), ": axis_index_groups ");
  const Index n = size_along(along(mesh, axes));
  const std::string rule = detail::cat(subject, "must cover all indices exactly once, 0 .. ", n - 1,
                                       " along ", to_string(axes), ": ");
  std::size_t count = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    KREF_CHECK(!groups[g].empty(), rule, "group ", g, " is empty");
    count += groups[g].size();
    for (const Index index : groups[g]) {
      KREF_CHECK(index >= 0 && index < n, rule, "there is no index ", index, " (group ", g, ")");
    }
  }
  // As many as there are indices at most, whatever the mesh: it may be one that is only priced.
  std::vector<Index> sorted;
  sorted.reserve(count);
  for (const std::vector<Index>& group : groups) {
    sorted.insert(sorted.end(), group.begin(), group.end());
  }
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  KREF_CHECK(twice == sorted.end(), rule, "index ", *twice, " appears twice");
  Index missing = 0;
  while (missing < static_cast<Index>(count) &&
         sorted[static_cast<std::size_t>(missing)] == missing) {
    ++missing;
  }
  KREF_CHECK(missing == n, rule, "index ", missing, " is missing");
  if (sizes == GroupSizes::kAny) return;
  for (std::size_t g = 1; g < groups.size(); ++g) {
    KREF_CHECK(groups[g].size() == groups[0].size(), subject, "must be equally sized: group 0 has ",
               groups[0].size(), " indices, group ", g, " has ", groups[g].size());
  }
}

ReplicaGroup replica_group(const Mesh& mesh, const AxisNames& axes, const AxisIndexGroups& groups,
                           Index device) {
  const std::vector<Along> list = along(mesh, axes);
  const Index index = index_along(list, device);
  Index first = device;
  for (const Along& axis : list) first -= device / axis.stride % axis.size * axis.stride;
  ReplicaGroup out;
  if (groups.empty()) {
    const Index n = size_along(list);
    out.members.reserve(static_cast<std::size_t>(n));
    for (Index k = 0; k < n; ++k) out.members.push_back(device_along(list, first, k));
    out.rank = index;
    return out;
  }
  for (const std::vector<Index>& group : groups) {
    const auto own = std::ranges::find(group, index);
    if (own == group.end()) continue;
    out.rank = own - group.begin();
    for (const Index k : group) out.members.push_back(device_along(list, first, k));
    return out;
  }
  KREF_DCHECK(false);  // check_groups passed: some list has the index
  return out;
}

std::vector<std::vector<Index>> replica_groups(const Mesh& mesh, const AxisNames& axes,
                                               const AxisIndexGroups& groups) {
  std::vector<std::vector<Index>> out;
  std::vector<bool> seen(static_cast<std::size_t>(mesh.device_count()));
  for (Index device = 0; device < mesh.device_count(); ++device) {
    if (seen[static_cast<std::size_t>(device)]) continue;
    out.push_back(replica_group(mesh, axes, groups, device).members);
    for (const Index member : out.back()) seen[static_cast<std::size_t>(member)] = true;
  }
  return out;
}

Index axis_size(const Mesh& mesh, const AxisNames& axes) {
  check_axes(mesh, axes, "axis_size");
  return size_along(along(mesh, axes));
}

Index axis_index(const Mesh& mesh, const AxisNames& axes, Index device) {
  check_axes(mesh, axes, "axis_index");
  return index_along(along(mesh, axes), device);
}

}  // namespace kref
