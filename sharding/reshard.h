// SPDX-License-Identifier: Apache-2.0
// reshard: an array from one placement to any other, and the plan of what that takes on a machine
// (sharding_semantics 1.8).
#pragma once

#include <string>
#include <vector>

#include "sharding/sharded.h"

namespace kref {

// One thing that all devices do, over some axes (first major).
struct ReshardStep {
  enum class Kind {
    kSlice,          // replicated -> split along dim: each device keeps its block
    kReduceScatter,  // unreduced -> split along dim
    kAllReduce,      // unreduced -> replicated
    kAllToAll,       // split along dim -> split along to_dim
    kAllGather,      // split along dim -> replicated
    kPermute,        // each device gets one block of another: split along the same dimensions
    kPad,            // split along dim -> unreduced: the own block at its place among zeros
    kMask,           // replicated -> unreduced: zeros but at index 0
    kRelabel,        // replicated <-> reduced, and axes of one device: the numbers stay
  };
  Kind kind;
  std::vector<std::string> axes;  // all that the step is about; of kPermute none
  std::size_t dim = 0, to_dim = 0;
  Placement to;  // after the step

  bool operator==(const ReshardStep&) const = default;
};

// Do devices exchange data? Slices, pads, masks and relabels are free on a machine.
bool communicates(const ReshardStep& step);
// "AllGather over (X,Y) along dimension 0", "AllToAll over X from dimension 0 to 1", "ReduceScatter
// over X along dimension 1", "AllReduce over X", "slice over X along dimension 0", ...
std::string to_string(const ReshardStep& step);

// The steps, in order; none between equal placements. Fit every shape that both placements fit.
// Slices come as early as they can, sums before exchanges, exchanges before gathers, what writes
// zeros last. Error: axes that would become unreduced with kind max or min, unreduced axes that
// would change their kind.
std::vector<ReshardStep> plan_reshard(const Placement& from, const Placement& to, const Mesh& mesh);
// One line a step; "nothing moves" for none.
std::string to_string(const std::vector<ReshardStep>& plan);

// Carries out plan_reshard; blocks that stay what they are are not copied. Terms of a sum are added
// in ascending order of the devices, in f32 for floats of 16 and 8 bits, rounded once however many
// axes and steps the sum takes; integers wrap; bool: or. Error as plan_reshard, and as
// check_placement for the new placement.
Sharded reshard(const Sharded& x, const Placement& placement);

}  // namespace kref
