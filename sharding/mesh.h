// SPDX-License-Identifier: Apache-2.0
// Mesh: devices laid out along named axes, as jax.sharding.Mesh.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/ref.h"

namespace kref {

// A run gives each device a thread and its own arrays; more devices than this are priced only.
inline constexpr Index kMaxRunDevices = 1024;
// Physical meshes have a handful of axes; the limit keeps a hostile file from being expensive.
inline constexpr std::size_t kMaxMeshAxes = 32;

// One named dimension of a mesh.
struct MeshAxis {
  std::string name;
  Index size = 1;  // devices along the axis
  bool operator==(const MeshAxis&) const = default;
};

// Axes in order, the first one major: device number = sum over k of index_k * prod_{j>k} size_j.
// The mesh without axes has one device.
class Mesh {
 public:
  Mesh() = default;

  // Error, naming the axis: a name that is not an identifier (or is None), a name used twice, a
  // size below 1, more than kMaxMeshAxes axes, more than 2^63 - 1 devices.
  explicit Mesh(std::vector<MeshAxis> axes);

  // "X=2,Y=4", blanks allowed round names and sizes. Error for anything else, naming the part that
  // is wrong, and as for the constructor.
  static Mesh parse(std::string_view text);

  std::span<const MeshAxis> axes() const { return axes_; }
  Index device_count() const { return device_count_; }

  // Position of an axis among axes(); nothing when the mesh has no such axis.
  std::optional<std::size_t> find(std::string_view name) const;
  // The same; Error that names the mesh when it has no such axis.
  std::size_t index(std::string_view name) const;
  // Devices along an axis; Error when the mesh has no such axis.
  Index size(std::string_view name) const { return axes_[index(name)].size; }

  // Device number -> its index along each axis, and back. Error when out of range.
  std::vector<Index> coordinates(Index device) const;
  Index device(std::span<const Index> coordinates) const;

  // "(X=1, Y=0)"; "()" on the mesh without axes.
  std::string device_name(Index device) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
  Index device_count_ = 1;
};

// "X=2,Y=4", which Mesh::parse reads back.
std::string to_string(const Mesh& mesh);

// Refuses a mesh of more than kMaxRunDevices devices; for whoever is about to run, not price.
void check_runnable(const Mesh& mesh);

}  // namespace kref
