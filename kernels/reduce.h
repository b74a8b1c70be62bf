// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions: sums, extrema and where they are, any and all. The names are
// those of jax.lax; row_sum, row_max and row_min of kernels/tile_ops.h are the case of the last
// dimension.
#pragma once

#include <initializer_list>
#include <span>

#include "kernels/tile_ops.h"

namespace kref {

// Dimensions of an operand, in any order: {0, 2}.
using Axes = std::initializer_list<Index>;

namespace detail {

enum class Arg { kMax, kMin };

void reduce(Reduction op, const ArrayRef& x, std::span<const Index> axes,
            const MutableArrayRef& out);
void reduce_bools(Reduction op, const ArrayRef& x, std::span<const Index> axes,
                  const MutableArrayRef& out);
void arg_extreme(Arg op, const ArrayRef& x, Index axis, const MutableArrayRef& out);

template <class T, std::size_t R>
ArrayRef view_of(const Ref<T, R>& x) {
  return Ref<const std::remove_const_t<T>, R>(x);
}

}  // namespace detail

// out = the sum, largest or smallest element over `axes` (jnp.sum(x, axis=axes), max, min). out has
// the dimensions that are left, or those of x with extent 1 for each axis (keepdims=True).
//
// Element types as row_sum and its kin: that of x; or F32 for F16 and BF16; or I32 for the sum of
// 8- and 16-bit integers, which is what jnp.sum gives. Floats are summed in f32 (F64: f64) and
// rounded to the type of out once, over however many axes; integers wrap.
//
// The order of a sum is fixed, so the bits depend on no SIMD target: axes one after the other, the
// last dimension first. The last dimension goes in 16 lanes as row_sum; along any other the sum
// starts at +0 and takes its elements in ascending order. Over no elements a sum is 0. NaN, +0 and
// -0 as row_max.
//
// Error on element types, shapes and axes that do not fit, an axis named twice, and on the largest
// of no elements.
template <Number S, std::size_t R, Number T, std::size_t Q>
void reduce_sum(Ref<S, R> x, Axes axes, Ref<T, Q> out) {
  detail::reduce(detail::Reduction::kSum, detail::view_of(x), {axes.begin(), axes.size()}, out);
}
template <Number S, std::size_t R, Number T, std::size_t Q>
void reduce_max(Ref<S, R> x, Axes axes, Ref<T, Q> out) {
  detail::reduce(detail::Reduction::kMax, detail::view_of(x), {axes.begin(), axes.size()}, out);
}
template <Number S, std::size_t R, Number T, std::size_t Q>
void reduce_min(Ref<S, R> x, Axes axes, Ref<T, Q> out) {
  detail::reduce(detail::Reduction::kMin, detail::view_of(x), {axes.begin(), axes.size()}, out);
}

// out = whether any, or every, element over `axes` is true (jnp.any, jnp.all); of no elements false
// and true.
template <class B, std::size_t R, std::size_t Q>
requires(std::is_same_v<std::remove_const_t<B>, bool>) void reduce_or(Ref<B, R> x, Axes axes,
                                                                      Ref<bool, Q> out) {
  detail::reduce_bools(detail::Reduction::kMax, detail::view_of(x), {axes.begin(), axes.size()},
                       out);
}
template <class B, std::size_t R, std::size_t Q>
requires(std::is_same_v<std::remove_const_t<B>, bool>) void reduce_and(Ref<B, R> x, Axes axes,
                                                                       Ref<bool, Q> out) {
  detail::reduce_bools(detail::Reduction::kMin, detail::view_of(x), {axes.begin(), axes.size()},
                       out);
}

// out = where the largest, or smallest, element along `axis` is (jnp.argmax(x, axis)): the first of
// equal ones, -0 and +0 being equal; the first NaN where there is one. out is I32 or I16, without
// the axis or with extent 1 there. Error on an axis without elements, and on more than out can
// count.
template <Number S, std::size_t R, class I, std::size_t Q>
requires(std::is_same_v<I, std::int32_t> ||
         std::is_same_v<I, std::int16_t>) void argmax(Ref<S, R> x, Index axis, Ref<I, Q> out) {
  detail::arg_extreme(detail::Arg::kMax, detail::view_of(x), axis, out);
}
template <Number S, std::size_t R, class I, std::size_t Q>
requires(std::is_same_v<I, std::int32_t> ||
         std::is_same_v<I, std::int16_t>) void argmin(Ref<S, R> x, Index axis, Ref<I, Q> out) {
  detail::arg_extreme(detail::Arg::kMin, detail::view_of(x), axis, out);
}

}  // namespace kref
