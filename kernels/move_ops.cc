// SPDX-License-Identifier: Apache-2.0
// Plain loops: what limits these is memory, and the compiler's own vectors reach it.
#include "kernels/move_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dsl/overlap.h"

namespace kref::detail {
namespace {

void check_apart(const char* verb, const ArrayRef& x, const MutableArrayRef& out) {
  KREF_CHECK(!overlap(x, out), verb, ": out ", to_string(out), " shares memory with x ",
             to_string(x));
}

// Element `start` to `start + size` of one dimension.
template <class Void>
BasicArrayRef<Void> part(const BasicArrayRef<Void>& a, std::size_t d, Index start, Index size) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  BasicArrayRef<Void> out = a;
  out.extents[d] = size;
  out.data =
      static_cast<Byte*>(a.data) + start * a.strides[d] * static_cast<Index>(size_of(a.dtype));
  return out;
}

// A matrix whose rows are contiguous in x and whose columns are in out; strides in elements.
template <class Bits>
void transpose_plane(const void* x, Index x_stride, void* out, Index out_stride, Index rows,
                     Index cols) {
  constexpr Index kTile = 16;  // rows and columns that the first-level cache holds both ways round
  const auto* const from = static_cast<const std::byte*>(x);
  auto* const to = static_cast<std::byte*>(out);
  for (Index r0 = 0; r0 < rows; r0 += kTile) {
    for (Index c0 = 0; c0 < cols; c0 += kTile) {
      const Index r1 = std::min(rows, r0 + kTile), c1 = std::min(cols, c0 + kTile);
      for (Index c = c0; c < c1; ++c) {
        for (Index r = r0; r < r1; ++r) {
          std::memcpy(to + (c * out_stride + r) * static_cast<Index>(sizeof(Bits)),
                      from + (r * x_stride + c) * static_cast<Index>(sizeof(Bits)), sizeof(Bits));
        }
      }
    }
  }
}

// The dimension with more than one element whose stride is 1; rank: none.
std::size_t lane_dimension(const ArrayRef& a) {
  for (std::size_t d = a.rank; d-- > 0;) {
    if (a.extents[d] > 1 && a.strides[d] == 1) return d;
  }
  return a.rank;
}

}  // namespace

