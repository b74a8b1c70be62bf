// SPDX-License-Identifier: Apache-2.0
// Device: what the body of a launch or of a shard_map is handed; its place on the mesh and its way
// to the others. Stands for one TPU core.
#pragma once

#include <string>

#include "sharding/mesh.h"
#include "sharding/replica_groups.h"
#include "sharding/transport.h"

namespace kref {

class DeviceLog;

class Device {
 public:
  // `transport` outlives the device.
  Device(const Mesh& mesh, Index index, Transport& transport, int threads = 1,
         DeviceLog* log = nullptr)
      : mesh_(&mesh), index_(index), transport_(&transport), threads_(threads), log_(log) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Mesh& mesh() const { return *mesh_; }
  // Its number: row-major over the axes of the mesh.
  Index index() const { return index_; }
  // "(X=1, Y=0)".
  std::string name() const { return mesh_->device_name(index_); }
  // Threads that a kernel run on this device uses at most: its share of the cores.
  int threads() const { return threads_; }
  Transport& transport() { return *transport_; }
  // What it does is written there (run_log.h); null: nowhere.
  DeviceLog* log() { return log_; }

  // jax.lax.axis_size, axis_index: devices along the axes, and this one's row-major index along
  // them, the first axis major. Error for an axis that the mesh lacks or that is named twice.
  Index axis_size(const AxisNames& axes) const { return kref::axis_size(*mesh_, axes); }
  Index axis_index(const AxisNames& axes) const { return kref::axis_index(*mesh_, axes, index_); }

 private:
  const Mesh* mesh_;
  Index index_;
  Transport* transport_;
  int threads_;
  DeviceLog* log_;
};

}  // namespace kref
