// SPDX-License-Identifier: Apache-2.0
// Runs a collective as its users would: a thread a device, each with its own block.
#include <cstring>

#include "golden/collective_op.h"
#include "golden/collective_run.h"
#include "sharding/launch.h"

namespace kref {
namespace {

// A global array and the block of it that a device holds under a spec.
struct Blocked {
  const Mesh& mesh;
  const PartitionSpec& spec;
  const std::vector<Index>& shape;
  const std::vector<Index>& local;

  // Calls visit(first element in the global array, first in the block, elements) for each row of
  // the block.
  template <class Visit>
  void rows(Index device, Visit&& visit) const {
    const std::size_t rank = shape.size();
    std::vector<Index> strides(rank), at(rank, 0);
    detail::dense_strides("array", shape.data(), rank, strides.data());
    Index start = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      if (local[d] == 0) return;
      start += block_index(spec[d], mesh, device) * local[d] * strides[d];
    }
    const Index row = rank == 0 ? 1 : local[rank - 1];
    for (Index done = 0;; done += row) {
      Index from = start;
      for (std::size_t d = 0; d + 1 < rank; ++d) from += at[d] * strides[d];
      visit(from, done, row);
      std::size_t d = rank == 0 ? 0 : rank - 1;
      while (d > 0 && ++at[d - 1] == local[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }

  // Is it the device whose block stands for that of all that hold the same one?
  bool representative(Index device) const {
    const std::vector<Index> at = mesh.coordinates(device);
    for (std::size_t a = 0; a < at.size(); ++a) {
      if (at[a] != 0 && !spec.names(mesh.axes()[a].name)) return false;
    }
    return true;
  }

  Array block(const Array& global, Index device) const {
    Array out(global.dtype(), local);
    const std::size_t size = size_of(global.dtype());
    const auto* from = static_cast<const std::byte*>(global.data());
    auto* to = static_cast<std::byte*>(out.mutable_data());
    rows(device, [&](Index source, Index target, Index elements) {
      std::memcpy(to + static_cast<std::size_t>(target) * size,
                  from + static_cast<std::size_t>(source) * size,
                  static_cast<std::size_t>(elements) * size);
    });
    return out;
  }

  // `to`: the global array's memory.
  void put(const Array& part, Index device, std::byte* to) const {
    const std::size_t size = size_of(part.dtype());
    const auto* from = static_cast<const std::byte*>(part.data());
    rows(device, [&](Index target, Index source, Index elements) {
      std::memcpy(to + static_cast<std::size_t>(target) * size,
                  from + static_cast<std::size_t>(source) * size,
                  static_cast<std::size_t>(elements) * size);
    });
  }
};

Array forward(const CollectiveRun& run, Device& device, const Array& x) {
  // Without an axis all are the identity; sums of bool and means of integers still change the type.
  if (run.axis_name.empty()) {
    if (run.which == Collective::kPmean) return Pmean{}(device, x);
    return is_sum(run.which) ? Psum{}(device, x) : x;
  }
  return std::visit([&](const auto& value) { return value(device, x); }, run.value);
}

// The cotangent of one device's block of x, where `ct` is 0 but on the devices whose block of y
// counts: transposed device by device, and summed over those that have the same block of x.
Array backward(const CollectiveRun& run, Device& device, const Array& ct) {
  Array out = ct;
  if (!run.axis_name.empty()) {
    out = std::visit(
        [&]<class Value>(const Value& value) -> Array {
          if constexpr (std::is_same_v<Value, Pmax>) {
            return ct;  // it has no transpose, and no operation asks for it
          } else {
            return apply(value.transpose(Typing::kUnchecked), device, ct);
          }
        },
        run.value);
  }
  Psum copies;
  for (const MeshAxis& axis : run.mesh.axes()) {
    if (!run.in_spec.names(axis.name)) copies.axis_name.names.push_back(axis.name);
  }
  return copies.axis_name.names.empty() ? out : copies(device, out);
}

}  // namespace

std::map<std::string, Array> compute_collective(const Run& given) {
  const CollectiveRun run = read_collective(given);
  const Blocked x{run.mesh, run.in_spec, run.x_shape, run.x_local},
      y{run.mesh, run.out_spec, run.y_shape, run.y_local};
  const Array& from = given.in.at(run.vjp ? "ct.y" : "x");
  Array out = run.vjp ? Array(run.x_dtype, run.x_shape) : Array(run.y_dtype, run.y_shape);
  auto* memory = static_cast<std::byte*>(out.mutable_data());
  launch(run.mesh, [&](Device& device) {
    const Index d = device.index();
    if (run.vjp) {
      const Array ct = y.representative(d) ? y.block(from, d) : Array(run.y_dtype, run.y_local);
      const Array part = backward(run, device, ct);
      if (x.representative(d)) x.put(part, d, memory);
    } else {
      const Array part = forward(run, device, x.block(from, d));
      if (y.representative(d)) y.put(part, d, memory);
    }
  });
  std::map<std::string, Array> outputs;
  outputs.emplace(run.vjp ? "ct.x" : "y", std::move(out));
  return outputs;
}

}  // namespace kref
