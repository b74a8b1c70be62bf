// SPDX-License-Identifier: Apache-2.0
// Loads and stores with a mask, through windows that may stick out of their Ref (pltpu.load,
// pltpu.store, swap). Shapes must be equal: unlike `copy` these do not broadcast, as a store in
// Pallas does not. What goes through an unmasked view is `copy`; views come from Ref::at.
#pragma once

#include "dsl/array.h"

namespace kref {

namespace detail {

// What the values, the mask and the old contents of a window at `start` of a Ref are; mask: none
// where its data is null.
void load_window(const ArrayRef& x, const Index* start, const ArrayRef& mask, const ArrayRef& other,
                 const MutableArrayRef& out);
void store_window(const ArrayRef& value, const ArrayRef& mask, const MutableArrayRef& z,
                  const Index* start);
void swap_window(const MutableArrayRef& z, const Index* start, const ArrayRef& value,
                 const ArrayRef& mask, const MutableArrayRef& old);

template <class T>
using Same = std::type_identity_t<T>;
template <std::size_t R>
using Mask = Same<Ref<const bool, R>>;

}  // namespace detail

// The window of a Ref that these work on has the shape of their values and begins at `start`, which
// may be negative and may leave the window partly or wholly outside. A lane whose mask is true and
// that lies outside is an Error, whichever dimension it leaves by; it names operand (inside of a
// grid), lane, dimension, start, size and extent. Masked-off lanes outside are fine. Without
// `start` the window is the whole Ref.

// out = mask ? x : other, x[start...] lane by lane; `other` is poison where it is not given.
template <ElementType T, std::size_t R>
void load(detail::Same<Ref<const T, R>> x, const Shape<R>& start, detail::Mask<R> mask,
          detail::Same<T> other, Ref<T, R> out) {
  Ref<const T, 0> rest(&other, {});
  detail::load_window(x, start.data(), mask, rest, out);
}
template <ElementType T, std::size_t R>
void load(detail::Same<Ref<const T, R>> x, const Shape<R>& start, detail::Mask<R> mask,
          Ref<T, R> out) {
  load(x, start, mask, poison<T>(), out);
}
template <ElementType T, std::size_t R>
void load(detail::Same<Ref<const T, R>> x, detail::Mask<R> mask, detail::Same<T> other,
          Ref<T, R> out) {
  load(x, Shape<R>{}, mask, other, out);
}
// out = x[start...]: every lane must lie inside.
template <ElementType T, std::size_t R>
void load(detail::Same<Ref<const T, R>> x, const Shape<R>& start, Ref<T, R> out) {
  detail::load_window(x, start.data(), {}, {}, out);
}

// z[start...] = value where mask is true; the rest of z stays (pltpu.store(ref, value, mask=mask)).
template <ElementType T, std::size_t R>
void store(detail::Same<Ref<const T, R>> value, detail::Mask<R> mask, Ref<T, R> z,
           const Shape<R>& start = {}) {
  detail::store_window(value, mask, z, start.data());
}
// The same with every lane on: a plain z_ref[...] = value, of exactly the shape of z without
// `start`.
template <ElementType T, std::size_t R>
void store(detail::Same<Ref<const T, R>> value, Ref<T, R> z) {
  KREF_CHECK(value.extents() == z.extents(), "store: value is ", to_string(ArrayRef(value)),
             ", ref is ", to_string(ArrayRef(MutableArrayRef(z))),
             ", expected equal shapes: a store does not broadcast, copy() does");
  detail::store_window(value, {}, z, Shape<R>{}.data());
}
template <ElementType T, std::size_t R>
void store(detail::Same<Ref<const T, R>> value, Ref<T, R> z, const Shape<R>& start) {
  detail::store_window(value, {}, z, start.data());
}

// old = where(mask, z, value) and z = where(mask, value, z), lane by lane of the window. old must
// not overlap z or value.
template <ElementType T, std::size_t R>
void swap(Ref<T, R> z, const Shape<R>& start, detail::Same<Ref<const T, R>> value,
          detail::Mask<R> mask, detail::Same<Ref<T, R>> old) {
  detail::swap_window(z, start.data(), value, mask, old);
}
// The same with every lane on: old = z[...], z[...] = value.
template <ElementType T, std::size_t R>
void swap(Ref<T, R> z, detail::Same<Ref<const T, R>> value, detail::Same<Ref<T, R>> old) {
  detail::swap_window(z, Shape<R>{}.data(), value, {}, old);
}

}  // namespace kref
