// SPDX-License-Identifier: Apache-2.0
// Views of a part of a Ref: what Ref::at, Ref::reshape and Ref::transpose are asked with, and how
// they answer. Included by dsl/ref.h.
#pragma once

#include "dsl/ref.h"

namespace kref {

// ---- Indices of Ref::at, one a dimension. An integer picks one element and drops the dimension.

// `size` elements from `start`, neighbours or, with a stride, every stride-th; stride 0 repeats the
// one at `start`. Start, size and stride may be known at run time only.
struct DSlice {
  Index start = 0, size = 0;
};
struct StridedDSlice {
  Index start = 0, size = 0, stride = 1;
};
struct WholeDimension {};

// pl.ds(start, size), pl.ds(start, size, stride), pl.ds(size): from element 0, pl.ds(None) or `:`.
constexpr DSlice ds(Index start, Index size) { return {start, size}; }
constexpr StridedDSlice ds(Index start, Index size, Index stride) { return {start, size, stride}; }
constexpr DSlice ds(Index size) { return {0, size}; }
constexpr WholeDimension ds() { return {}; }

// Element extent - count: from_end(1), the last one, is x[-1] of Python. A plain integer below 0 is
// refused, since one that is computed is a mistake more often than a place.
struct FromEnd {
  Index count = 1;
};
constexpr FromEnd from_end(Index count) { return {count}; }

// `...`: as many whole dimensions as there are left.
struct Ellipsis {};
inline constexpr Ellipsis ellipsis{};

namespace detail {

enum class Pick : std::uint8_t { kElement, kFromEnd, kSlice, kStrided, kWhole, kEllipsis };

struct Picked {
  Pick kind = Pick::kWhole;
  Index start = 0, size = 1, stride = 1;
};

template <class I>
requires(std::is_integral_v<I> && !std::is_same_v<I, bool>) constexpr Picked picked(I i) {
  return {Pick::kElement, static_cast<Index>(i)};
}
constexpr Picked picked(FromEnd i) { return {Pick::kFromEnd, i.count}; }
constexpr Picked picked(DSlice s) { return {Pick::kSlice, s.start, s.size}; }
constexpr Picked picked(StridedDSlice s) { return {Pick::kStrided, s.start, s.size, s.stride}; }
constexpr Picked picked(WholeDimension) { return {}; }
constexpr Picked picked(Ellipsis) { return {Pick::kEllipsis}; }

// What a list of indices makes of a rank.
struct ViewRank {
  std::size_t listed = 0, ellipses = 0, rank = 0;
  bool ends_in_one = false;  // the last dimension of the view is one of extent 1 that was added
};

constexpr ViewRank view_rank(std::size_t rank, const Pick* kinds, std::size_t count) {
  ViewRank v;
  std::size_t elements = 0;
  Pick last = Pick::kWhole;
  for (std::size_t i = 0; i < count; ++i) {
    v.ellipses += kinds[i] == Pick::kEllipsis ? 1 : 0;
    v.listed += kinds[i] == Pick::kEllipsis ? 0 : 1;
    elements += kinds[i] == Pick::kElement || kinds[i] == Pick::kFromEnd ? 1 : 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (kinds[i] != Pick::kEllipsis) {
      last = kinds[i];
    } else if (v.listed < rank) {
      last = Pick::kWhole;
    }
  }
  if (v.ellipses == 0 && v.listed < rank) last = Pick::kWhole;
  v.rank = rank > elements ? rank - elements : 0;
  v.ends_in_one =
      last == Pick::kStrided || (v.rank > 0 && (last == Pick::kElement || last == Pick::kFromEnd));
  v.rank += v.ends_in_one ? 1 : 0;
  return v;
}

template <class T, std::size_t R, class... I>
struct ViewType {
  static constexpr std::array<Pick, sizeof...(I) + 1> kKinds{picked(I{}).kind..., Pick::kWhole};
  static constexpr ViewRank kRank = view_rank(R, kKinds.data(), sizeof...(I));
  static_assert(kRank.listed <= R, "Ref::at: more indices than dimensions");
  static_assert(kRank.ellipses <= 1, "Ref::at: only one ellipsis is supported");
  using type = Ref<T, kRank.rank>;
};

// A request for elements outside of a view; `view` points into the memory of the operand, whose
// name a grid puts in front.
class OutsideView : public Error {
 public:
  OutsideView(const std::string& what, const void* at) : Error(what), view(at) {}
  const void* view;
};

// Throws OutsideView: "Ref::at: dimension 1: start 3, size 2: elements 3:5 do not lie inside the
// extent 3".
[[noreturn]] void refuse_pick(const char* who, const void* view, std::size_t dimension,
                              Index extent, const Picked& p);

// The first element that `p` picks of a dimension; OutsideView where one of them is none of it.
constexpr Index first_of(const void* view, std::size_t d, Index extent, const Picked& p) {
  const Index start = p.kind == Pick::kFromEnd ? extent - p.start : p.start;
  bool inside = p.size >= 0 && p.stride >= 0 && start >= 0;
  if (p.kind != Pick::kStrided) {
    inside = inside && start <= extent - p.size;
  } else if (p.size == 0) {
    inside = inside && start <= extent;
  } else {
    inside = inside && start < extent &&
             (p.stride == 0 || p.size - 1 <= (extent - 1 - start) / p.stride);
  }
  if (!inside) [[unlikely]]
    refuse_pick("Ref::at", view, d, extent, p);
  return start;
}

// Strides of the view as an array of other extents. Error when the number of elements differs or
// when the elements do not lie so that strides describe it; the last stride is 1.
void reshaped_strides(const Index* extents, const Index* strides, std::size_t rank,
                      const Index* new_extents, std::size_t new_rank, Index* new_strides);
// Error unless order is a permutation of 0..rank-1 that leaves a last dimension of stride 1.
void check_transpose(const Index* extents, std::size_t rank, const std::size_t* order);

}  // namespace detail

template <ElementType T, std::size_t R>
template <class... I>
constexpr typename detail::ViewType<T, R, I...>::type Ref<T, R>::at(I... index) const {
  using View = detail::ViewType<T, R, I...>;
  const std::array<detail::Picked, sizeof...(I) + 1> picks{detail::picked(index)..., {}};
  Shape<View::kRank.rank> extents{}, strides{};
  Index offset = 0;
  std::size_t d = 0, q = 0;
  const auto keep = [&](Index extent, Index stride) {
    if constexpr (View::kRank.rank > 0) extents[q] = extent, strides[q] = stride;
    ++q;
  };
  const auto keep_whole = [&](std::size_t until) {
    for (; d < until; ++d) keep(extents_[d], strides_[d]);
  };
  for (std::size_t i = 0; i < sizeof...(I); ++i) {
    const detail::Picked& p = picks[i];
    if (p.kind == detail::Pick::kEllipsis) {
      keep_whole(d + R - View::kRank.listed);
    } else if (p.kind == detail::Pick::kWhole) {
      keep_whole(d + 1);
    } else {
      offset += detail::first_of(data_, d, extents_[d], p) * strides_[d];
      if (p.kind == detail::Pick::kSlice || p.kind == detail::Pick::kStrided)
        keep(p.size, p.stride * strides_[d]);
      ++d;
    }
  }
  keep_whole(R);
  if (View::kRank.ends_in_one) keep(1, 1);
  return {data_ + offset, extents, strides};
}

template <ElementType T, std::size_t R>
template <class... I>
requires(std::is_convertible_v<I, Index>&&...) constexpr Ref<T, sizeof...(I)> Ref<T, R>::reshape(
    I... extents) const {
  const Shape<sizeof...(I)> shape{static_cast<Index>(extents)...};
  Shape<sizeof...(I)> strides{};
  detail::reshaped_strides(extents_.data(), strides_.data(), R, shape.data(), sizeof...(I),
                           strides.data());
  return {data_, shape, strides};
}

template <ElementType T, std::size_t R>
template <class... I>
requires(sizeof...(I) == R && (std::is_convertible_v<I, Index> &&
                               ...)) constexpr Ref<T, R> Ref<T, R>::transpose(I... order) const {
  const std::array<std::size_t, R> from{static_cast<std::size_t>(order)...};
  detail::check_transpose(extents_.data(), R, from.data());
  Shape<R> extents{}, strides{};
  for (std::size_t d = 0; d < R; ++d)
    extents[d] = extents_[from[d]], strides[d] = strides_[from[d]];
  return {data_, extents, strides};
}

}  // namespace kref
