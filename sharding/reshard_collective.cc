// SPDX-License-Identifier: Apache-2.0
#include "sharding/reshard_collective.h"

#include <algorithm>
#include <map>

namespace kref {
namespace {

// What a device holds under a placement: its block along each dimension, its term.
std::vector<Index> holding(const Placement& placement, std::size_t rank, const Mesh& mesh,
                           Index device) {
  std::vector<Index> out;
  for (std::size_t d = 0; d < rank; ++d) {
    out.push_back(block_index(placement.spec[d], mesh, device));
  }
  const std::vector<Index> at = mesh.coordinates(device);
  for (std::size_t k = 0; k < at.size(); ++k) {
    const std::vector<std::string>& terms = placement.unreduced;
    const bool is_term = std::find(terms.begin(), terms.end(), mesh.axes()[k].name) != terms.end();
    out.push_back(is_term ? at[k] : 0);
  }
  return out;
}

Ppermute permute(const Placement& from, const Placement& to, const Mesh& mesh) {
  const std::size_t rank = std::max(from.spec.entries.size(), to.spec.entries.size());
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  Ppermute out{std::move(names), {}};
  // As many devices have a block as need it. Those that do both are left alone.
  struct Sides {
    std::vector<Index> have, need;
  };
  std::map<std::vector<Index>, Sides> blocks;
  for (Index device = 0; device < mesh.device_count(); ++device) {
    const std::vector<Index> old_block = holding(from, rank, mesh, device);
    const std::vector<Index> new_block = holding(to, rank, mesh, device);
    if (old_block == new_block) {
      out.perm.emplace_back(device, device);
      continue;
    }
    blocks[old_block].have.push_back(device);
    blocks[new_block].need.push_back(device);
  }
  for (const auto& [block, sides] : blocks) {
    KREF_DCHECK(sides.have.size() == sides.need.size());
    for (std::size_t i = 0; i < sides.have.size(); ++i) {
      out.perm.emplace_back(sides.have[i], sides.need[i]);
    }
  }
  return out;
}

}  // namespace

std::optional<LinearCollective> collective_of(const ReshardStep& step, const Placement& from,
                                              const Mesh& mesh) {
  const auto dim = static_cast<Index>(step.dim);
  switch (step.kind) {
    case ReshardStep::Kind::kSlice:
      return OwnSlice{.axis_name = step.axes, .axis = dim, .tiled = true};
    case ReshardStep::Kind::kReduceScatter:
      if (from.kind != UnreducedKind::kSum) return {};
      return PsumScatter{.axis_name = step.axes, .scatter_dimension = dim, .tiled = true};
    case ReshardStep::Kind::kAllReduce:
      if (from.kind != UnreducedKind::kSum) return {};
      return Psum{.axis_name = step.axes};
    case ReshardStep::Kind::kAllToAll:
      return AllToAll{.axis_name = step.axes,
                      .split_axis = static_cast<Index>(step.to_dim),
                      .concat_axis = dim,
                      .tiled = true};
    case ReshardStep::Kind::kAllGather:
      return AllGather{.axis_name = step.axes, .axis = dim, .tiled = true};
    case ReshardStep::Kind::kPermute:
      return permute(from, step.to, mesh);
    case ReshardStep::Kind::kPad:
    case ReshardStep::Kind::kMask:
    case ReshardStep::Kind::kRelabel:
      break;
  }
  return {};
}

}  // namespace kref
