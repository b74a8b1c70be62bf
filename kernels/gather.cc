// SPDX-License-Identifier: Apache-2.0
// Gathers walk the arrays of indices, and copy what the slices leave for each of their elements.
#include "kernels/gather.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dsl/overlap.h"
#include "kernels/move_ops.h"

namespace kref::detail {
namespace {

// What a list of indices makes of x: the slices of x, and the arrays that run over them.
struct Gather {
  const char* verb;
  ArrayRef x;
  ArrayRef slices;         // what remains of x for one element of the arrays, at its starts
  std::size_t front = 0;   // dimensions of `slices` before those of the arrays
  std::vector<Index> run;  // the shape of the arrays together
  struct Along {
    std::size_t dimension;
    ArrayRef array;  // of the shape of `run`, by strides
  };
  std::vector<Along> along;

  Gather(const char* name, const ArrayRef& operand, std::span<const ArrayIndex> index)
      : verb(name), x(operand), slices(operand) {
    KREF_CHECK(index.size() <= x.rank, verb, ": ", index.size(), " indices for ", to_string(x));
    place_slices(index);
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (index[d].is_array()) join(index[d].array());
    }
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (index[d].is_array()) along.push_back({d, spread(index[d].array())});
    }
    KREF_CHECK(slices.rank + run.size() <= kMaxRank, verb, ": a result of rank ",
               slices.rank + run.size(), ", expected at most ", kMaxRank);
  }

  void place_slices(std::span<const ArrayIndex> index) {
    slices.rank = 0;
    Index offset = 0;
    std::size_t first = x.rank, last = 0;
    for (std::size_t d = 0; d < x.rank; ++d) {
      const Picked whole;
      const Picked& p = d < index.size() ? index[d].pick() : whole;
      const bool element = p.kind == Pick::kElement || p.kind == Pick::kFromEnd;
      if (d < index.size() && (index[d].is_array() || element)) {
        first = std::min(first, d), last = d;
        if (element) offset += first_of(x.data, d, x.extents[d], p) * x.strides[d];
        continue;
      }
      const bool sliced = p.kind != Pick::kWhole;
      if (sliced) offset += first_of(x.data, d, x.extents[d], p) * x.strides[d];
      slices.extents[slices.rank] = sliced ? p.size : x.extents[d];
      slices.strides[slices.rank] = x.strides[d] * (sliced ? p.stride : 1);
      ++slices.rank;
    }
    bool together = true;
    for (std::size_t d = first; d < last; ++d) {
      const Pick kind = index[d].pick().kind;
      together =
          together && (index[d].is_array() || kind == Pick::kElement || kind == Pick::kFromEnd);
    }
    front = together && first < x.rank ? first : 0;
    slices.data = static_cast<const std::byte*>(x.data) + offset * item();
  }

  // The shape of `run` with one more array, by numpy's rules.
  void join(const ArrayRef& array) {
    if (run.size() < array.rank) run.insert(run.begin(), array.rank - run.size(), 1);
    for (std::size_t d = 0; d < array.rank; ++d) {
      Index& r = run[run.size() - array.rank + d];
      KREF_CHECK(r == array.extents[d] || r == 1 || array.extents[d] == 1, verb,
                 ": cannot broadcast shapes for indexing: ", shape_string(run), " and ",
                 shape_string(array.shape()));
      if (r == 1) r = array.extents[d];
    }
  }

  ArrayRef spread(const ArrayRef& array) const {
    ArrayRef out = array;
    out.rank = run.size();
    const std::size_t missing = run.size() - array.rank;
    for (std::size_t d = 0; d < run.size(); ++d) {
      const bool repeats = d < missing || array.extents[d - missing] == 1;
      out.extents[d] = run[d];
      out.strides[d] = repeats ? 0 : array.strides[d - missing];
    }
    return out;
  }

  Index item() const { return static_cast<Index>(size_of(x.dtype)); }

  std::vector<Index> shape() const {
    std::vector<Index> out(slices.extents.data(), slices.extents.data() + front);
    out.insert(out.end(), run.begin(), run.end());
    out.insert(out.end(), slices.extents.data() + front, slices.extents.data() + slices.rank);
    return out;
  }

  // Calls f(offset into x, offset into the result) for each element of the arrays, in order.
  template <class F>
  void for_each(const ArrayRef& result, F f) const {
    if (std::ranges::find(run, 0) != run.end()) return;
    Shape<kMaxRank> at{};
    for (;;) {
      Index x_offset = 0, offset = 0;
      for (const Along& a : along) {
        Index place = 0;
        for (std::size_t d = 0; d < run.size(); ++d) place += at[d] * a.array.strides[d];
        const Index i = static_cast<const std::int32_t*>(a.array.data)[place];
        if (i < 0 || i >= x.extents[a.dimension]) [[unlikely]] {
          throw OutsideView(cat(verb, ": dimension ", a.dimension, ": entry ",
                                shape_string({at.data(), run.size()}), " of the index is ", i,
                                ", which does not lie inside the extent ", x.extents[a.dimension]),
                            x.data);
        }
        x_offset += i * x.strides[a.dimension];
      }
      for (std::size_t d = 0; d < run.size(); ++d) offset += at[d] * result.strides[front + d];
      f(x_offset, offset);
      std::size_t d = run.size();
      while (d-- > 0 && ++at[d] == run[d]) at[d] = 0;
      if (d == static_cast<std::size_t>(-1)) return;
    }
  }

