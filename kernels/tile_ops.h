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

namespace detail {

// An input whose element type and rank follow from the output: a Tensor, a Ref<T> or a
// Ref<const T> converts to it.
template <class T, std::size_t R>
using Input = std::type_identity_t<Ref<const T, R>>;

void fill(const MutableArrayRef& out, const void* value);
void copy(const ArrayRef& x, const MutableArrayRef& out);

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

}  // namespace kref
