// SPDX-License-Identifier: Apache-2.0
// Comparisons and select.
#include <cstddef>
#include <cstring>

#include "dsl/work.h"
#include "kernels/convert.h"
#include "kernels/tile_ops.h"
#include "kernels/tile_plan.h"

namespace kref::detail {
namespace {

template <class T, class Test>
void compare_plane(const Plane& p, Test test) {
  for (Index r = 0; r < p.rows; ++r) {
    const T *x = p.side[0].row<const T>(r), *y = p.side[1].row<const T>(r);
    bool* out = p.side[2].row<bool>(r);
    for (Index c = 0; c < p.cols; ++c) {
      out[c] = test(comparable(x[c * p.side[0].step]), comparable(y[c * p.side[1].step]));
    }
  }
}

// Elements as bits, whatever their type: memcpy is how bits are read and written as another type.
template <class Bits>
void select_plane(const Plane& p) {
  constexpr auto kSize = static_cast<Index>(sizeof(Bits));
  const auto row = [&](std::size_t side, Index r) {
    return p.side[side].row<std::byte>(r * kSize);
  };
  for (Index r = 0; r < p.rows; ++r) {
    const bool* mask = p.side[0].row<const bool>(r);
    const std::byte *x = row(1, r), *y = row(2, r);
    std::byte* out = row(3, r);
    for (Index c = 0; c < p.cols; ++c) {
      Bits a, b;
      std::memcpy(&a, x + c * p.side[1].step * kSize, sizeof(Bits));
      std::memcpy(&b, y + c * p.side[2].step * kSize, sizeof(Bits));
      const Bits chosen = mask[c * p.side[0].step] ? a : b;
      std::memcpy(out + c * kSize, &chosen, sizeof(Bits));
    }
  }
}

}  // namespace

void compare(Compare op, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out) {
  const char* const names[] = {"equal", "less", "less_equal"};
  const char* verb = names[static_cast<std::size_t>(op)];
  const Operand operands[] = {{"x", x}, {"y", y}, {"out", out}};
  KREF_CHECK(x.dtype == y.dtype && out.dtype == DType::kBool, verb, ": x is ", to_string(x),
             ", y is ", to_string(y), ", out is ", to_string(out),
             ", expected one element type and BOOL");
  const TilePlan plan(verb, operands, 3);
  count_work([&] { return out.size(); }, 1);
  with_dtype(x.dtype, [&]<class T>() {
    plan.for_each([&](const Plane& p) {
      switch (op) {
        case Compare::kEqual:
          return compare_plane<T>(p, [](auto a, auto b) { return a == b; });
        case Compare::kLess:
          return compare_plane<T>(p, [](auto a, auto b) { return a < b; });
        case Compare::kLessEqual:
          return compare_plane<T>(p, [](auto a, auto b) { return a <= b; });
      }
    });
  });
}

void select(const ArrayRef& mask, const ArrayRef& x, const ArrayRef& y,
            const MutableArrayRef& out) {
  KREF_CHECK(mask.dtype == DType::kBool && x.dtype == out.dtype && y.dtype == out.dtype,
             "select: mask is ", to_string(mask), ", x is ", to_string(x), ", y is ", to_string(y),
             ", out is ", to_string(out), ", expected BOOL and one element type");
  const Operand operands[] = {{"mask", mask}, {"x", x}, {"y", y}, {"out", out}};
  const TilePlan plan("select", operands, 4);
  plan.for_each([&](const Plane& p) {
    switch (size_of(out.dtype)) {
      case 1:
        return select_plane<std::uint8_t>(p);
      case 2:
        return select_plane<std::uint16_t>(p);
      case 4:
        return select_plane<std::uint32_t>(p);
      default:
        return select_plane<std::uint64_t>(p);
    }
  });
}

}  // namespace kref::detail