  // The dimensions of a result that the slices fill, for one element of the arrays.
  template <class Void>
  BasicArrayRef<Void> filled(const BasicArrayRef<Void>& result) const {
    BasicArrayRef<Void> out = result;
    out.rank = slices.rank;
    for (std::size_t d = 0; d < slices.rank; ++d) {
      const std::size_t from = d < front ? d : d + run.size();
      out.extents[d] = result.extents[from];
      out.strides[d] = result.strides[from];
    }
    return out;
  }
};

template <class Void>
BasicArrayRef<Void> moved(BasicArrayRef<Void> a, Index elements) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  a.data = static_cast<Byte*>(a.data) + elements * static_cast<Index>(size_of(a.dtype));
  return a;
}

void check_result(const Gather& g, const char* name, const ArrayRef& result) {
  const std::vector<Index> shape = g.shape();
  KREF_CHECK(std::ranges::equal(shape, result.shape()), g.verb, ": ", name, " is ",
             to_string(result), ", expected ", shape_string(shape));
  KREF_CHECK(!overlap(g.x, result), g.verb, ": ", name, " shares memory with the ref");
}

}  // namespace

void load_at(const ArrayRef& x, std::span<const ArrayIndex> index, const MutableArrayRef& out) {
  const Gather g("load_at", x, index);
  check_result(g, "out", out);
  const MutableArrayRef part = g.filled(out);
  g.for_each(out, [&](Index from, Index to) {
    copy_strided("load_at", moved(g.slices, from), moved(part, to));
  });
}

void store_at(const ArrayRef& value, const MutableArrayRef& z, std::span<const ArrayIndex> index) {
  const Gather g("store_at", z, index);
  check_result(g, "value", value);
  // An entry that is wrong leaves z as it was.
  g.for_each(value, [](Index, Index) {});
  MutableArrayRef target = z;
  target.rank = g.slices.rank, target.extents = g.slices.extents, target.strides = g.slices.strides;
  target.data = static_cast<std::byte*>(z.data) + (static_cast<const std::byte*>(g.slices.data) -
                                                   static_cast<const std::byte*>(z.data));
  const ArrayRef part = g.filled(value);
  g.for_each(value, [&](Index to, Index from) {
    copy_strided("store_at", moved(part, from), moved(target, to));
  });
}

void take_along_axis(const ArrayRef& x, const ArrayRef& index, Index axis,
                     const MutableArrayRef& out) {
  KREF_CHECK(axis >= 0 && static_cast<std::size_t>(axis) < x.rank, "take_along_axis: axis ", axis,
             " of x ", to_string(x), ", expected 0..", x.rank, " - 1");
  const auto a = static_cast<std::size_t>(axis);
  bool fits = std::ranges::equal(index.shape(), out.shape());
  for (std::size_t d = 0; d < x.rank; ++d)
    fits = fits && (d == a || index.extents[d] == x.extents[d]);
  KREF_CHECK(fits, "take_along_axis: x is ", to_string(x), ", index is ", to_string(index),
             ", out is ", to_string(out), ", expected the shape of x in both but along axis ",
             axis);
  KREF_CHECK(!overlap(x, out), "take_along_axis: out shares memory with x");
  const Index size = index.size();
  with_dtype(x.dtype, [&]<class T>() {
    Shape<kMaxRank> at{};
    for (Index n = 0; n < size; ++n) {
      Index from = 0, entry = 0, to = 0;
      for (std::size_t d = 0; d < x.rank; ++d) {
        from += d == a ? 0 : at[d] * x.strides[d];
        entry += at[d] * index.strides[d];
        to += at[d] * out.strides[d];
      }
      const Index i = static_cast<const std::int32_t*>(index.data)[entry];
      if (i < 0 || i >= x.extents[a]) [[unlikely]] {
        throw OutsideView(
            cat("take_along_axis: dimension ", a, ": entry ", shape_string({at.data(), x.rank}),
                " of the index is ", i, ", which does not lie inside the extent ", x.extents[a]),
            x.data);
      }
      static_cast<T*>(out.data)[to] = static_cast<const T*>(x.data)[from + i * x.strides[a]];
      std::size_t d = x.rank;
      while (d-- > 0 && ++at[d] == index.extents[d]) at[d] = 0;
    }
  });
}

}  // namespace kref::detail
