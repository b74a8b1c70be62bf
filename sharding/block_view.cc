// SPDX-License-Identifier: Apache-2.0
#include "sharding/block_view.h"

#include <type_traits>

#include "dsl/work_meter.h"
#include "sharding/collectives_copy.h"

namespace kref {

template <class Void>
BasicArrayRef<Void> block_view(const BasicArrayRef<Void>& whole, const Placement& placement,
                               const Mesh& mesh, Index device) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  const std::size_t leading = placement.unreduced.size();
  KREF_DCHECK(whole.rank >= leading);
  BasicArrayRef<Void> block = whole;
  Index offset = 0;
  for (std::size_t u = 0; u < leading; ++u) {
    offset +=
        whole.strides[u] * block_index(std::span(placement.unreduced).subspan(u, 1), mesh, device);
  }
  block.rank = whole.rank - leading;
  for (std::size_t d = 0; d < block.rank; ++d) {
    const std::span<const std::string> axes = placement.spec[d];
    const Index blocks = block_count(axes, mesh);
    block.extents[d] = whole.extents[d + leading] / blocks;
    block.strides[d] = whole.strides[d + leading];
    if (blocks > 1) {
      offset += block_index(axes, mesh, device) * block.extents[d] * block.strides[d];
    }
  }
  if (block.data != nullptr) {
    block.data = static_cast<Byte*>(block.data) + offset * static_cast<Index>(size_of(block.dtype));
  }
  return block;
}
template ArrayRef block_view(const ArrayRef&, const Placement&, const Mesh&, Index);
template MutableArrayRef block_view(const MutableArrayRef&, const Placement&, const Mesh&, Index);

Index first_replica(const Placement& placement, const Mesh& mesh, Index device) {
  std::vector<Index> at = mesh.coordinates(device);
  for (const std::string& axis : replicated_axes(placement, mesh)) at[mesh.index(axis)] = 0;
  for (const std::string& axis : placement.reduced) at[mesh.index(axis)] = 0;
  return mesh.device(at);
}

std::vector<Index> dense_strides_of(std::span<const Index> shape) {
  std::vector<Index> strides(shape.size());
  detail::dense_strides("array", shape.data(), shape.size(), strides.data());
  return strides;
}

void check_has_memory(const ArrayRef& array, const std::string& name) {
  KREF_CHECK(array.data != nullptr || array.size() == 0 || detail::shapes_only(), name, " is an ",
             to_string(array), " without memory: an Array that nothing was assigned to");
}

bool is_dense(const ArrayRef& view) {
  Index stride = 1;
  for (std::size_t d = view.rank; d-- > 0;) {
    if (view.extents[d] == 0) return true;
    if (view.extents[d] != 1 && view.strides[d] != stride) return false;
    stride *= view.extents[d];
  }
  return true;
}

void copy_elements(const ArrayRef& from, const MutableArrayRef& to) {
  KREF_DCHECK(from.dtype == to.dtype && from.rank == to.rank);
  detail::Box box;
  for (std::size_t d = 0; d < from.rank; ++d) {
    KREF_DCHECK(from.extents[d] == to.extents[d]);
    box.add(from.extents[d], from.strides[d], to.strides[d]);
  }
  detail::copy_box(static_cast<const std::byte*>(from.data), static_cast<std::byte*>(to.data), box,
                   size_of(from.dtype));
}

Array dense(const ArrayRef& view, const std::shared_ptr<const void>& owner) {
  if (is_dense(view)) return Array(view.dtype, view.shape(), owner, view.data);
  Array copy = Array::unwritten(view.dtype, view.shape());
  copy_elements(view, copy.mutable_ref());
  return copy;
}

Array kept_alive(Array array) {
  if (array.owner() != nullptr || array.data() == nullptr) return array;
  Array copy = Array::unwritten(array.dtype(), array.shape());
  copy_elements(array, copy.mutable_ref());
  return copy;
}

}  // namespace kref
