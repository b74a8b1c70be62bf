// SPDX-License-Identifier: Apache-2.0
// A window is cut where its Ref ends: the lanes inside go through `select` or `copy`, those outside
// must be masked off.
#include "kernels/load_store.h"

#include <algorithm>
#include <cstddef>

#include "dsl/view.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

// The lanes of a window that lie inside its Ref: begin..end of each dimension.
struct Inside {
  Shape<kMaxRank> begin{}, end{};
  bool all = true;
  bool none = false;
};

template <class Void>
BasicArrayRef<Void> cut(const BasicArrayRef<Void>& a, const Shape<kMaxRank>& begin,
                        const Shape<kMaxRank>& end) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  BasicArrayRef<Void> out = a;
  Index offset = 0;
  for (std::size_t d = 0; d < a.rank; ++d) {
    out.extents[d] = end[d] - begin[d];
    offset += begin[d] * a.strides[d];
  }
  out.data = static_cast<Byte*>(a.data) + offset * static_cast<Index>(size_of(a.dtype));
  return out;
}

// The part of the Ref that the lanes inside cover.
template <class Void>
BasicArrayRef<Void> covered(const BasicArrayRef<Void>& ref, const Index* start, const Inside& in) {
  Shape<kMaxRank> begin{}, end{};
  for (std::size_t d = 0; d < ref.rank; ++d) {
    begin[d] = start[d] + in.begin[d];
    end[d] = start[d] + in.end[d];
  }
  return cut(ref, begin, end);
}

void check_shape(const char* verb, const char* name, const ArrayRef& a, const ArrayRef& window) {
  KREF_CHECK(std::ranges::equal(a.shape(), window.shape()), verb, ": ", name, " is ", to_string(a),
             ", expected the shape of the window, ", shape_string(window.shape()));
}

[[noreturn]] void refuse_lane(const char* verb, const ArrayRef& ref, const Index* start,
                              const ArrayRef& window, const Shape<kMaxRank>& lane, bool masked) {
  std::size_t d = 0;
  const auto outside = [&](std::size_t e) {
    return start[e] + lane[e] < 0 || start[e] + lane[e] >= ref.extents[e];
  };
  while (!outside(d)) ++d;
  throw OutsideView(cat(verb, ": lane ", shape_string({lane.data(), ref.rank}),
                        masked ? " is on and" : "", " lies outside: dimension ", d, ": start ",
                        start[d], ", size ", window.extents[d], ", extent ", ref.extents[d]),
                    ref.data);
}

// The lanes inside; OutsideView where one that is on lies outside.
Inside lanes_inside(const char* verb, const ArrayRef& ref, const Index* start, const ArrayRef& mask,
                    const ArrayRef& window) {
  Inside in;
  const bool masked = mask.data != nullptr;
  if (masked) check_shape(verb, "mask", mask, window);
  for (std::size_t d = 0; d < ref.rank; ++d) {
    const Index size = window.extents[d];
    in.begin[d] = start[d] >= 0 ? 0 : start[d] <= -size ? size : -start[d];
    in.end[d] = start[d] >= ref.extents[d]          ? 0
                : start[d] <= ref.extents[d] - size ? size
                                                    : ref.extents[d] - start[d];
    in.all = in.all && in.begin[d] == 0 && in.end[d] == size;
    in.none = in.none || in.begin[d] >= in.end[d];
  }
  if (in.all || window.size() == 0) return in;
  Shape<kMaxRank> lane{};
  for (;;) {
    bool inside = true;
    Index offset = 0;
    for (std::size_t d = 0; d < ref.rank; ++d) {
      inside = inside && lane[d] >= in.begin[d] && lane[d] < in.end[d];
      offset += masked ? lane[d] * mask.strides[d] : 0;
    }
    if (!inside && (!masked || static_cast<const bool*>(mask.data)[offset]))
      refuse_lane(verb, ref, start, window, lane, masked);
    std::size_t d = ref.rank;
    while (d-- > 0 && ++lane[d] == window.extents[d]) lane[d] = 0;
    if (d == static_cast<std::size_t>(-1)) return in;
  }
}

}  // namespace

void load_window(const ArrayRef& x, const Index* start, const ArrayRef& mask, const ArrayRef& other,
                 const MutableArrayRef& out) {
  const Inside in = lanes_inside("load", x, start, mask, out);
  if (!in.all) copy(other, out, "load");
  if (in.none) return;
  const ArrayRef part = covered(x, start, in);
  const MutableArrayRef to = cut(out, in.begin, in.end);
  if (mask.data == nullptr) return copy(part, to, "load");
  select(cut(mask, in.begin, in.end), part, other, to);
}

void store_window(const ArrayRef& value, const ArrayRef& mask, const MutableArrayRef& z,
                  const Index* start) {
  const Inside in = lanes_inside("store", z, start, mask, value);
  if (in.none) return;
  const MutableArrayRef part = covered(z, start, in);
  const ArrayRef from = cut(value, in.begin, in.end);
  if (mask.data == nullptr) return copy(from, part, "store");
  select(cut(mask, in.begin, in.end), from, part, part);
}

void swap_window(const MutableArrayRef& z, const Index* start, const ArrayRef& value,
                 const ArrayRef& mask, const MutableArrayRef& old) {
  check_shape("swap", "old", old, value);
  const Inside in = lanes_inside("swap", z, start, mask, value);
  if (!in.all) copy(value, old, "swap");
  if (!in.none) {
    const MutableArrayRef before = cut(old, in.begin, in.end);
    const ArrayRef part = covered(ArrayRef(z), start, in);
    if (mask.data == nullptr) {
      copy(part, before, "swap");
    } else {
      select(cut(mask, in.begin, in.end), part, cut(value, in.begin, in.end), before);
    }
  }
  store_window(value, mask, z, start);
}

}  // namespace kref::detail
