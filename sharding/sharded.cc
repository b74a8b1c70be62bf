// SPDX-License-Identifier: Apache-2.0
#include "sharding/sharded.h"

#include <cstdio>
#include <cstring>

#include "sharding/block_view.h"
#include "sharding/reshard.h"

namespace kref {
namespace {

// "3.5 (bits 0x40600000)".
std::string element_string(const Array& array, Index i) {
  const std::size_t bytes = size_of(array.dtype());
  std::uint64_t bits = 0;  // little-endian
  std::memcpy(&bits, static_cast<const char*>(array.data()) + static_cast<std::size_t>(i) * bytes,
              bytes);
  char text[64];
  std::snprintf(text, sizeof text, "%.17g (bits 0x%0*llx)", array.at(i),
                static_cast<int>(2 * bytes), static_cast<unsigned long long>(bits));
  return text;
}

// Where element i of a device's block stands in the global array.
std::vector<Index> global_element(const Sharded& x, Index device, Index i) {
  const Array& block = x.block(device);
  std::vector<Index> at(block.rank());
  for (std::size_t d = block.rank(); d-- > 0;) {
    at[d] = i % block.extent(d) +
            block_index(x.placement().spec[d], x.mesh(), device) * block.extent(d);
    i /= block.extent(d);
  }
  return at;
}

}  // namespace

Sharded::Sharded(Mesh mesh, std::vector<Index> shape, Placement placement,
                 std::vector<Array> blocks, std::string_view name)
    : mesh_(std::move(mesh)),
      shape_(std::move(shape)),
      placement_(std::move(placement)),
      blocks_(std::move(blocks)) {
  check_runnable(mesh_);
  check_placement(placement_, shape_, mesh_, name);
  const std::string subject(name);
  KREF_CHECK(static_cast<Index>(blocks_.size()) == mesh_.device_count(), subject, ": ",
             blocks_.size(), " blocks for the ", mesh_.device_count(), " devices of mesh ",
             to_string(mesh_));
  const std::vector<Index> local = local_shape(placement_.spec, shape_, mesh_);
  for (Index device = 0; device < mesh_.device_count(); ++device) {
    const Array& found = block(device);
    check_has_memory(found,
                     detail::cat(subject, ": what device ", mesh_.device_name(device), " holds"));
    const bool fits = found.dtype() == dtype() && found.rank() == local.size() &&
                      std::equal(local.begin(), local.end(), found.shape().begin());
    KREF_CHECK(fits, subject, ": device ", mesh_.device_name(device), " holds ",
               to_string(found.ref()), ", expected ", name_of(dtype()), shape_string(local),
               ", a block of ", type());
  }
#ifndef NDEBUG
  check_replicas(*this, name);
#endif
}

void check_replicas(const Sharded& x, std::string_view name) {
  for (Index device = 0; device < x.mesh().device_count(); ++device) {
    const Index first = first_replica(x.placement(), x.mesh(), device);
    const Array &a = x.block(first), &b = x.block(device);
    if (a.data() == b.data() || a.bytes() == 0) continue;
    if (std::memcmp(a.data(), b.data(), a.bytes()) == 0) continue;
    const std::size_t bytes = size_of(x.dtype());
    const auto differs = [&](Index i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      return std::memcmp(static_cast<const char*>(a.data()) + at,
                         static_cast<const char*>(b.data()) + at, bytes) != 0;
    };
    Index i = 0;
    while (!differs(i)) ++i;
    throw Error(detail::cat(std::string(name), " ", x.type(), ": replicas differ at element ",
                            shape_string(global_element(x, device, i)), ": device ",
                            x.mesh().device_name(first), " has ", element_string(a, i), ", device ",
                            x.mesh().device_name(device), " has ", element_string(b, i)));
  }
}

Sharded shard(const Mesh& mesh, const Array& global, const Placement& placement,
              std::string_view name) {
  check_runnable(mesh);
  check_placement(placement, global.shape(), mesh, name);
  std::vector<Index> shape(global.shape().begin(), global.shape().end());
  std::vector<Array> everywhere(static_cast<std::size_t>(mesh.device_count()), global);
  return reshard(Sharded(mesh, std::move(shape), {}, std::move(everywhere), name), placement);
}

Array unshard(const Sharded& x, bool check) {
  if (check) check_replicas(x);
  return reshard(x, Placement()).block(0);
}

Sharded shard_terms(const Mesh& mesh, const Array& stacked, const Placement& placement,
                    std::string_view name) {
  check_runnable(mesh);
  const std::size_t leading = placement.unreduced.size();
  KREF_CHECK(stacked.rank() >= leading, std::string(name), ": ", to_string(stacked.ref()),
             " has no leading dimension for each of the unreduced axes ",
             set_string(placement.unreduced));
  std::vector<Index> shape(stacked.shape().begin() + static_cast<Index>(leading),
                           stacked.shape().end());
  check_placement(placement, shape, mesh, name);
  const OutSpec spec{placement.spec, placement.unreduced};
  const std::vector<Index> expected = stacked_shape(spec, shape, mesh);
  KREF_CHECK(std::equal(expected.begin(), expected.end(), stacked.shape().begin()),
             std::string(name), ": ", to_string(stacked.ref()), ", expected ",
             shape_string(expected), ": leading dimensions for the unreduced axes ",
             set_string(placement.unreduced), " of mesh ", to_string(mesh));
  std::vector<Array> blocks;
  for (Index device = 0; device < mesh.device_count(); ++device) {
    blocks.push_back(dense(block_view(stacked.ref(), placement, mesh, device), stacked.owner()));
  }
  return Sharded(mesh, std::move(shape), placement, std::move(blocks), name);
}

Array unshard_terms(const Sharded& x) {
  const OutSpec spec{x.placement().spec, x.placement().unreduced};
  const std::vector<Index> shape = stacked_shape(spec, x.shape(), x.mesh());
  Array out = Array::unwritten(x.dtype(), shape);
  for (Index device = 0; device < x.mesh().device_count(); ++device) {
    if (first_replica(x.placement(), x.mesh(), device) != device) continue;
    copy_elements(x.block(device).ref(),
                  block_view(out.mutable_ref(), x.placement(), x.mesh(), device));
  }
  return out;
}

Sharded relabel(const Sharded& x, const Placement& placement) {
  const std::string name = detail::cat("relabel ", x.type());
  const Array& block = x.block(0);
  std::vector<Index> shape(block.shape().begin(), block.shape().end());
  KREF_CHECK(placement.spec.entries.size() <= shape.size(), name, " to ", to_string(placement),
             ", which has length ", placement.spec.entries.size(), ": a device holds ",
             to_string(block.ref()), ", which has rank ", shape.size());
  // Before sizes are asked for: names that the mesh lacks. One of each extent divides anything.
  std::vector<Index> zeros(shape.size(), 0);
  check_placement(placement, zeros, x.mesh(), name);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const Index blocks = block_count(placement.spec[d], x.mesh());
    KREF_CHECK(!__builtin_mul_overflow(shape[d], blocks, &shape[d]), name, " to ",
               to_string(placement), ": dimension ", d, " gets more than 2^63 - 1 elements");
  }
  return Sharded(x.mesh(), std::move(shape), placement, {x.blocks().begin(), x.blocks().end()},
                 name);
}

}  // namespace kref
