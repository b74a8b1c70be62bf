// SPDX-License-Identifier: Apache-2.0
// Blocks of an array from one placement to another, at once; for reshard.cc.
#pragma once

#include "sharding/sharded.h"

namespace kref::detail {

// The blocks under `to`, which fits x's mesh and shape. Every element comes straight from a device
// that has it: from the device itself if that can be. Axes that are no longer unreduced are reduced
// in mesh order; along axes that become unreduced, one device has the element (the one that owned
// it, or index 0 where it was replicated) and the others zero.
std::vector<Array> move_blocks(const Sharded& x, const Placement& to);

}  // namespace kref::detail
