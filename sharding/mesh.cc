// SPDX-License-Identifier: Apache-2.0
#include "sharding/mesh.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "sharding/spelling.h"

namespace kref {
namespace {

// "Y=4" -> {Y, 4}. `text` is the whole mesh, for the messages.
MeshAxis parse_axis(std::string_view part, const std::string& text) {
  const std::size_t equals = part.find('=');
  KREF_CHECK(equals != part.npos, "mesh '", text, "': '", abridged(trimmed(part)),
             "' is not of the form NAME=SIZE");
  const std::string_view name = trimmed(part.substr(0, equals));
  const std::string_view size = trimmed(part.substr(equals + 1));
  MeshAxis axis{.name = std::string(name)};
  const std::string subject = detail::cat("mesh '", text, "': axis '", abridged(name), "'");
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), axis.size);
  KREF_CHECK(error != std::errc::result_out_of_range, subject, ": size ", abridged(size),
             " does not fit in 64 bits");
  KREF_CHECK(error == std::errc() && end == size.data() + size.size(), subject, ": size '",
             abridged(size), "' is not a whole number");
  return axis;
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  KREF_CHECK(axes_.size() <= kMaxMeshAxes, "mesh: ", axes_.size(), " axes, expected at most ",
             kMaxMeshAxes);
  for (std::size_t k = 0; k < axes_.size(); ++k) {
    const MeshAxis& axis = axes_[k];
    KREF_CHECK(is_axis_name(axis.name), "mesh: axis name '", abridged(axis.name),
               "' is not a name (letters, digits and _, not starting with a digit, not None)");
    for (std::size_t j = 0; j < k; ++j) {
      KREF_CHECK(axes_[j].name != axis.name, "mesh: axis '", axis.name, "' appears twice");
    }
    KREF_CHECK(axis.size >= 1, "mesh: axis '", axis.name, "' has size ", axis.size,
               ", expected at least 1");
    KREF_CHECK(!__builtin_mul_overflow(device_count_, axis.size, &device_count_),
               "mesh: with axis '", axis.name, "' of size ", axis.size,
               " the number of devices does not fit in 64 bits");
  }
}

Mesh Mesh::parse(std::string_view text) {
  const std::string shown = abridged(text);
  KREF_CHECK(!trimmed(text).empty(), "mesh '", shown, "' is empty, expected e.g. X=2,Y=4");
  std::vector<MeshAxis> axes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    KREF_CHECK(axes.size() < kMaxMeshAxes, "mesh '", shown, "': more than ", kMaxMeshAxes, " axes");
    axes.push_back(parse_axis(text.substr(begin, comma - begin), shown));
    begin = comma + 1;
  }
  return Mesh(std::move(axes));
}

std::optional<std::size_t> Mesh::find(std::string_view name) const {
  for (std::size_t k = 0; k < axes_.size(); ++k) {
    if (axes_[k].name == name) return k;
  }
  return std::nullopt;
}

std::size_t Mesh::index(std::string_view name) const {
  const std::optional<std::size_t> k = find(name);
  KREF_CHECK(k, "axis '", abridged(name), "' is not in the mesh ", to_string(*this));
  return *k;
}

std::vector<Index> Mesh::coordinates(Index device) const {
  KREF_CHECK(device >= 0 && device < device_count_, "device ", device, " is not in the mesh ",
             to_string(*this), " of ", device_count_, " devices");
  std::vector<Index> at(axes_.size());
  for (std::size_t k = axes_.size(); k-- > 0;) {
    at[k] = device % axes_[k].size;
    device /= axes_[k].size;
  }
  return at;
}

Index Mesh::device(std::span<const Index> coordinates) const {
  KREF_CHECK(coordinates.size() == axes_.size(), "device of ", coordinates.size(),
             " coordinates, expected ", axes_.size(), " for the mesh ", to_string(*this));
  Index device = 0;
  for (std::size_t k = 0; k < axes_.size(); ++k) {
    KREF_CHECK(coordinates[k] >= 0 && coordinates[k] < axes_[k].size, "device with ", axes_[k].name,
               "=", coordinates[k], " is not in the mesh ", to_string(*this));
    device = device * axes_[k].size + coordinates[k];
  }
  return device;
}

std::string Mesh::device_name(Index device) const {
  const std::vector<Index> at = coordinates(device);
  std::string out = "(";
  for (std::size_t k = 0; k < axes_.size(); ++k) {
    if (k > 0) out += ", ";
    out += detail::cat(axes_[k].name, "=", at[k]);
  }
  return out + ")";
}

std::string to_string(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh.axes()) {
    if (!out.empty()) out += ',';
    out += detail::cat(axis.name, "=", axis.size);
  }
  return out;
}

void check_runnable(const Mesh& mesh) {
  KREF_CHECK(mesh.device_count() <= kMaxRunDevices, "mesh ", to_string(mesh), " has ",
             mesh.device_count(), " devices, expected at most ", kMaxRunDevices, " for a run");
}

}  // namespace kref
