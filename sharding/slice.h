// SPDX-License-Identifier: Apache-2.0
// Slice: chips with their links, and which of the links an axis of a mesh has
// (sharding_semantics 1.2, 5.2).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/chip.h"
#include "sharding/mesh.h"

namespace kref {

// A row of chips that exchange, one step of a path along an axis of a slice. Every `stride`-th chip
// of that axis belongs to the row; the `stride` rows that lie in each other share its links.
struct LinkAxis {
  Index size = 1;
  bool wraps = false;
  Index stride = 1;
  bool network = false;  // no links: over the data-center network, between slices

  bool operator==(const LinkAxis&) const = default;
};

// Chips along each axis of the links, 1 where there is none.
struct Slice {
  Chip chip;
  std::vector<Index> shape;  // as many as the chip has axes of links
  std::vector<bool> wraps;

  Index chip_count() const;
};

// "4x4x4", at most as many axes as the chip has. Error: more, a size below 1, one that no pod has
// in any order of the axes, text that is no shape.
Slice make_slice(const Chip& chip, std::vector<Index> shape);
Slice parse_slice(const Chip& chip, std::string_view text);
// The shape of so many chips that is nearest to a cube, with as many wrapping axes as there can be.
// Error when no pod has such a slice.
Slice cubic_slice(const Chip& chip, Index chips);
// "v5p 4x4x4, all axes wrap", "v5e 8x16, axis 1 wraps", "v5e 4x4, no axis wraps".
std::string to_string(const Slice& slice);

// The links of each axis of a mesh, in the order of the mesh.
struct MeshLinks {
  Mesh mesh;
  Slice slice;
  std::vector<std::vector<LinkAxis>> axes;

  // Those of several axes together; sizes of 1 left out. Error for an axis the mesh lacks.
  std::vector<LinkAxis> of(const std::vector<std::string>& names) const;
};

// Lays a mesh over a slice: each axis of the mesh gets whole axes of the slice where that is
// possible; else an axis of the slice is cut: its major part keeps the ring, with every so many-th
// chip, the others are lines. Of the possible layouts the first, with the axes of the mesh in
// order, that cuts least. An axis named in `network` lies between slices: the slice then has the
// chips of the others. Without a slice: the mesh's own shape where the chip has such a slice, else
// the most cubic. Error when the numbers of devices differ, or when there is no layout.
MeshLinks lay_out(const Chip& chip, const Mesh& mesh, const std::optional<Slice>& slice = {},
                  const std::vector<std::string>& network = {});
// "X=8 over a ring of 4 and a line of 2; Y=4 over the network".
std::string to_string(const MeshLinks& links);

}  // namespace kref
