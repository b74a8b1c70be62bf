// SPDX-License-Identifier: Apache-2.0
// The steps of a placed matmul as the collectives that carry them out: what matmul_block runs and
// matmul_work prices. Internal to sharding/.
#pragma once

#include <variant>
#include <vector>

#include "sharding/collectives.h"
#include "sharding/matmul_placement.h"
#include "sharding/sharded_matmul.h"

namespace kref::detail {

// The local product.
struct LocalProduct {};

// Partial sums whose members each want another part of the sum, which no single collective cuts
// like that: each member lays the parts out by rank, and gets its own from a psum_scatter over
// them. So the terms of an element are added in one chain, in ascending rank.
struct ScatterParts {
  PsumScatter sum;               // over the parts, untiled
  std::vector<MatmulStep> cuts;  // of z, in order: they say which part a device wants
};

// One step on one array.
struct MatmulAction {
  char operand = 'x';  // 'x', 'y', 'z'
  std::variant<LocalProduct, AllGather, OwnSlice, Psum, PsumScatter, ScatterParts> what;
};

std::vector<MatmulAction> matmul_actions(const MatmulPlacement& placement);

// Runs one action on this device's x, y and z, which are operands[0], [1] and [2]. The product
// takes the place of its operands.
void run_action(Device& device, const MatmulPlacement& placement, const MatmulAction& action,
                Array (&operands)[3], const ShardedMatmulOptions& options, CallSite where);

// The global sizes, from the arrays. Error, beginning with `context`, as matmul_sizes; where x and
// y are not of one element type that has a product.
MatmulShape matmul_shape(const ArrayRef& x, const ArrayRef& y, bool trans_x, bool trans_y,
                         const char* context);

// The element type of z: what was asked for, else as x; s32 of integers.
DType matmul_result_type(DType in, const std::optional<DType>& asked);

// Dimension of an array, as stored, that a step works along.
std::size_t stored_dimension(const MatmulShape& shape, const MatmulStep& step);

}  // namespace kref::detail
