// SPDX-License-Identifier: Apache-2.0
// Ref<T, R>: a view of a block of memory with R dimensions. It does not own, is copied freely, and
// never outlives what it views.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dsl/check.h"
#include "dsl/dtype.h"

namespace kref {

using Index = std::int64_t;

// The largest rank of any array in the project.
inline constexpr std::size_t kMaxRank = 6;

// Extents, strides or an index: one number a dimension, the slowest first.
template <std::size_t R>
using Shape = std::array<Index, R>;

// ceil(a / b) for a >= 0, b > 0: how many blocks of b cover a.
constexpr Index cdiv(Index a, Index b) { return a / b + (a % b != 0 ? 1 : 0); }

template <ElementType T, std::size_t R>
class Ref;

namespace detail {

template <class T, std::size_t R, class... I>
struct ViewType;

// A product of extents that knows whether it is one.
struct Product {
  Index value = 1;
  int bad = -1;  // the dimension that is negative, or takes the product past 2^63 - 1; -1: none
};

// extents[0] * ... * extents[rank - 1] * unit; 0 when an extent is 0, however large the others are.
constexpr Product product_of(const Index* extents, std::size_t rank, Index unit = 1) {
  Product p{unit, -1};
  bool empty = false;
  for (std::size_t d = rank; d-- > 0;) {
    if (extents[d] < 0) return {0, static_cast<int>(d)};
    empty = empty || extents[d] == 0;
    if (__builtin_mul_overflow(p.value, extents[d], &p.value) && p.bad < 0) {
      p.bad = static_cast<int>(d);
    }
  }
  return empty ? Product{0, -1} : p;
}

// Throws the Error of a product that is bad: "WHO: shape [2,-1]: dimension 1 is negative", "WHO:
// shape [..]: dimension 0 makes more than 2^63 - 1 elements" (bytes where an element is a unit).
[[noreturn]] void refuse_shape(const char* who, const Index* extents, std::size_t rank, int bad,
                               Index unit);

// The value of product_of: the one place where sizes are multiplied. Error where it does not fit.
constexpr Index checked_product(const char* who, const Index* extents, std::size_t rank,
                                Index unit = 1) {
  const Product p = product_of(extents, rank, unit);
  if (p.bad >= 0) [[unlikely]]
    refuse_shape(who, extents, rank, p.bad, unit);
  return p.value;
}

// Throws the Error of Ref::block.
[[noreturn]] void refuse_block(const void* view, std::size_t dimension, Index start, Index size,
                               Index extent);
[[noreturn]] void refuse_element(const void* view, const Index* at, const Index* extents,
                                 std::size_t rank);

// Strides, in elements, of a dense row-major array. Error as checked_product.
constexpr void dense_strides(const char* who, const Index* extents, std::size_t rank,
                             Index* strides) {
  checked_product(who, extents, rank);
  Index stride = 1;
  for (std::size_t d = rank; d-- > 0;) {
    strides[d] = stride;
    // Overflows only where there are no elements to reach.
    if (__builtin_mul_overflow(stride, extents[d] > 1 ? extents[d] : 1, &stride)) stride = 0;
  }
}

}  // namespace detail

// A view with run-time extents and strides, counted in elements. The last dimension is contiguous
// (stride 1); the others may have any stride, 0 (a broadcast) and negative ones included.
template <ElementType T, std::size_t R>
class Ref {
  static_assert(R <= kMaxRank, "Ref: rank above 6");

 public:
  using Element = T;
  static constexpr std::size_t kRank = R;

  constexpr Ref() = default;
  constexpr Ref(const Ref&) = default;
  // Not to a temporary: s[z] = s[x] would copy no element and say nothing. Use copy() or store().
  constexpr Ref& operator=(const Ref&) & = default;

  // Dense, row-major. Error on a negative extent and on more elements than an Index counts.
  constexpr Ref(T* data, const Shape<R>& extents) : data_(data), extents_(extents) {
    detail::dense_strides("Ref", extents_.data(), R, strides_.data());
  }

  // Strided. Error when the last stride is not 1 (its extent 0 or 1: any stride is taken as 1).
  constexpr Ref(T* data, const Shape<R>& extents, const Shape<R>& strides)
      : data_(data), extents_(extents), strides_(strides) {
    if constexpr (R > 0) {
      KREF_CHECK(strides[R - 1] == 1 || extents[R - 1] <= 1,
                 "Ref: stride of the last dimension is ", strides[R - 1], ", expected 1");
      strides_[R - 1] = 1;
    }
  }

  // Ref<T> -> Ref<const T>.
  constexpr operator Ref<const T, R>() const requires(!std::is_const_v<T>) {
    return Ref<const T, R>(data_, extents_, strides_);
  }

