// SPDX-License-Identifier: Apache-2.0
// What a matmul run computes and what it ought to give, on one device or sharded: the part of the
// operation that knows how the sums of a sharded product are cut.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "golden/expectation.h"
#include "golden/matmul_op.h"

namespace kref {

// The outputs of a validated run, by kref's kernel; with a mesh by the devices of that mesh
// (sharding/sharded_matmul.h).
std::map<std::string, Array> compute_matmul(const Run& run);

// Some ranges of the contracting dimension of x (k_last unless trans_x) or y (k_last when trans_y),
// side by side: a dense copy.
Array contraction_copy(const Array& operand, bool k_last,
                       const std::vector<ContractionRange>& ranges);

}  // namespace kref
