// SPDX-License-Identifier: Apache-2.0
// Verbs that move elements: iota, roll, transposes, broadcasts, einshape. As those of
// kernels/tile_ops.h they take views of any rank, extents and strides, name the output last, write
// every element of it and copy bits as they are; the names are JAX's. Unlike there the output must
// not share memory with an input (Error).
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "kernels/tile_ops.h"

namespace kref {

// A dimension of an einshape and its size.
struct EinshapeSize {
  char dimension;
  Index size;
};

namespace detail {

void iota(Index axis, const MutableArrayRef& out, Index first);
void roll(const ArrayRef& x, Index shift, Index axis, Index stride, Index stride_axis,
          const MutableArrayRef& out);
void transpose(const ArrayRef& x, const std::size_t* order, const MutableArrayRef& out);
void broadcast_in_dim(const ArrayRef& x, const std::size_t* dimensions, const MutableArrayRef& out);
void einshape(std::string_view equation, const ArrayRef& x, const MutableArrayRef& out,
              std::span<const EinshapeSize> sizes);

// out = x element by element, both of these extents with any strides.
void copy_strided(const char* verb, const ArrayRef& x, const MutableArrayRef& out);

}  // namespace detail

// out[...] = first + index along `axis` (lax.broadcasted_iota(dtype, shape, axis); `first` is what
// a body adds for its place in the array: block * program_id). Integers wrap, floats round. Error
// on an axis that out does not have.
template <Number T, std::size_t R>
void iota(Index axis, Ref<T, R> out, Index first = 0) {
  detail::iota(axis, out, first);
}

// pltpu.roll(x, shift, axis): out[..., (j + shift) mod n, ...] = x[..., j, ...], for any shift >=
// 0, known at run time or not. With a stride, slice i along stride_axis moves by shift + i *
// stride. Error, by Pallas' words: "shift must be non-negative", "axis is out of range", "stride
// must be non-negative", "stride_axis is out of range", "expected axis and stride_axis are
// different".
template <ElementType T, std::size_t R>
void roll(std::type_identity_t<Ref<const T, R>> x, Index shift, Index axis, Ref<T, R> out) {
  detail::roll(x, shift, axis, 0, axis == 0 ? 1 : 0, out);
}
template <ElementType T, std::size_t R>
requires(R >= 2) void roll(std::type_identity_t<Ref<const T, R>> x, Index shift, Index axis,
                           Index stride, Index stride_axis, Ref<T, R> out) {
  detail::roll(x, shift, axis, stride, stride_axis, out);
}

// Dimension d of out is dimension order[d] of x (jnp.transpose(x, order), x.T with {1, 0}); lanes
// may move, unlike in Ref::transpose. Error unless order is a permutation that fits the extents.
template <ElementType T, std::size_t R>
void transpose(std::type_identity_t<Ref<const T, R>> x, const std::array<std::size_t, R>& order,
               Ref<T, R> out) {
  detail::transpose(x, order.data(), out);
}

// Dimension d of x lies along dimension dimensions[d] of out and is repeated along the others
// (lax.broadcast_in_dim(x, shape, dimensions)); extent 1 repeats as well. Error unless `dimensions`
// rises and the extents fit. What numpy's rules broadcast needs only copy().
template <ElementType T, std::size_t R, std::size_t Q>
requires(R <= Q) void broadcast_in_dim(Ref<T, R> x, const std::array<std::size_t, R>& dimensions,
                                       Ref<std::remove_const_t<T>, Q> out) {
  detail::broadcast_in_dim(Ref<const T, R>(x), dimensions.data(), out);
}

// pltpu.einshape(equation, x, a=..., ...): one letter a dimension, parentheses for those that are
// one dimension of the array: "a(bc)->(ab)c" splits the second dimension of x and joins its first
// part to the first. Of each group on the left at most one size may be left open. At most six
// letters. Error, naming the equation: not exactly one "->", unmatched parentheses, a letter twice
// or on one side only, groups that do not fit the rank or the extents, an ambiguous split.
template <ElementType T, std::size_t R, std::size_t Q>
void einshape(std::string_view equation, Ref<T, R> x, Ref<std::remove_const_t<T>, Q> out,
              std::initializer_list<EinshapeSize> sizes = {}) {
  detail::einshape(equation, Ref<const T, R>(x), out, {sizes.begin(), sizes.size()});
}

}  // namespace kref
