// SPDX-License-Identifier: Apache-2.0
// What the collectives should give, as plain loops over the coordinates of all devices. Shares
// nothing with sharding/ but the mesh's numbering of devices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dsl/array.h"
#include "sharding/collectives.h"
#include "sharding/launch.h"

namespace kref::oracle {

using Coordinates = std::vector<Index>;

// One device's array.
struct Local {
  Coordinates shape;
  std::vector<double> values;

  Local() = default;
  explicit Local(Coordinates extents);
  double& at(const Coordinates& c);
  double at(const Coordinates& c) const { return const_cast<Local*>(this)->at(c); }
};
// By device.
using World = std::vector<Local>;

// Calls f with all coordinates of an array in row-major order.
void each(const Coordinates& shape, const std::function<void(const Coordinates&)>& f);

// Devices of the group of `device`, by rank.
std::vector<Index> members(const Mesh& mesh, const AxisNames& axes, const AxisIndexGroups& groups,
                           Index device);

// A mesh, the axes and the groups: where a collective runs.
struct Where {
  Mesh mesh;
  AxisNames axes;
  AxisIndexGroups groups = {};

  Index devices() const { return mesh.device_count(); }
  std::vector<Index> group(Index device) const { return members(mesh, axes, groups, device); }
  Index rank(Index device) const;
  // Of device 0: groups here are of one size unless a test says otherwise.
  Index n() const { return static_cast<Index>(group(0).size()); }
  std::string name() const;
  // Are the axes named in the order of the mesh, as lax.ppermute asks?
  bool in_mesh_order() const;
};

World all_gather(const Where& where, const World& x, Index axis, bool tiled);
World own_slice(const Where& where, const World& x, Index axis, bool tiled);
World psum_scatter(const Where& where, const World& x, Index dimension, bool tiled);
World all_to_all(const Where& where, const World& x, Index split, Index concat, bool tiled);
World ppermute(const Where& where, const World& x,
               const std::vector<std::pair<Index, Index>>& perm);
World pbroadcast(const Where& where, const World& x, Index source);
World psum_to(const Where& where, const World& x, Index target);
// Folds the members' values in ascending rank.
World folded(const Where& where, const World& x,
             const std::function<double(double so_far, double value)>& fold);
World psum(const Where& where, const World& x);
World pmean(const Where& where, const World& x);
World pargmax(const Where& where, const World& x, bool min);

// As arrays of a type, each value rounded to it; and an array as values.
Array array_of(const Local& x, DType type);
std::vector<Array> arrays_of(const World& x, DType type);
Local local_of(const Array& x);

// Every mesh of the tests: 1, 2, 3, 4, 6, 2x2, 2x3, 2x4, 2x2x2.
const std::vector<Mesh>& meshes();
// Every choice of axes of a mesh in every order, none at all included.
std::vector<AxisNames> axis_choices(const Mesh& mesh);

// Small integers that differ from element to element and from device to device: of 2 `spread` + 1
// values from -spread to spread, or 0 .. spread where they are not to be negative.
World small_integers(Index devices, const Coordinates& shape, Index spread, bool negative = true);

// Runs `body` on each device of the mesh and gives what each returns.
std::vector<Array> run(const Mesh& mesh, const std::function<Array(Device&)>& body,
                       const LaunchOptions& options = {});

// How many elements differ, shapes and element type included ("" when none): one line.
std::string difference(const Array& actual, const Local& expected, DType type);

}  // namespace kref::oracle
