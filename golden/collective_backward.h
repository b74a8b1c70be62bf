// SPDX-License-Identifier: Apache-2.0
// What the devices do in the reverse-mode twin of a collective: compute_collective runs it and
// plan_collective prints it.
#pragma once

#include <optional>
#include <vector>

#include "golden/collective_run.h"

namespace kref {

// The collectives in order, on ct.y and then on ct.x.
struct CollectiveBackward {
  // Is it the program of check_vma=True? There what is handed out again, or was replicated, is
  // summed on the way back, and each device takes its block of ct.y as it is. Where that has no
  // such program (a psum of groups, an output that is only said to be replicated) the collective is
  // transposed as under check_vma=False, and of the devices that hold the same block of y that with
  // index 0 takes it, the others zeros.
  bool checked = false;
  std::vector<Psum> of_y;                     // sums of ct.y
  std::optional<LinearCollective> transpose;  // makes ct.x of ct.y; none without an axis
  std::vector<Psum> of_x;                     // sums of ct.x
};

// Of a run of a .vjp.
CollectiveBackward backward_of(const CollectiveRun& run);

}  // namespace kref
