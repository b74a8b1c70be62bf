// SPDX-License-Identifier: Apache-2.0
// Which of the four cases a sharded matmul is (sharding_semantics 3.1), and what each device does.
//
// Per mesh axis the specs of x [*B, M, K], y [*B, K, N] and z [*B, M, N] say:
//   case 1  it shards no contracting dimension: every device multiplies what it has;
//   case 2  it shards K of one operand: that operand is gathered, then as case 1; or, when asked
//           for, the other operand is sliced, which is free, then as case 3;
//   case 3  it shards K of both: partial sums, which are then summed on every device (psum), summed
//           and scattered (psum_scatter: z names the axis too), or kept (z is unreduced over it);
//   case 4  it shards M of x and N of y (or a batch dimension of x, with a y shared by the batch):
//           z can keep one of the two, the other operand is gathered first.
// Beyond that an operand that is whole along an axis may be sliced for free when z names the axis.
// z itself is never gathered: a z that drops an axis of its rows or columns is refused.
//
// The order of sums. Without partial sums every element is one sum along k, and has the bits of the
// unsharded product. With them each device sums its block of K, in the accumulator's type; the
// blocks' sums are added in ascending order of the blocks, which is the devices' group rank along
// the axes as the spec lists them; the result is rounded to the type of z once.
#pragma once

#include <string>
#include <vector>

#include "sharding/mesh.h"
#include "sharding/partition_spec.h"

namespace kref {

// The global sizes of one matmul, and how its operands are stored.
struct MatmulShape {
  std::vector<Index> batch = {};  // *B
  Index m = 0, n = 0, k = 0;
  bool shared_y = false;  // y is [K, N], whatever the batch
  bool trans_x = false;   // x is stored [*B, K, M]
  bool trans_y = false;   // y is stored [*B, N, K]

  std::vector<Index> x() const;  // as stored
  std::vector<Index> y() const;
  std::vector<Index> z() const;
};

// The case a run is counted as. With several mesh axes there may be more than one: contraction
// first (case 3, then 2), then 4.
enum class MatmulCase { kNoContraction = 1, kOneSide = 2, kBothSides = 3, kFreeConflict = 4 };

// What case 2 does. What is smaller may travel: gathering moves the operand, slicing the sums of z.
enum class OneSidedK { kGather, kSlice };

// A dimension of x [*B, rows, contraction], y [*B, contraction, columns] or z [*B, rows, columns].
struct MatmulDim {
  enum class Kind { kNone, kBatch, kRows, kContraction, kColumns };
  Kind kind = Kind::kNone;  // none: the array as a whole
  std::size_t batch = 0;    // which of *B, for kBatch
  bool operator==(const MatmulDim&) const = default;
};

// Something every device does, along one dimension of one array, over some mesh axes (first major).
struct MatmulStep {
  enum class Kind { kAllGather, kSlice, kMultiply, kPsumScatter, kPsum, kKeepPartial };
  Kind kind;
  std::string operand;  // "x", "y", "z"
  MatmulDim dim;
  std::vector<std::string> axes;

  bool operator==(const MatmulStep&) const = default;
};

// Elements begin .. end - 1 of the contraction.
struct ContractionRange {
  Index begin = 0, end = 0;
  bool operator==(const ContractionRange&) const = default;
};

// A sharded matmul with its case and steps, as place_matmul decides them.
struct MatmulPlacement {
  Mesh mesh;
  MatmulShape shape;
  OutSpec out;
  MatmulCase which = MatmulCase::kNoContraction;
  // Axes that shard K of both operands as they are multiplied: of case 3, and of case 2 where the
  // other operand is sliced; else empty.
  std::vector<std::string> contraction;
  MatmulShape local;              // what one device multiplies, once it has gathered
  std::vector<MatmulStep> steps;  // in order

  // Shape of the output with its leading dimensions, one an unreduced axis.
  std::vector<Index> output_shape() const { return stacked_shape(out, shape.z(), mesh); }
  // The part of K that a device sums.
  ContractionRange contraction_range(Index device) const;
};

// Decides the case. Error, naming axes and specs, when a spec does not fit its array (check_spec)
// and when x, y and z fit none of the cases:
// - contracting dimensions sharded over different axes, or over the same in a different order;
// - batch dimensions of x and y sharded differently;
// - OneSidedK::kSlice where the operand to be sliced is sharded over one of the axes elsewhere;
// - z unreduced over an axis that does not shard K of both as they are multiplied;
// - z without an axis that its rows, columns or batch have, unless the other operand's keep it;
// - z with the axes of a dimension in another order than gathering and scattering gives.
// The mesh may be of any size (check_runnable is for whoever runs it). z of rank 7 is refused.
MatmulPlacement place_matmul(const Mesh& mesh, const MatmulShape& shape, const PartitionSpec& x,
                             const PartitionSpec& y, const OutSpec& z,
                             OneSidedK one_sided = OneSidedK::kGather);

// Which parts of K each leading index of the output sums: an entry for every combination of indices
// along the unreduced axes, row-major in their order (one entry when there are none), and in it the
// ranges whose sums are added up, in the order in which they are added. Never empty; a single range
// 0 .. K without partial sums. For meshes that check_runnable passes: as many ranges as blocks of
// K.
std::vector<std::vector<ContractionRange>> contraction_parts(const MatmulPlacement& placement);

// Several lines: the case, then a line a step ("all_gather y along contraction over X").
std::string to_string(const MatmulPlacement& placement);
std::string to_string(const MatmulStep& step);
// "rows", "contraction", "columns", "batch 0"; "" of the whole.
std::string to_string(const MatmulDim& dim);
// "case 2 (contraction sharded on one side)".
std::string to_string(MatmulCase which);

}  // namespace kref
