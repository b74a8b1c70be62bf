// SPDX-License-Identifier: Apache-2.0
// The links of a group: of whole axes of a mesh, or of a part of them (axis_index_groups).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sharding/slice.h"

namespace kref {

// The links that the devices `members` have, which differ along the mesh axes `names` only. All of
// an axis: MeshLinks::of. A part of it: where the members lie along each axis of links, equally far
// apart. Every s-th chip of a ring that closes is a ring; of anything else a line; s such groups,
// which lie in each other, share the links. Error, naming the members, when they do not lie so.
std::vector<LinkAxis> group_links(std::span<const Index> members,
                                  const std::vector<std::string>& names, const MeshLinks& links);

}  // namespace kref
