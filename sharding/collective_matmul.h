// SPDX-License-Identifier: Apache-2.0
// collective_matmul: a sharded product whose blocks are multiplied while others travel round a ring
// of devices (sharding_semantics 4.1 to 4.3), in the place of a gather before the product or of a
// reduce-scatter behind it.
//
// Along `axis_name`, with n devices, d this one's index, and block the n-th part of a dimension:
// - all_gather: an operand's blocks go round. At step i device d multiplies block
//   gathered_block(d, i, n, shift) and sends it on by `shift`; n products, n - 1 permutes. Of a
//   contracting dimension the products are added up, of rows or columns each is a block of z;
// - reduce_scatter: partial sums of the blocks of z go round. At step i device d adds its product
// for
//   block scattered_block(d, i, n, shift) to what arrived; the last one is its own, d.
// kOne: whole blocks, shifted by -1 (y's contracting dimension, as in the JAX documentation, by
// +1). kBoth: the first half of each block by +1 and the other half by -1, so that both links of a
// ring carry half the bytes; of a block of odd extent the other half is the longer one.
//
// Numbers. Sums run in the accumulator's type in one chain along k in the order in which blocks
// come by (reduce_scatter: a chain a device, which are added in the order in which they come by),
// and are rounded once. That order differs between devices: floats differ in their last bits from
// the product of the same specs by sharded_matmul, integers do not.
//
// On threads "travelling" means that the next device copies when it needs the block: what overlaps
// is the waiting for others (pending.h).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "sharding/sharded_matmul.h"

namespace kref {

// Which collective of the placed product becomes a ring.
enum class MatmulForm { kAllGather, kReduceScatter };
// "all_gather", "reduce_scatter".
const char* name_of(MatmulForm form);

// Whether blocks go round as a whole, or their halves in opposite directions.
enum class RingDirection { kOne, kBoth };
// "one", "both".
const char* name_of(RingDirection direction);

// What goes round: blocks of an operand, or partial sums of blocks of z.
enum class RingTraveller { kXContraction, kYContraction, kXRows, kYColumns, kZRows, kZColumns };
// "x's contracting dimension", "y's columns", "z's rows".
const char* to_string(RingTraveller traveller);

// A placed product with the step of it that becomes a ring.
struct RingPlan {
  MatmulPlacement placement;  // as matmul has it
  std::string axis_name;
  MatmulForm form = MatmulForm::kAllGather;
  RingDirection direction = RingDirection::kOne;
  RingTraveller traveller = RingTraveller::kXContraction;
  // Steps of the placement that stay collectives of their own, before and behind the ring.
  MatmulPlacement rest;
};

// Finds the step. `form`: what is expected, refused when the specs ask for the other one. Error,
// naming axis and steps: batch dimensions; an axis that the mesh lacks; a placement in which none
// or more than one step is over the axis, in which it is over several axes of which this one is not
// the first, in which it is no gather or scatter, or in which z is scattered along the same
// dimension before.
RingPlan plan_ring(const MatmulPlacement& placement, const std::string& axis_name,
                   std::optional<MatmulForm> form = {},
                   RingDirection direction = RingDirection::kOne);
// "round X: x's contracting dimension, all_gather, one direction".
std::string to_string(const RingPlan& plan);

// What one device does, as matmul_work; the ring's own transfer is "ring(X) of x".
MatmulWork ring_work(const RingPlan& plan, DType dtype);

// Which block a device of index `rank` works on at a step, where everything is shifted by `shift`
// (+1 or -1) after each: of an operand that goes round, and of partial sums.
Index gathered_block(Index rank, Index step, Index n, Index shift);
Index scattered_block(Index rank, Index step, Index n, Index shift);

// What goes round where, how the local products are computed, and the launch.
struct CollectiveMatmulOptions {
  std::string axis_name = {};
  std::optional<MatmulForm> form = {};  // not set: whichever the specs ask for
  RingDirection direction = RingDirection::kOne;
  bool trans_x = false;                   // x is stored [K, M]
  bool trans_y = false;                   // y is stored [N, K]
  Precision precision = Precision::kF32;  // of f32 operands
  // Of z: any float type for floats. Not set: as x; s32 of s8 and u8.
  std::optional<DType> out_dtype = {};
  LaunchOptions launch = {};
};

// z [M, N] = x [M, K] y [K, N]; global arrays. Error, before a device starts: as sharded_matmul and
// plan_ring.
Array collective_matmul(const Mesh& mesh, const MatmulSpecs& specs, const ShardArgument& x,
                        const ShardArgument& y, const CollectiveMatmulOptions& options,
                        CallSite where = CallSite::here());

// One device's part, for bodies of one's own, as matmul_block. Of the options axis_name, form,
// direction and launch say nothing: the plan does.
Array collective_matmul_block(Device& device, const RingPlan& plan, const Array& x, const Array& y,
                              const CollectiveMatmulOptions& options = {},
                              CallSite where = CallSite::here());

// The cotangents of x and y for that of z, each again a collective matmul over the same axis: the
// transpose of gathering an operand is scattering its cotangent, and the other operand's cotangent
// is multiplied while blocks go round again. ct has the specs of z, which keeps no partial sums;
// out_dtype is that of the cotangents. Over axes along which an operand is replicated its cotangent
// is summed, once. Error as for collective_matmul, where one of them is no ring over the axis.
std::pair<Array, Array> collective_matmul_vjp(const Mesh& mesh, const MatmulSpecs& specs,
                                              const ShardArgument& x, const ShardArgument& y,
                                              const ShardArgument& ct,
                                              const CollectiveMatmulOptions& options,
                                              CallSite where = CallSite::here());

}  // namespace kref
