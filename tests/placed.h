// SPDX-License-Identifier: Apache-2.0
// What each device of a mesh has to hold, by plain loops over coordinates: shares nothing with
// sharding/ but the types.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "sharding/sharded.h"

namespace kref {

using Indices = std::vector<Index>;

inline bool in_set(const std::vector<std::string>& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Every index of an array, row-major; one empty index for a scalar.
inline std::vector<Indices> all_indices(const Indices& shape) {
  std::vector<Indices> out{{}};
  for (const Index extent : shape) {
    std::vector<Indices> longer;
    for (const Indices& head : out) {
      for (Index i = 0; i < extent; ++i) {
        longer.push_back(head);
        longer.back().push_back(i);
      }
    }
    out = std::move(longer);
  }
  return out;
}

// The coordinates of every device, in device order.
inline std::vector<Indices> all_devices(const Mesh& mesh) {
  Indices sizes;
  for (const MeshAxis& axis : mesh.axes()) sizes.push_back(axis.size);
  return all_indices(sizes);
}

inline std::size_t axis_place(const Mesh& mesh, const std::string& name) {
  std::size_t k = 0;
  while (mesh.axes()[k].name != name) ++k;
  return k;
}

// Which block of a dimension a device has, and of how many: the first axis is major.
struct BlockPlace {
  Index number = 0, count = 1;
};
inline BlockPlace place_of(const std::vector<std::string>& axes, const Mesh& mesh,
                           const Indices& device) {
  BlockPlace out;
  for (const std::string& axis : axes) {
    const std::size_t k = axis_place(mesh, axis);
    out.number = out.number * mesh.axes()[k].size + device[k];
    out.count *= mesh.axes()[k].size;
  }
  return out;
}

inline std::vector<std::string> entry_of(const Placement& placement, std::size_t d) {
  return d < placement.spec.entries.size() ? placement.spec.entries[d] : std::vector<std::string>();
}

// Shape of a device's block.
inline Indices block_shape(const Placement& placement, const Mesh& mesh, const Indices& shape) {
  Indices out = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    out[d] /= place_of(entry_of(placement, d), mesh, Indices(mesh.axes().size(), 0)).count;
  }
  return out;
}

// The index in the global array of element `at` of a device's block.
inline Indices global_index(const Placement& placement, const Mesh& mesh, const Indices& shape,
                            const Indices& device, Indices at) {
  const Indices local = block_shape(placement, mesh, shape);
  for (std::size_t d = 0; d < at.size(); ++d) {
    at[d] += place_of(entry_of(placement, d), mesh, device).number * local[d];
  }
  return at;
}

// A placement of a rank-2 array for each thing that every axis can do: split dimension 0 or 1, in
// either order, be unreduced, reduced, replicated.
inline std::vector<Placement> all_placements(const Mesh& mesh) {
  std::vector<Placement> out{Placement(P{none, none})};
  for (const MeshAxis& axis : mesh.axes()) {
    std::vector<Placement> longer;
    for (const Placement& head : out) {
      longer.push_back(head);
      for (std::size_t d = 0; d < 2; ++d) {
        for (std::size_t i = 0; i <= head.spec.entries[d].size(); ++i) {
          Placement split = head;
          split.spec.entries[d].insert(split.spec.entries[d].begin() + static_cast<Index>(i),
                                       axis.name);
          longer.push_back(std::move(split));
        }
      }
      longer.push_back(head);
      longer.back().unreduced.push_back(axis.name);
      longer.push_back(head);
      longer.back().reduced.push_back(axis.name);
    }
    out = std::move(longer);
  }
  return out;
}

}  // namespace kref
