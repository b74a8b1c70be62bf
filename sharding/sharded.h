// SPDX-License-Identifier: Apache-2.0
// Sharded: a global array that lives on a mesh, one Array a device (jax.Array with a
// NamedSharding). What moves between two placements: reshard.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/array.h"
#include "sharding/placement.h"

namespace kref {

// Devices may share memory: blocks are not written any more once they are on a mesh. Debug builds
// check the replicas of every Sharded that is made (check_replicas).
class Sharded {
 public:
  // Of blocks that are there already: of device 0, 1, ..., each of the shape of a block. Along axes
  // that do not split it, the blocks are its replicas or, where unreduced, its terms. Error, naming
  // `name`: as check_placement, check_runnable; another number of blocks than devices; by device, a
  // block of another shape or element type.
  Sharded(Mesh mesh, std::vector<Index> shape, Placement placement, std::vector<Array> blocks,
          std::string_view name = "sharded array");

  const Mesh& mesh() const { return mesh_; }
  DType dtype() const { return blocks_[0].dtype(); }
  // Of the global array, without a dimension for its terms.
  std::span<const Index> shape() const { return shape_; }
  const Placement& placement() const { return placement_; }
  const Array& block(Index device) const { return blocks_[static_cast<std::size_t>(device)]; }
  std::span<const Array> blocks() const { return blocks_; }
  // "f32[8@X,4]{U:Y}".
  std::string type() const { return type_string(dtype(), shape_, placement_, mesh_); }

 private:
  Mesh mesh_;
  std::vector<Index> shape_;
  Placement placement_;
  std::vector<Array> blocks_;
};

// Puts a global array on a mesh. Blocks that are contiguous stay where they are; unreduced: index 0
// along those axes gets the value, the others zeros. Error as check_placement, naming `name`; for
// an unreduced_kind of max or min.
Sharded shard(const Mesh& mesh, const Array& global, const Placement& placement,
              std::string_view name = "array");

// The global array: any replica, the terms of an unreduced one combined in ascending order of their
// devices (reshard.h). check: compare all replicas first, as debug builds do always.
Array unshard(const Sharded& x, bool check = false);

// An unreduced array with a leading dimension for the terms along each unreduced axis, in the order
// of placement.unreduced: as run files hold it (OutSpec). Error as for shard, but kinds; when the
// leading dimensions are not the axes' sizes, or make a rank above 6.
Sharded shard_terms(const Mesh& mesh, const Array& stacked, const Placement& placement,
                    std::string_view name = "array");
Array unshard_terms(const Sharded& x);

// Refuses blocks that ought to be replicas and are not equal bit for bit: names both devices, the
// element of the global array, and both values with their bits.
void check_replicas(const Sharded& x, std::string_view name = "sharded array");

// The same blocks under another placement, which may give another global shape: nothing moves and
// nothing is added up (an identity shard_map with check_vma=False). Error as for the constructor,
// when an extent gets too large.
Sharded relabel(const Sharded& x, const Placement& placement);

}  // namespace kref
