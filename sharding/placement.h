// SPDX-License-Identifier: Apache-2.0
// Placement: where a global array lives on a mesh, with what its copies mean: the whole of
// jax.P(..., unreduced=, reduced=, unreduced_kind=) (sharding_semantics 1.1, 1.3, 1.4).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/partition_spec.h"

namespace kref {

// What combines the terms of an unreduced value.
enum class UnreducedKind { kSum, kMax, kMin };
// "sum", "max", "min".
const char* to_string(UnreducedKind kind);

// The axes of a placement that split no dimension but are not plainly replicated. Sets: the order
// says nothing.
struct PlacementSets {
  std::vector<std::string> unreduced = {};  // every device along them holds a full-size term
  std::vector<std::string> reduced = {};    // replicated, and the cotangent is unreduced
  UnreducedKind kind = UnreducedKind::kSum;
};

// Placement(P{"X"}, {.unreduced = {"Y"}}) is jax.P('X', unreduced={'Y'}).
struct Placement {
  PartitionSpec spec;
  std::vector<std::string> unreduced;
  std::vector<std::string> reduced;
  UnreducedKind kind = UnreducedKind::kSum;  // of `unreduced`

  Placement() = default;  // replicated
  Placement(PartitionSpec entries, PlacementSets sets = {})
      : spec(std::move(entries)),
        unreduced(std::move(sets.unreduced)),
        reduced(std::move(sets.reduced)),
        kind(sets.kind) {}

  // As OutSpec::parse, and P('X', unreduced={'Y'}, reduced={'Z'}, unreduced_kind=max).
  static Placement parse(std::string_view text);

  // The same sharding of any array: specs up to trailing Nones, sets as sets.
  bool operator==(const Placement& other) const;
};

// "P('X', unreduced={'Y'}, reduced={'Z'})"; unreduced_kind where it is not the sum.
std::string to_string(const Placement& placement);

// Refuses what does not fit an array on a mesh: as check_spec; a reduced axis that the mesh lacks,
// that is named twice or also splits a dimension or is unreduced; a kind without unreduced axes.
void check_placement(const Placement& placement, std::span<const Index> shape, const Mesh& mesh,
                     std::string_view operand);

// What follows holds for placements that check_placement passed.

// Does every device hold the whole array, and is that the array? Not with an unreduced axis.
bool is_fully_replicated(const Placement& placement, const Mesh& mesh);
// Axes that neither split a dimension nor are unreduced or reduced; in mesh order.
std::vector<std::string> replicated_axes(const Placement& placement, const Mesh& mesh);

// Placement of the cotangent of a value: unreduced and reduced change places. Error for an
// unreduced value of kind max or min, which has none.
Placement cotangent(const Placement& placement);

// The type as JAX prints it, axes in mesh order: "f32[8@X,4@(Y,Z)]{U:x, R:y}". The kind does not
// show.
std::string type_string(DType dtype, std::span<const Index> shape, const Placement& placement,
                        const Mesh& mesh);

}  // namespace kref