void copy_strided(const char* verb, const ArrayRef& x, const MutableArrayRef& out) {
  const std::size_t x_lane = lane_dimension(x), out_lane = lane_dimension(out);
  if (x_lane == out_lane || x_lane == x.rank || out_lane == x.rank) {
    // The lanes run last, where the plan looks for them.
    ArrayRef from = x;
    MutableArrayRef to = out;
    if (x_lane < x.rank) {
      std::swap(from.extents[x_lane], from.extents[x.rank - 1]);
      std::swap(from.strides[x_lane], from.strides[x.rank - 1]);
      std::swap(to.extents[x_lane], to.extents[x.rank - 1]);
      std::swap(to.strides[x_lane], to.strides[x.rank - 1]);
    }
    return copy(from, to, verb);
  }
  if (x.size() == 0) return;
  for (std::size_t d = 0; d < out.rank; ++d) {
    KREF_CHECK(out.strides[d] != 0 || out.extents[d] == 1, verb,
               ": out repeats its elements along dimension ", d,
               " (stride 0), it cannot be written");
  }
  const auto item = static_cast<Index>(size_of(x.dtype));
  Shape<kMaxRank> at{};
  for (;;) {
    Index x_offset = 0, out_offset = 0;
    for (std::size_t d = 0; d < x.rank; ++d) {
      x_offset += at[d] * x.strides[d];
      out_offset += at[d] * out.strides[d];
    }
    const void* const from = static_cast<const std::byte*>(x.data) + x_offset * item;
    void* const to = static_cast<std::byte*>(out.data) + out_offset * item;
    const Index rows = x.extents[out_lane], cols = x.extents[x_lane];
    const auto plane = [&]<class Bits>(Bits) {
      transpose_plane<Bits>(from, x.strides[out_lane], to, out.strides[x_lane], rows, cols);
    };
    switch (item) {
      case 1:
        plane(std::uint8_t{});
        break;
      case 2:
        plane(std::uint16_t{});
        break;
      case 4:
        plane(std::uint32_t{});
        break;
      default:
        plane(std::uint64_t{});
    }
    std::size_t d = x.rank;
    while (d-- > 0) {
      if (d == x_lane || d == out_lane) continue;
      if (++at[d] < x.extents[d]) break;
      at[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

void iota(Index axis, const MutableArrayRef& out, Index first) {
  KREF_CHECK(axis >= 0 && static_cast<std::size_t>(axis) < out.rank, "iota: axis ", axis, " of ",
             to_string(out), ", expected 0..", out.rank, " - 1");
  const auto a = static_cast<std::size_t>(axis);
  with_dtype(out.dtype, [&]<class T>() {
    if constexpr (Number<T>) {
      // One line of numbers, repeated along the other dimensions.
      std::vector<T> line(static_cast<std::size_t>(out.extents[a]));
      for (std::size_t i = 0; i < line.size(); ++i)
        line[i] = static_cast<T>(first + static_cast<Index>(i));
      ArrayRef numbers = out;
      numbers.data = line.data();
      for (std::size_t d = 0; d < out.rank; ++d) numbers.strides[d] = d == a ? 1 : 0;
      copy(numbers, out, "iota");
    }
  });
}

void roll(const ArrayRef& x, Index shift, Index axis, Index stride, Index stride_axis,
          const MutableArrayRef& out) {
  const auto rank = static_cast<Index>(x.rank);
  KREF_CHECK(shift >= 0, "roll: shift must be non-negative, found ", shift);
  KREF_CHECK(axis >= 0 && axis < rank, "roll: axis is out of range: ", axis, " of x ",
             to_string(x));
  KREF_CHECK(stride >= 0, "roll: stride must be non-negative, found ", stride);
  KREF_CHECK(stride == 0 || (stride_axis >= 0 && stride_axis < rank),
             "roll: stride_axis is out of range: ", stride_axis, " of x ", to_string(x));
  KREF_CHECK(axis != stride_axis, "roll: expected axis and stride_axis are different, both are ",
             axis);
  KREF_CHECK(std::ranges::equal(x.shape(), out.shape()), "roll: out is ", to_string(out),
             ", expected the shape of x, ", to_string(x));
  if (x.size() == 0) return;
  check_apart("roll", x, out);
  const auto d = static_cast<std::size_t>(axis);
  const Index n = x.extents[d];
  const auto by = [&](const ArrayRef& from, const MutableArrayRef& to, Index places) {
    copy(part(from, d, 0, n - places), part(to, d, places, n - places), "roll");
    copy(part(from, d, n - places, places), part(to, d, 0, places), "roll");
  };
  if (stride % n == 0) return by(x, out, shift % n);
  const auto e = static_cast<std::size_t>(stride_axis);
  for (Index i = 0, places = shift % n; i < x.extents[e]; ++i, places = (places + stride % n) % n)
    by(part(x, e, i, 1), part(out, e, i, 1), places);
}

void transpose(const ArrayRef& x, const std::size_t* order, const MutableArrayRef& out) {
  ArrayRef turned = x;
  std::uint32_t seen = 0;
  for (std::size_t d = 0; d < x.rank; ++d) {
    KREF_CHECK(order[d] < x.rank && (seen >> order[d] & 1) == 0, "transpose: dimension ", d, " is ",
               order[d], ", expected each of 0..", x.rank, " - 1 once");
    seen |= 1u << order[d];
    turned.extents[d] = x.extents[order[d]];
    turned.strides[d] = x.strides[order[d]];
  }
  KREF_CHECK(std::ranges::equal(turned.shape(), out.shape()), "transpose: x is ", to_string(x),
             ", out is ", to_string(out), ", expected ", to_string(turned));
  check_apart("transpose", x, out);
  copy_strided("transpose", turned, out);
}

void broadcast_in_dim(const ArrayRef& x, const std::size_t* dimensions,
                      const MutableArrayRef& out) {
  ArrayRef wide = out;
  wide.dtype = x.dtype, wide.data = x.data, wide.strides = {};
  for (std::size_t d = 0; d < x.rank; ++d) {
    const std::size_t to = dimensions[d];
    KREF_CHECK(to < out.rank && (d == 0 || to > dimensions[d - 1]), "broadcast_in_dim: dimension ",
               d, " of x ", to_string(x), " lies along ", to,
               ", expected rising dimensions of out ", to_string(out));
    KREF_CHECK(x.extents[d] == out.extents[to] || x.extents[d] == 1, "broadcast_in_dim: dimension ",
               d, " of x ", to_string(x), " does not fit dimension ", to, " of out ",
               to_string(out));
    wide.strides[to] = x.extents[d] == 1 ? 0 : x.strides[d];
  }
  check_apart("broadcast_in_dim", x, out);
  copy_strided("broadcast_in_dim", wide, out);
}

}  // namespace kref::detail