  constexpr T* data() const { return data_; }
  constexpr Index extent(std::size_t d) const { return extents_[d]; }
  constexpr Index stride(std::size_t d) const { return strides_[d]; }
  constexpr const Shape<R>& extents() const { return extents_; }
  constexpr const Shape<R>& strides() const { return strides_; }

  // Number of elements. Error when an Index does not count them, which takes a broadcast view.
  constexpr Index size() const { return detail::checked_product("Ref", extents_.data(), R); }

  // True when the elements lie one after the other.
  constexpr bool dense() const {
    if (size() == 0) return true;
    Shape<R> dense{};
    detail::dense_strides("Ref", extents_.data(), R, dense.data());
    for (std::size_t d = 0; d < R; ++d) {
      if (extents_[d] != 1 && strides_[d] != dense[d]) return false;
    }
    return true;
  }

  // The element at R indices. Debug builds check the bounds: Error, in a body with its operand and
  // step. Release builds do not; what a view is used for as a whole is always checked.
  template <class... I>
  requires(sizeof...(I) == R && (std::is_convertible_v<I, Index> && ...)) constexpr T& operator()(
      I... index) const {
    const Shape<R> at{static_cast<Index>(index)...};
    return (*this)[at];
  }
  constexpr T& operator[](const Shape<R>& at) const {
    Index offset = 0;
    for (std::size_t d = 0; d < R; ++d) {
#ifndef NDEBUG
      if (at[d] < 0 || at[d] >= extents_[d]) [[unlikely]]
        detail::refuse_element(data_, at.data(), extents_.data(), R);
#endif
      offset += at[d] * strides_[d];
    }
    return data_[offset];
  }

  // The sub-block of `extents` elements that starts at `start`; Error when it does not lie inside.
  constexpr Ref block(const Shape<R>& start, const Shape<R>& extents) const {
    Index offset = 0;
    for (std::size_t d = 0; d < R; ++d) {
      if (start[d] < 0 || extents[d] < 0 || start[d] > extents_[d] - extents[d]) [[unlikely]]
        detail::refuse_block(data_, d, start[d], extents[d], extents_[d]);
      offset += start[d] * strides_[d];
    }
    Ref sub(*this);
    sub.data_ = data_ + offset;
    sub.extents_ = extents;
    return sub;
  }

  // The view of what the indices pick, as x_ref.at[...]: x.at(i, ds(8 * j, 8), ds()) is
  // x_ref.at[i, pl.ds(8 * j, 8), :]. An index is an integer, from_end(n), ds(...) or `ellipsis`;
  // dimensions that are not named are whole, and views of views compose from left to right. All
  // integers make a view of rank 0: x.at(i, j)() is the checked x_ref[i, j] of scalar memory.
  //
  // Lanes stay contiguous: where the last dimension is picked from with a stride, or by an integer
  // while others remain, the view ends in a dimension of extent 1, so that column c of (m, n) is
  // (m, 1) and every other element of (n) is (n / 2, 1).
  //
  // Error, at every build, when an element lies outside: it names operand (inside of a grid),
  // dimension, start, size, stride and extent. More indices than dimensions do not compile.
  template <class... I>
  constexpr typename detail::ViewType<T, R, I...>::type at(I... index) const;

  // The same elements as an array of these extents (ref.reshape), without a copy. Error when their
  // number differs or no strides describe them.
  template <class... I>
  requires(std::is_convertible_v<I, Index>&&...) constexpr Ref<T, sizeof...(I)> reshape(
      I... extents) const;

  // Dimension d of the view is dimension order[d] (ref.transpose). Error unless the last one stays
  // the last or has extent 1; the verb transpose() moves lanes.
  template <class... I>
  requires(sizeof...(I) == R && (std::is_convertible_v<I, Index> && ...)) constexpr Ref
      transpose(I... order) const;

 private:
  T* data_ = nullptr;
  Shape<R> extents_{};
  Shape<R> strides_{};
};

// The last two dimensions of a view whose other dimensions have extent 1 (squeezed or not):
// (1, 1, m, n) -> (m, n). Error when another dimension is larger.
template <ElementType T, std::size_t R>
requires(R >= 2) constexpr Ref<T, 2> matrix(Ref<T, R> ref) {
  for (std::size_t d = 0; d + 2 < R; ++d) {
    KREF_CHECK(ref.extent(d) == 1, "matrix: dimension ", d, " has extent ", ref.extent(d),
               ", expected 1");
  }
  return Ref<T, 2>(ref.data(), {ref.extent(R - 2), ref.extent(R - 1)}, {ref.stride(R - 2), 1});
}

}  // namespace kref

#include "dsl/view.h"  // the members that take indices
