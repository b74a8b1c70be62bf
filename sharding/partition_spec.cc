// SPDX-License-Identifier: Apache-2.0
#include "sharding/partition_spec.h"

#include <algorithm>

#include "dsl/array.h"
#include "sharding/spelling.h"

namespace kref {
namespace {

// "dimension 2 and dimension 0", "dimension 1 twice": where an axis stands the second time.
std::string places(std::size_t first, std::size_t second) {
  if (first == second) return detail::cat("dimension ", first, " twice");
  return detail::cat("dimensions ", first, " and ", second);
}

// Every axis is in the mesh and splits one dimension at most.
void check_axes(const PartitionSpec& spec, const Mesh& mesh, const std::string& subject) {
  std::vector<std::size_t> place(mesh.axes().size(), spec.entries.size());  // unused
  for (std::size_t d = 0; d < spec.entries.size(); ++d) {
    for (const std::string& axis : spec[d]) {
      const std::optional<std::size_t> k = mesh.find(axis);
      KREF_CHECK(k, subject, " names axis '", abridged(axis), "' in dimension ", d,
                 ", which is not in the mesh ", to_string(mesh),
                 " (resource axis not found in mesh)");
      KREF_CHECK(place[*k] == spec.entries.size(), subject, " names axis '", axis, "' in ",
                 places(place[*k], d),
                 "; at most one positional dimension per mesh axis (DuplicateSpecError)");
      place[*k] = d;
    }
  }
}

}  // namespace

bool PartitionSpec::names(std::string_view axis) const {
  for (std::size_t d = 0; d < entries.size(); ++d) {
    if (contains((*this)[d], axis)) return true;
  }
  return false;
}

bool PartitionSpec::operator==(const PartitionSpec& other) const {
  for (std::size_t d = 0; d < std::max(entries.size(), other.entries.size()); ++d) {
    const std::span<const std::string> a = (*this)[d], b = other[d];
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) return false;
  }
  return true;
}

namespace {

std::string listed(std::span<const std::string> axes, char open, char close) {
  std::string out(1, open);
  for (const std::string& axis : axes) {
    if (out.size() > 1) out += ',';
    out += axis;
  }
  return out + close;
}

}  // namespace

std::string axes_string(std::span<const std::string> axes) {
  if (axes.empty()) return "none";
  return axes.size() == 1 ? axes[0] : listed(axes, '(', ')');
}

std::string set_string(std::span<const std::string> axes) { return listed(axes, '{', '}'); }

void check_spec(const PartitionSpec& spec, std::span<const Index> shape, const Mesh& mesh,
                std::string_view operand) {
  const std::string subject = detail::cat(std::string(operand), ": spec ", to_string(spec));
  KREF_CHECK(spec.entries.size() <= shape.size(), subject, ", which has length ",
             spec.entries.size(), ", does not fit the array ", shape_string(shape),
             ", which has rank ", shape.size(), shape.empty() ? "; a scalar takes P()" : "");
  check_axes(spec, mesh, subject);
  for (std::size_t d = 0; d < spec.entries.size(); ++d) {
    const Index count = block_count(spec[d], mesh);
    KREF_CHECK(shape[d] % count == 0, std::string(operand), ": dimension ", d, " of size ",
               shape[d], " is not divisible by the ", count, " devices of axis ",
               axes_string(spec[d]), " (array ", shape_string(shape), ", spec ", to_string(spec),
               ", mesh ", to_string(mesh), "); ", count,
               " does not evenly divide the dimension size");
  }
}

void check_spec(const OutSpec& out, std::span<const Index> shape, const Mesh& mesh,
                std::string_view operand) {
  check_spec(out.spec, shape, mesh, operand);
  const std::string subject = detail::cat(std::string(operand), ": spec ", to_string(out));
  detail::check_axis_set("unreduced", out.unreduced, out.spec, mesh, subject);
}

