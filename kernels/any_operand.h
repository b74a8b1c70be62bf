// SPDX-License-Identifier: Apache-2.0
// Operands of a grid whose element type is known at run time only: a kernel that hands its blocks
// to verbs which look at the type themselves is compiled once for all types.
#pragma once

#include "dsl/array.h"
#include "dsl/grid.h"

namespace kref::detail {

// A block without its leading dimensions, which have extent 1: (rows, columns).
template <class Void>
BasicArrayRef<Void> matrix_of(const BasicArrayRef<Void>& a) {
  BasicArrayRef<Void> out = a;
  out.rank = 2;
  out.extents = {a.extents[a.rank - 2], a.extents[a.rank - 1]};
  out.strides = {a.strides[a.rank - 2], a.strides[a.rank - 1]};
  return out;
}

// Rows row0.. and columns column0.. of a matrix.
template <class Void>
BasicArrayRef<Void> part_of(const BasicArrayRef<Void>& a, Index row0, Index rows, Index column0,
                            Index columns) {
  KREF_DCHECK(row0 >= 0 && row0 + rows <= a.extents[0]);
  KREF_DCHECK(column0 >= 0 && column0 + columns <= a.extents[1]);
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  BasicArrayRef<Void> out = a;
  out.extents = {rows, columns};
  const Index offset = row0 * a.strides[0] + column0 * a.strides[1];
  out.data = static_cast<Byte*>(a.data) + offset * static_cast<Index>(size_of(a.dtype));
  return out;
}

// An input.
template <std::size_t R>
struct AnyIn {
  DType type = DType::kF32;
  In<float, R> handle;

  static AnyIn declare(Grid& grid, std::string_view name, const ArrayRef& a,
                       const BlockSpec<R>& spec) {
    return with_dtype(a.dtype, [&]<class T>() {
      const In<T, R> h = grid.in(name, a.ref<const T, R>(), spec);
      return AnyIn{a.dtype, {h.grid, h.id, h.name}};
    });
  }
  // The part of the block inside the array.
  ArrayRef valid(const Step& s) const {
    return with_dtype(type, [&]<class T>() {
      return ArrayRef(s.valid(In<T, R>{handle.grid, handle.id, handle.name}));
    });
  }
};

// An output.
template <std::size_t R>
struct AnyOut {
  DType type = DType::kF32;
  Out<float, R> handle;

  static AnyOut declare(Grid& grid, std::string_view name, const MutableArrayRef& a,
                        const BlockSpec<R>& spec) {
    return with_dtype(a.dtype, [&]<class T>() {
      const Out<T, R> h = grid.out(name, a.ref<T, R>(), spec);
      return AnyOut{a.dtype, {h.grid, h.id, h.name}};
    });
  }
  MutableArrayRef valid(const Step& s) const {
    return with_dtype(type, [&]<class T>() {
      return MutableArrayRef(s.valid(Out<T, R>{handle.grid, handle.id, handle.name}));
    });
  }
};

}  // namespace kref::detail
