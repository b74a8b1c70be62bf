// SPDX-License-Identifier: Apache-2.0
// PartitionSpec: which mesh axes split which dimensions of a global array, as
// jax.sharding.PartitionSpec; and where that puts its elements.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/dtype.h"
#include "sharding/mesh.h"

namespace kref {

// The type of `none`.
struct None {};
// The entry of a dimension that is not split: P{"X", none}.
inline constexpr None none;

// One entry as it is written in P{"X", none, axes("Y", "Z")}.
struct SpecEntry {
  std::vector<std::string> axes;

  SpecEntry(None) {}
  SpecEntry(const char* axis) : axes{axis} {}
  SpecEntry(std::string axis) : axes{std::move(axis)} {}
  explicit SpecEntry(std::vector<std::string> several) : axes(std::move(several)) {}
};

// A dimension split over several axes, the first one major: P{axes("X", "Y"), none}.
template <class... Names>
SpecEntry axes(const Names&... names) {
  return SpecEntry(std::vector<std::string>{std::string(names)...});
}

// One entry a dimension: the mesh axes that split it, the first one major (slowest). Empty, or the
// one name "": not split, as are the dimensions past the last entry. So None, "" and () are the
// same entry, and so are ("X",) and "X".
struct PartitionSpec {
  std::vector<std::vector<std::string>> entries;

  PartitionSpec() = default;  // replicated
  PartitionSpec(std::initializer_list<SpecEntry> list) {
    for (const SpecEntry& entry : list) entries.push_back(entry.axes);
  }

  // X,None,(Y,Z) or P('X', None, ('Y', 'Z')); the empty text and P() are replicated. Names may be
  // quoted in both, a tuple may be a list. Error that says what stands where it should not.
  static PartitionSpec parse(std::string_view text);

  // The axes of dimension d, at any d; empty when it is not split.
  std::span<const std::string> operator[](std::size_t d) const {
    if (d >= entries.size() || (entries[d].size() == 1 && entries[d][0].empty())) return {};
    return entries[d];
  }
  // Does any dimension name the axis?
  bool names(std::string_view axis) const;

  // The same sharding of any array: equal up to the spelling of None and trailing ones.
  bool operator==(const PartitionSpec& other) const;
};
using P = PartitionSpec;

// How an output leaves: along the axes of `unreduced` each device keeps its own partial sum, and
// the global array gets a leading dimension an axis, in this order; `spec` describes the rest.
struct OutSpec {
  PartitionSpec spec;
  std::vector<std::string> unreduced;

  // As PartitionSpec::parse, and P('X', None, unreduced={'Y', 'Z'}).
  static OutSpec parse(std::string_view text);

  bool operator==(const OutSpec&) const = default;
};

// "P('X', None, ('Y', 'Z'))"; "P('X', unreduced={'Y'})".
std::string to_string(const PartitionSpec& spec);
std::string to_string(const OutSpec& spec);
// The axes of one dimension: "none", "X", "(X,Y)".
std::string axes_string(std::span<const std::string> axes);
// A set of axes: "{}", "{X}", "{X,Y}".
std::string set_string(std::span<const std::string> axes);

// Refuses a spec that does not fit an array (JAX's rules, sharding_semantics 1.4): an axis that the
// mesh lacks, an axis used twice, more entries than dimensions, a dimension that the devices do not
// divide: nothing is padded. `operand` names the array in the message. The OutSpec form is for an
// array of `shape` without the leading dimensions; unreduced axes must be in the mesh and unused.
void check_spec(const PartitionSpec& spec, std::span<const Index> shape, const Mesh& mesh,
                std::string_view operand);
void check_spec(const OutSpec& spec, std::span<const Index> shape, const Mesh& mesh,
                std::string_view operand);

namespace detail {
// Refuses axes beside those of a spec ("unreduced", "reduced"): one that the mesh lacks, one twice,
// one that splits a dimension too. `subject` begins the message.
void check_axis_set(const char* set, std::span<const std::string> axes, const PartitionSpec& spec,
                    const Mesh& mesh, const std::string& subject);
}  // namespace detail

// What follows holds for specs that check_spec passed.

// Into how many blocks these axes cut a dimension: the product of their sizes.
Index block_count(std::span<const std::string> axes, const Mesh& mesh);

// Which block of a dimension split over `axes` a device owns: its index along the axes, flattened,
// first major. Block b is elements b * n .. (b + 1) * n - 1 with n = extent / block_count.
Index block_index(std::span<const std::string> axes, const Mesh& mesh, Index device);

// Shape of one device's block.
std::vector<Index> local_shape(const PartitionSpec& spec, std::span<const Index> shape,
                               const Mesh& mesh);

// Shape of the whole array with its leading dimensions, one an unreduced axis.
std::vector<Index> stacked_shape(const OutSpec& spec, std::span<const Index> shape,
                                 const Mesh& mesh);

// For each mesh axis the index of the devices that hold element `at`, -1 where every index does
// (the array is replicated along that axis). `shape` and `at` are those of the whole array: for an
// OutSpec with the leading dimensions.
std::vector<Index> owner_coordinates(const OutSpec& spec, std::span<const Index> shape,
                                     const Mesh& mesh, std::span<const Index> at);
// The numbers of those devices, ascending.
std::vector<Index> owners(const OutSpec& spec, std::span<const Index> shape, const Mesh& mesh,
                          std::span<const Index> at);
// The same for people: "(X=1, Y=0)"; "(X=1, Y=0..3)" when all four along Y hold it.
std::string owner_name(const OutSpec& spec, std::span<const Index> shape, const Mesh& mesh,
                       std::span<const Index> at);

// The type as JAX prints it: "f32[8@X,4@(Y,Z)]", "f32[8,4]{U:Y}". `shape` without leading
// dimensions; unreduced axes in mesh order.
std::string type_string(DType dtype, std::span<const Index> shape, const OutSpec& spec,
                        const Mesh& mesh);

}  // namespace kref
