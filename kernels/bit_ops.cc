// SPDX-License-Identifier: Apache-2.0
// bitcast in plain loops; packing, stochastic rounding and the reciprocal in vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bit_ops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/bit_ops-inl.h"

#if HWY_ONCE

#include <cstring>
#include <utility>

#include "dsl/overlap.h"
#include "dsl/work.h"
#include "kernels/bit_ops.h"

namespace kref::detail {
namespace {

HWY_EXPORT(Pack);
HWY_EXPORT(Unpack);
HWY_EXPORT(StochasticRound);
HWY_EXPORT(ApproxReciprocal);

int bits_of(DType type) { return static_cast<int>(8 * size_of(type)); }

// Rows of `cols` elements: part j of each word of `wide` is the element of row j of `narrow`.
template <class Wide, class Narrow>
void split_row(const std::byte* wide, std::byte* narrow, Index stride, Index cols) {
  constexpr Index kParts = sizeof(Wide) / sizeof(Narrow);
  for (Index j = 0; j < kParts; ++j, narrow += stride * static_cast<Index>(sizeof(Narrow))) {
    for (Index c = 0; c < cols; ++c) {
      Wide word;
      std::memcpy(&word, wide + c * static_cast<Index>(sizeof(Wide)), sizeof(Wide));
      const auto part =
          static_cast<Narrow>(word >> (8 * sizeof(Narrow) * static_cast<unsigned>(j)));
      std::memcpy(narrow + c * static_cast<Index>(sizeof(Narrow)), &part, sizeof(Narrow));
    }
  }
}
template <class Wide, class Narrow>
void join_row(const std::byte* narrow, Index stride, std::byte* wide, Index cols) {
  constexpr Index kParts = sizeof(Wide) / sizeof(Narrow);
  for (Index c = 0; c < cols; ++c) {
    Wide word = 0;
    for (Index j = 0; j < kParts; ++j) {
      Narrow part;
      std::memcpy(&part, narrow + (j * stride + c) * static_cast<Index>(sizeof(Narrow)),
                  sizeof(Narrow));
      word = static_cast<Wide>(
          word | static_cast<Wide>(Wide{part} << (8 * sizeof(Narrow) * static_cast<unsigned>(j))));
    }
    std::memcpy(wide + c * static_cast<Index>(sizeof(Wide)), &word, sizeof(Wide));
  }
}

// f(Wide{}, Narrow{}) with the unsigned types of these sizes.
template <class F>
void with_widths(std::size_t wide, std::size_t narrow, F f) {
  const auto second = [&](auto w) {
    using Wide = decltype(w);
    if constexpr (sizeof(Wide) > 1) {
      if (narrow == 1) f(w, std::uint8_t{});
    }
    if constexpr (sizeof(Wide) > 2) {
      if (narrow == 2) f(w, std::uint16_t{});
    }
    if constexpr (sizeof(Wide) > 4) {
      if (narrow == 4) f(w, std::uint32_t{});
    }
  };
  if (wide == 2) second(std::uint16_t{});
  if (wide == 4) second(std::uint32_t{});
  if (wide == 8) second(std::uint64_t{});
}

void check_shape(const char* verb, const char* name, const ArrayRef& x, const ArrayRef& out) {
  bool same = x.rank == out.rank;
  for (std::size_t d = 0; same && d < x.rank; ++d) same = x.extents[d] == out.extents[d];
  KREF_CHECK(same, verb, ": ", name, " is ", to_string(x), ", expected the shape of out, ",
             to_string(out));
}

}  // namespace

void bitcast(const ArrayRef& x, const MutableArrayRef& out) {
  const std::size_t from = size_of(x.dtype), to = size_of(out.dtype);
  if (from == to) {
    check_shape("bitcast", "x", x, out);
    ArrayRef same = x;
    same.dtype = out.dtype;
    return copy(same, out, "bitcast");
  }
  KREF_CHECK(x.rank >= 2, "bitcast: bitcast 1D between widths: x is ", to_string(x), ", out is ",
             to_string(out), ", expected rank 2 or more");
  const std::size_t row = x.rank - 2;
  bool fits = true;
  for (std::size_t d = 0; d < x.rank; ++d) {
    const auto a = x.extents[d] * (d == row ? static_cast<Index>(from) : 1),
               b = out.extents[d] * (d == row ? static_cast<Index>(to) : 1);
    fits = fits && a == b;
  }
  KREF_CHECK(fits, "bitcast: x is ", to_string(x), ", out is ", to_string(out),
             ", expected dimension ", row, " scaled by ", from, " / ", to, " and the others equal");
  KREF_CHECK((x.extents[row + 1] <= 1 || x.strides[row + 1] == 1) &&
                 (x.extents[row + 1] <= 1 || out.strides[row + 1] == 1),
             "bitcast: expected rows of neighbouring elements");
  if (x.size() == 0) return;
  KREF_CHECK(!overlap(x, out), "bitcast: out ", to_string(out), " shares memory with x");
  // The walk goes over rows of the wider array, without their elements.
  const bool splits = from > to;
  const auto parts = static_cast<Index>(splits ? from / to : to / from);
  const auto item_x = static_cast<Index>(from), item_out = static_cast<Index>(to);
  const ArrayRef& wide = splits ? x : ArrayRef(out);
  const Index step_x = x.strides[row] * (splits ? 1 : parts),
              step_out = out.strides[row] * (splits ? parts : 1);
  with_widths(splits ? from : to, splits ? to : from, [&]<class W, class N>(W, N) {
    Shape<kMaxRank> at{};
    for (;;) {
      Index x_at = at[row] * step_x, out_at = at[row] * step_out;
      for (std::size_t d = 0; d < row; ++d) {
        x_at += at[d] * x.strides[d];
        out_at += at[d] * out.strides[d];
      }
      const auto* const source = static_cast<const std::byte*>(x.data) + x_at * item_x;
      auto* const target = static_cast<std::byte*>(out.data) + out_at * item_out;
      if (splits) {
        split_row<W, N>(source, target, out.strides[row], x.extents[row + 1]);
      } else {
        join_row<W, N>(source, x.strides[row], target, x.extents[row + 1]);
      }
      std::size_t d = row + 1;
      while (d-- > 0 && ++at[d] == wide.extents[d]) at[d] = 0;
      if (d == static_cast<std::size_t>(-1)) return;
    }
  });
}

void pack_elementwise(const ArrayRef* xs, std::size_t count, DType packed,
                      const MutableArrayRef& out) {
  const int width = bits_of(packed);
  const std::uint32_t mask = (1u << width) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = cat("source ", i);
    check_shape("pack_elementwise", name.c_str(), xs[i], out);
    KREF_CHECK(!overlap(xs[i], out), "pack_elementwise: out shares memory with source ", i);
    const Operand operands[] = {{"x", xs[i]}, {"out", out}};
    const TilePlan plan("pack_elementwise", operands, 2);
    plan.for_each([&](const Plane& p) {
      HWY_DYNAMIC_DISPATCH(Pack)(is_float(packed), static_cast<int>(i) * width, mask, i > 0, p);
    });
  }
}

