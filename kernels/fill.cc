// SPDX-License-Identifier: Apache-2.0
// fill and copy: the loops are by element size, the compiler's own vectors reach memory speed.
#include <algorithm>
#include <cstring>

#include "kernels/tile_ops.h"
#include "kernels/tile_plan.h"

namespace kref::detail {
namespace {

// Calls f with an unsigned integer of the size of the element.
template <class F>
void with_bits(DType type, F&& f) {
  switch (size_of(type)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

}  // namespace

void fill(const MutableArrayRef& out, const void* value) {
  const Operand operands[] = {{"out", out}};
  const TilePlan plan("fill", operands, 1);
  with_bits(out.dtype, [&](auto bits) {
    using Bits = decltype(bits);
    std::memcpy(&bits, value, sizeof(Bits));
    plan.for_each([&](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) std::fill_n(p.side[0].row<Bits>(r), p.cols, bits);
    });
  });
}

void copy(const ArrayRef& x, const MutableArrayRef& out) {
  KREF_CHECK(x.dtype == out.dtype, "copy: x is ", to_string(x), ", out is ", to_string(out),
             ", expected one element type");
  const Operand operands[] = {{"x", x}, {"out", out}};
  const TilePlan plan("copy", operands, 2);
  with_bits(out.dtype, [&](auto bits) {
    using Bits = decltype(bits);
    plan.for_each([](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) {
        const Bits* from = p.side[0].row<const Bits>(r);
        Bits* to = p.side[1].row<Bits>(r);
        if (p.side[0].step == 0) {
          std::fill_n(to, p.cols, *from);
        } else {
          std::memmove(to, from, static_cast<std::size_t>(p.cols) * sizeof(Bits));
        }
      }
    });
  });
}

}  // namespace kref::detail
