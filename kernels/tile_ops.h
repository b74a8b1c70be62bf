// SPDX-License-Identifier: Apache-2.0
// Tile verbs: what a kernel body may do to its blocks. Each works on views of any rank, any
// extents (0 included) and any row stride, and is vector code for every SIMD target, chosen at run
// time; the result has the same bits on all of them (which NaN a NaN is, is left open, except
// where said). Each verb that names an output writes every element of it.
//
// The output comes last and may be one of the inputs (exactly the same view); views that overlap
// in another way are the caller's mistake.
#pragma once

#include <type_traits>

#include "dsl/array.h"

namespace kref {

// What a cast to f16, bf16, f8_e4m3 or f8_e5m2 makes of values past the largest finite one.
enum class Overflow {
  kDefault,   // infinity; NaN in f8_e4m3, which has none (jnp.astype)
  kSaturate,  // the largest finite value, also for infinities; NaN stays NaN
};

namespace detail {

// An input whose element type and rank follow from the output: a Tensor, a Ref<T> or a
// Ref<const T> converts to it.
template <class T, std::size_t R>
using Input = std::type_identity_t<Ref<const T, R>>;

void fill(const MutableArrayRef& out, const void* value);
void copy(const ArrayRef& x, const MutableArrayRef& out);
void cast(const ArrayRef& x, const MutableArrayRef& out, Overflow overflow);

}  // namespace detail

// out = value, every element.
template <ElementType T, std::size_t R>
void fill(Ref<T, R> out, std::type_identity_t<T> value) {
  detail::fill(out, &value);
}

// out = x, bit for bit. x broadcasts to the shape of out.
template <ElementType T, std::size_t R>
void copy(detail::Input<T, R> x, Ref<T, R> out) {
  detail::copy(x, out);
}

// out = x.astype(element type of out); any pair of element types. x broadcasts to the shape of out.
// As jnp.astype (XLA's ConvertElementType):
// - to a float: to nearest, ties to even, rounded once whatever the source; a NaN keeps its sign;
// - float to integer: toward zero; values outside the range become its end, NaN becomes 0;
// - integer to a narrower integer: the low bits (wraps); bool counts as 0 and 1;
// - to bool: x != 0 (NaN is true).
// Overflow::kSaturate applies to the 16- and 8-bit floats; Error for other outputs.
template <ElementType S, ElementType T, std::size_t R, std::size_t Q>
requires(R <= Q) void cast(Ref<S, R> x, Ref<T, Q> out, Overflow overflow = Overflow::kDefault) {
  detail::cast(x, out, overflow);
}

}  // namespace kref