void unpack_elementwise(const ArrayRef& x, Index index, DType packed, const MutableArrayRef& out) {
  const int width = bits_of(packed);
  KREF_CHECK(index >= 0 && index < 32 / width, "unpack_elementwise: index ", index,
             " is out of bounds for packing factor ", 32 / width);
  check_shape("unpack_elementwise", "x", x, out);
  const Operand operands[] = {{"x", x}, {"out", out}};
  const TilePlan plan("unpack_elementwise", operands, 2);
  const int left = 32 - width * (static_cast<int>(index) + 1);
  plan.for_each([&](const Plane& p) {
    HWY_DYNAMIC_DISPATCH(Unpack)(is_float(packed), left, 32 - width, packed != DType::kU8, p);
  });
}

void stochastic_round(const ArrayRef& x, const ArrayRef& bits, const MutableArrayRef& out) {
  check_shape("stochastic_round", "x", x, out);
  check_shape("stochastic_round", "bits", bits, out);
  const Operand operands[] = {{"x", x}, {"bits", bits}, {"out", out}};
  const TilePlan plan("stochastic_round", operands, 3);
  plan.for_each([](const Plane& p) { HWY_DYNAMIC_DISPATCH(StochasticRound)(p); });
}

void reciprocal(const ArrayRef& x, const MutableArrayRef& out, bool approx) {
  if (!approx) {
    const float one = 1;
    return binary(Binary::kDiv, Ref<const float, 0>(&one, {}), x, out);
  }
  const Operand operands[] = {{"x", x}, {"out", out}};
  const TilePlan plan("reciprocal", operands, 2);
  count_work([&] { return out.size(); }, 1);
  plan.for_each([](const Plane& p) { HWY_DYNAMIC_DISPATCH(ApproxReciprocal)(p); });
}

}  // namespace kref::detail
#endif  // HWY_ONCE
