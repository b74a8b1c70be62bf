// SPDX-License-Identifier: Apache-2.0
// Loads and stores by arrays of indices, as x_ref[0, :, indices] in Pallas and numpy.
#pragma once

#include <initializer_list>
#include <span>

#include "kernels/tile_ops.h"

namespace kref {

// One index a dimension: what Ref::at takes, or an array of I32 of any shape.
class ArrayIndex {
 public:
  template <class I>
  requires(std::is_integral_v<I> && !std::is_same_v<I, bool>) ArrayIndex(I element)
      : pick_(detail::picked(element)) {}
  ArrayIndex(FromEnd element) : pick_(detail::picked(element)) {}
  ArrayIndex(DSlice slice) : pick_(detail::picked(slice)) {}
  ArrayIndex(StridedDSlice slice) : pick_(detail::picked(slice)) {}
  ArrayIndex(WholeDimension whole) : pick_(detail::picked(whole)) {}
  template <class T, std::size_t R>
  requires(std::is_same_v<std::remove_const_t<T>, std::int32_t>) ArrayIndex(Ref<T, R> elements)
      : is_array_(true), array_(Ref<const std::int32_t, R>(elements)) {}
  template <std::size_t R>
  ArrayIndex(const Tensor<std::int32_t, R>& elements) : ArrayIndex(elements.ref()) {}

  bool is_array() const { return is_array_; }
  const ArrayRef& array() const { return array_; }
  const detail::Picked& pick() const { return pick_; }

 private:
  bool is_array_ = false;
  detail::Picked pick_;
  ArrayRef array_;
};

namespace detail {

void load_at(const ArrayRef& x, std::span<const ArrayIndex> index, const MutableArrayRef& out);
void store_at(const ArrayRef& value, const MutableArrayRef& z, std::span<const ArrayIndex> index);
void take_along_axis(const ArrayRef& x, const ArrayRef& index, Index axis,
                     const MutableArrayRef& out);

}  // namespace detail

// out = x[index...]. The arrays are broadcast against each other by numpy's rules and run together;
// integers go with them. Their dimensions stand where the first of them stood, or in front when a
// slice lies between two of them; slices keep their order, and dimensions that are not named are
// whole: index {0, ds(3), v} of (2, 3, 4) gives (len(v), 3). The mask-free load of Pallas; no TPU
// takes arrays, and its compiler says so.
//
// Error: more indices than dimensions, arrays that do not go together, an out of another shape; a
// start or an entry outside of x, which names operand (inside of a grid), dimension and entry.
template <ElementType T, std::size_t R, std::size_t Q>
void load_at(Ref<T, R> x, std::initializer_list<ArrayIndex> index,
             Ref<std::remove_const_t<T>, Q> out) {
  detail::load_at(Ref<const T, R>(x), {index.begin(), index.size()}, out);
}

// z[index...] = value, of exactly the shape that load_at gives; of several values for one element
// the last one in row-major order stays.
template <ElementType T, std::size_t R, std::size_t Q>
requires(!std::is_const_v<T>) void store_at(Ref<const T, Q> value, Ref<T, R> z,
                                            std::initializer_list<ArrayIndex> index) {
  detail::store_at(value, z, {index.begin(), index.size()});
}
template <ElementType T, std::size_t R, std::size_t Q>
requires(!std::is_const_v<T>) void store_at(Ref<T, Q> value, Ref<T, R> z,
                                            std::initializer_list<ArrayIndex> index) {
  detail::store_at(Ref<const T, Q>(value), z, {index.begin(), index.size()});
}

// out[..., i, ...] = x[..., index[..., i, ...], ...] along `axis` (jnp.take_along_axis): index and
// out are of one shape, which is that of x but along the axis. Errors as load_at.
template <ElementType T, std::size_t R>
void take_along_axis(std::type_identity_t<Ref<const T, R>> x,
                     std::type_identity_t<Ref<const std::int32_t, R>> index, Index axis,
                     Ref<T, R> out) {
  detail::take_along_axis(x, index, axis, out);
}

}  // namespace kref
