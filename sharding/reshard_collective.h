// SPDX-License-Identifier: Apache-2.0
// The steps of a reshard as collectives of the devices, for whoever runs them in a shard_map or
// prices them.
#pragma once

#include <optional>

#include "sharding/collectives.h"
#include "sharding/reshard.h"

namespace kref {

// The collective that takes the blocks under `from` to those under step.to; an own_slice
// for a slice, nothing for the other steps that no device needs another one for, nor for extrema,
// which are not linear. A kPermute is a ppermute over all
// axes of the mesh, in which a device that has its new block already sends to itself.
// `step` is one of a plan_reshard on this mesh, and `from` what the step before led to.
std::optional<LinearCollective> collective_of(const ReshardStep& step, const Placement& from,
                                              const Mesh& mesh);

}  // namespace kref