void detail::check_axis_set(const char* set, std::span<const std::string> axes,
                            const PartitionSpec& spec, const Mesh& mesh,
                            const std::string& subject) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::string& axis = axes[i];
    KREF_CHECK(mesh.find(axis), subject, " has the ", set, " axis '", abridged(axis),
               "', which is not in the mesh ", to_string(mesh));
    KREF_CHECK(!contains(axes.first(i), axis), subject, " has the ", set, " axis '", axis,
               "' twice");
    KREF_CHECK(!spec.names(axis), subject, " has the axis '", axis, "' both ", set,
               " and splitting a dimension");
  }
}

Index block_count(std::span<const std::string> axes, const Mesh& mesh) {
  Index count = 1;  // divides the device count: cannot overflow
  for (const std::string& axis : axes) count *= mesh.size(axis);
  return count;
}

Index block_index(std::span<const std::string> axes, const Mesh& mesh, Index device) {
  const std::vector<Index> at = mesh.coordinates(device);
  Index block = 0;
  for (const std::string& axis : axes) {
    const std::size_t k = mesh.index(axis);
    block = block * mesh.axes()[k].size + at[k];
  }
  return block;
}

std::vector<Index> local_shape(const PartitionSpec& spec, std::span<const Index> shape,
                               const Mesh& mesh) {
  std::vector<Index> local(shape.begin(), shape.end());
  for (std::size_t d = 0; d < local.size(); ++d) local[d] /= block_count(spec[d], mesh);
  return local;
}

std::vector<Index> stacked_shape(const OutSpec& out, std::span<const Index> shape,
                                 const Mesh& mesh) {
  std::vector<Index> stacked;
  for (const std::string& axis : out.unreduced) stacked.push_back(mesh.size(axis));
  stacked.insert(stacked.end(), shape.begin(), shape.end());
  return stacked;
}

std::vector<Index> owner_coordinates(const OutSpec& out, std::span<const Index> shape,
                                     const Mesh& mesh, std::span<const Index> at) {
  KREF_DCHECK(shape.size() == at.size() && shape.size() >= out.unreduced.size());
  std::vector<Index> owner(mesh.axes().size(), -1);
  const std::size_t leading = out.unreduced.size();
  for (std::size_t u = 0; u < leading; ++u) owner[mesh.index(out.unreduced[u])] = at[u];
  for (std::size_t d = leading; d < shape.size(); ++d) {
    const std::span<const std::string> axes = out.spec[d - leading];
    if (axes.empty()) continue;
    // The block's number, taken apart again: the last axis is the quickest.
    Index block = at[d] / (shape[d] / block_count(axes, mesh));
    for (std::size_t a = axes.size(); a-- > 0;) {
      const std::size_t k = mesh.index(axes[a]);
      owner[k] = block % mesh.axes()[k].size;
      block /= mesh.axes()[k].size;
    }
  }
  return owner;
}

std::vector<Index> owners(const OutSpec& out, std::span<const Index> shape, const Mesh& mesh,
                          std::span<const Index> at) {
  std::vector<Index> devices{0};
  const std::vector<Index> owner = owner_coordinates(out, shape, mesh, at);
  for (std::size_t k = 0; k < owner.size(); ++k) {
    const Index size = mesh.axes()[k].size;
    std::vector<Index> longer;  // numbers of the mesh made of axes 0..k
    for (const Index device : devices) {
      if (owner[k] >= 0) {
        longer.push_back(device * size + owner[k]);
      } else {
        for (Index i = 0; i < size; ++i) longer.push_back(device * size + i);
      }
    }
    devices = std::move(longer);
  }
  return devices;
}

std::string owner_name(const OutSpec& out, std::span<const Index> shape, const Mesh& mesh,
                       std::span<const Index> at) {
  const std::vector<Index> owner = owner_coordinates(out, shape, mesh, at);
  std::string name = "(";
  for (std::size_t k = 0; k < owner.size(); ++k) {
    const MeshAxis& axis = mesh.axes()[k];
    if (k > 0) name += ", ";
    if (owner[k] >= 0 || axis.size == 1) {
      name += detail::cat(axis.name, "=", std::max<Index>(owner[k], 0));
    } else {
      name += detail::cat(axis.name, "=0..", axis.size - 1);
    }
  }
  return name + ")";
}

}  // namespace kref
