// SPDX-License-Identifier: Apache-2.0
#include "sharding/group_links.h"

#include <set>

#include "dsl/check.h"
#include "sharding/replica_groups.h"

namespace kref {
namespace {

// How far apart, or 0 when not equally far.
Index step_of(const std::set<Index>& places) {
  Index step = 0, before = -1;
  for (const Index place : places) {
    if (before >= 0) {
      if (step != 0 && place - before != step) return 0;
      step = place - before;
    }
    before = place;
  }
  return step;
}

}  // namespace

std::vector<LinkAxis> group_links(std::span<const Index> members,
                                  const std::vector<std::string>& names, const MeshLinks& links) {
  const std::vector<LinkAxis> whole = links.of(names);
  const AxisNames axes(names);
  if (static_cast<Index>(members.size()) == axis_size(links.mesh, axes)) return whole;
  std::vector<std::set<Index>> places(whole.size());
  for (const Index member : members) {
    Index rank = axis_index(links.mesh, axes, member);
    for (std::size_t k = whole.size(); k-- > 0;) {
      places[k].insert(rank % whole[k].size);
      rank /= whole[k].size;
    }
  }
  std::vector<LinkAxis> out;
  std::size_t box = 1;
  bool even = true;
  for (std::size_t k = 0; k < whole.size(); ++k) {
    box *= places[k].size();
    if (places[k].size() == 1) continue;
    const auto n = static_cast<Index>(places[k].size());
    const Index step = step_of(places[k]);
    even = even && step > 0;
    const bool closes = whole[k].wraps && n * step == whole[k].size;
    out.push_back({n, closes, whole[k].stride * step, whole[k].network});
  }
  if (even && box == members.size()) return out;
  std::string list;
  for (const Index member : members) {
    list += (list.empty() ? "" : ", ") + links.mesh.device_name(member);
  }
  throw Error(detail::cat("group of devices ", list, " over ", to_string(axes),
                          " is neither a row of equally distant chips nor a box of such rows; such "
                          "groups have no price"));
}

}  // namespace kref
