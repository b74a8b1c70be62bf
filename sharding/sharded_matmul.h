// SPDX-License-Identifier: Apache-2.0
// sharded_matmul: the product of two arrays that are sharded over a mesh, run on its devices as
// place_matmul plans it (matmul_placement.h: the four cases, the order of sums).
//
// Results have the bits of the unsharded product wherever no partial sums are made; where they are,
// the devices' sums, in the accumulator's type, are added in ascending rank and rounded once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/dot.h"
#include "kernels/matmul.h"
#include "sharding/link_cost.h"
#include "sharding/matmul_placement.h"
#include "sharding/shard_map.h"

namespace kref {

// How the operands and the result are sharded. Unreduced axes of z are leading dimensions of it.
struct MatmulSpecs {
  PartitionSpec x = {}, y = {};
  OutSpec z = {};
};

// How the local product is computed, and the launch.
struct ShardedMatmulOptions {
  bool trans_x = false;                   // x is stored [*B, K, M]
  bool trans_y = false;                   // y is stored [*B, N, K]
  Precision precision = Precision::kF32;  // of f32 operands
  // Of z: any float type for floats. Not set: as x; s32 of s8 and u8.
  std::optional<DType> out_dtype = {};
  MatmulTile tile = {};                      // of a device's own grid; changes no bit
  OneSidedK one_sided = OneSidedK::kGather;  // of case 2; matmul_block does as its placement says
  LaunchOptions launch = {};
};

// z [*B, M, N] = x [*B, M, K] y [*B, K, N], or y [K, N]; global arrays. Error, before a device
// starts: shapes that do not fit each other, as place_matmul, as matmul; of the launch.
Array sharded_matmul(const Mesh& mesh, const MatmulSpecs& specs, const ShardArgument& x,
                     const ShardArgument& y, const ShardedMatmulOptions& options = {},
                     CallSite where = CallSite::here());

// The same of operands that live on a mesh, where the product stays: the specs are those of the
// operands, and z's axes that are unreduced keep their terms (so that what follows can sum or
// scatter them). Error also for operands on different meshes, and for one that is unreduced: a
// product of sums is not the sum of products.
Sharded sharded_matmul(const Sharded& x, const Sharded& y, const Placement& z,
                       const ShardedMatmulOptions& options = {}, CallSite where = CallSite::here());

// One device's part, for bodies of one's own: its blocks of x and y in, its block of z out.
// `placement` is what place_matmul made of the specs of those blocks. Every device of the mesh
// calls it.
Array matmul_block(Device& device, const MatmulPlacement& placement, const Array& x, const Array& y,
                   const ShardedMatmulOptions& options = {}, CallSite where = CallSite::here());

// What one device does for a placement: the multiplications and additions of its local product
// (2 M N K of its sizes), and what each collective sends.
struct MatmulWork {
  struct Transfer {
    std::string collective;  // "all_gather(X, axis=0, tiled=true) of y"
    double bytes = 0;  // that one device sends, by the ring algorithms (sharding_semantics 2.6)
    Traffic traffic = Traffic::kAllGather;
    std::vector<std::string> axes = {};  // of the mesh, first major
  };
  double flops = 0;
  std::vector<Transfer> transfers;

  // Of all transfers together.
  double bytes() const;
};

// Element type of x and y. Partial sums travel in the accumulator's type.
MatmulWork matmul_work(const MatmulPlacement& placement, DType dtype);
// "1.31e+05 flops a device" and then a line a transfer.
std::string to_string(const MatmulWork& work);

}  // namespace kref
