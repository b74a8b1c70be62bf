// SPDX-License-Identifier: Apache-2.0
// Plain loops: the compiler's own vectors serve integers of every width.
#include "kernels/integer_ops.h"

#include "dsl/work.h"
#include "kernels/tile_plan.h"

namespace kref::detail {
namespace {

template <class T, class Op>
void map(const Plane& p, Op op) {
  for (Index r = 0; r < p.rows; ++r) {
    const T *x = p.side[0].row<const T>(r), *y = p.side[1].row<const T>(r);
    T* out = p.side[2].row<T>(r);
    for (Index c = 0; c < p.cols; ++c)
      out[c] = static_cast<T>(op(x[c * p.side[0].step], y[c * p.side[1].step]));
  }
}

template <class T>
void shifts_and_rem(IntegerOp op, const Plane& p) {
  using U = std::make_unsigned_t<T>;
  using S = std::make_signed_t<T>;
  constexpr auto kBits = static_cast<U>(8 * sizeof(T));
  switch (op) {
    case IntegerOp::kShiftLeft:
      return map<T>(p, [](T x, T y) {
        const U by = static_cast<U>(y);
        return by < kBits ? static_cast<U>(static_cast<U>(x) << by) : U{0};
      });
    case IntegerOp::kShiftRightLogical:
      return map<T>(p, [](T x, T y) {
        const U by = static_cast<U>(y);
        return by < kBits ? static_cast<U>(static_cast<U>(x) >> by) : U{0};
      });
    case IntegerOp::kShiftRightArithmetic:
      return map<T>(p, [](T x, T y) {
        const U by = static_cast<U>(y);
        return static_cast<S>(x) >> (by < kBits ? by : static_cast<U>(kBits - 1));
      });
    default:
      return map<T>(p, [](T x, T y) {
        if (y == 0) return x;
        if (std::is_signed_v<T> && y == static_cast<T>(-1)) return T{0};
        return static_cast<T>(x % y);
      });
  }
}

}  // namespace

void integer(IntegerOp op, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out) {
  const char* const names[] = {
      "bitwise_and",         "bitwise_or", "bitwise_xor", "shift_left", "shift_right_arithmetic",
      "shift_right_logical", "rem"};
  const Operand operands[] = {{"x", x}, {"y", y}, {"out", out}};
  const TilePlan plan(names[static_cast<std::size_t>(op)], operands, 3);
  count_work([&] { return out.size(); }, 1);
  with_dtype(out.dtype, [&]<class T>() {
    if constexpr (Bitwise<T>) {
      plan.for_each([&](const Plane& p) {
        switch (op) {
          case IntegerOp::kAnd:
            return map<T>(p, [](T a, T b) { return a & b; });
          case IntegerOp::kOr:
            return map<T>(p, [](T a, T b) { return a | b; });
          case IntegerOp::kXor:
            return map<T>(p, [](T a, T b) { return a ^ b; });
          default:
            if constexpr (Integer<T>) shifts_and_rem<T>(op, p);
        }
      });
    }
  });
}

}  // namespace kref::detail
