// SPDX-License-Identifier: Apache-2.0
// Blocks of global arrays: which part a device owns, as a view; and copies between strided views.
#pragma once

#include "dsl/array.h"
#include "sharding/placement.h"

namespace kref {

// The block of `whole` that a device owns under a placement which check_placement passed, nothing
// copied. With unreduced axes the whole has a leading dimension for each of them, in their order,
// which the block lacks.
template <class Void>
BasicArrayRef<Void> block_view(const BasicArrayRef<Void>& whole, const Placement& placement,
                               const Mesh& mesh, Index device);

// The device that comes first among those which hold the same block as `device`. Where one of them
// counts, as when a global array is put together, it is this one.
Index first_replica(const Placement& placement, const Mesh& mesh, Index device);

// Row-major strides of a dense array.
std::vector<Index> dense_strides_of(std::span<const Index> shape);

// Do the elements lie one after the other, row-major?
bool is_dense(const ArrayRef& view);

// Copies the elements of a view to another of the same shape and element type that it does not
// overlap; each byte is written once.
void copy_elements(const ArrayRef& from, const MutableArrayRef& to);

// The view as a dense array: itself, sharing `owner`, where it is dense already; else a copy.
Array dense(const ArrayRef& view, const std::shared_ptr<const void>& owner);

// The array itself where it keeps its bytes alive; a copy where it only views memory of others,
// which may be gone when the array is read again.
Array kept_alive(Array array);

// Refuses, by `name`, an array that has elements but no memory: one that nothing was assigned to.
void check_has_memory(const ArrayRef& array, const std::string& name);

}  // namespace kref
