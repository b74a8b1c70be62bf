// SPDX-License-Identifier: Apache-2.0
// add ... abs on floats by vectors; on integers by loops which the compiler vectorises.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "dsl/work.h"
#include "kernels/elementwise-inl.h"
#include "kernels/transcendental.h"

#if HWY_ONCE

#include <algorithm>

namespace kref::detail {
namespace {

HWY_EXPORT(FloatBinary);
HWY_EXPORT(FloatUnary);
HWY_EXPORT(FloatMulAdd);

const char* const kBinaryNames[] = {"add", "sub", "mul", "div", "maximum", "minimum"};
const char* const kUnaryNames[] = {"neg", "abs", "exp", "exp2", "log", "tanh"};

// Calls f with the integer type of that name.
template <class F>
void with_integer(DType type, F&& f) {
  with_dtype(type, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) f.template operator()<T>();
  });
}

// The type in which T wraps: unsigned, and not narrower than int, which would be promoted to it.
template <class T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

template <class T>
T integer_binary(Binary op, T x, T y) {
  const auto a = static_cast<Wrapping<T>>(x), b = static_cast<Wrapping<T>>(y);
  switch (op) {
    case Binary::kAdd:
      return static_cast<T>(a + b);
    case Binary::kSub:
      return static_cast<T>(a - b);
    case Binary::kMul:
      return static_cast<T>(a * b);
    case Binary::kMaximum:
      return std::max(x, y);
    case Binary::kMinimum:
      return std::min(x, y);
    case Binary::kDiv:
      break;  // not offered for integers
  }
  return x;
}

void check_types(const char* verb, const Operand* operands, std::size_t count) {
  const ArrayRef& out = operands[count - 1].view;
  for (std::size_t o = 0; o + 1 < count; ++o) {
    KREF_CHECK(operands[o].view.dtype == out.dtype, verb, ": ", operands[o].name, " is ",
               to_string(operands[o].view), ", out is ", to_string(out),
               ", expected one element type");
  }
  KREF_CHECK(is_integer(out.dtype) || (is_float(out.dtype) && size_of(out.dtype) > 1), verb,
             ": out is ", to_string(out), ", which has no arithmetic");
}

}  // namespace

void binary(Binary op, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out) {
  const char* verb = kBinaryNames[static_cast<std::size_t>(op)];
  const Operand operands[] = {{"x", x}, {"y", y}, {"out", out}};
  check_types(verb, operands, 3);
  KREF_CHECK(op != Binary::kDiv || is_float(out.dtype), "div: out is ", to_string(out),
             ", expected a float type");
  const TilePlan plan(verb, operands, 3);
  count_work([&] { return out.size(); }, 1);
  if (is_float(out.dtype)) {
    plan.for_each([&](const Plane& p) { HWY_DYNAMIC_DISPATCH(FloatBinary)(out.dtype, op, p); });
    return;
  }
  with_integer(out.dtype, [&]<class T>() {
    plan.for_each([&](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) {
        const T *a = p.side[0].row<const T>(r), *b = p.side[1].row<const T>(r);
        T* z = p.side[2].row<T>(r);
        for (Index c = 0; c < p.cols; ++c) {
          z[c] = integer_binary(op, a[c * p.side[0].step], b[c * p.side[1].step]);
        }
      }
    });
  });
}

void unary(Unary op, const ArrayRef& x, const MutableArrayRef& out) {
  const char* verb = kUnaryNames[static_cast<std::size_t>(op)];
  const Operand operands[] = {{"x", x}, {"out", out}};
  check_types(verb, operands, 2);
  if (op >= Unary::kExp) {
    const bool wide = op == Unary::kExp || op == Unary::kExp2 || out.dtype != DType::kF64;
    KREF_CHECK(is_float(out.dtype) && wide, verb, ": out is ", to_string(out),
               ", expected a float type", wide ? "" : " other than F64");
  }
  const TilePlan plan(verb, operands, 2);
  const bool hard = op >= Unary::kExp;
  count_work([&] { return out.size(); }, hard ? 0 : 1, hard ? 1 : 0);
  if (hard) {
    plan.for_each([&](const Plane& p) { transcendental(out.dtype, op, p); });
    return;
  }
  if (is_float(out.dtype)) {
    plan.for_each([&](const Plane& p) { HWY_DYNAMIC_DISPATCH(FloatUnary)(out.dtype, op, p); });
    return;
  }
  with_integer(out.dtype, [&]<class T>() {
    plan.for_each([&](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) {
        const T* a = p.side[0].row<const T>(r);
        T* z = p.side[1].row<T>(r);
        for (Index c = 0; c < p.cols; ++c) {
          const T v = a[c * p.side[0].step];
          z[c] = op == Unary::kNeg || v < T{0} ? integer_binary(Binary::kSub, T{0}, v) : v;
        }
      }
    });
  });
}

void mul_add(const ArrayRef& x, const ArrayRef& y, const ArrayRef& z, const MutableArrayRef& out) {
  const Operand operands[] = {{"x", x}, {"y", y}, {"z", z}, {"out", out}};
  check_types("mul_add", operands, 4);
  const TilePlan plan("mul_add", operands, 4);
  count_work([&] { return out.size(); }, 2);
  if (is_float(out.dtype)) {
    plan.for_each([&](const Plane& p) { HWY_DYNAMIC_DISPATCH(FloatMulAdd)(out.dtype, p); });
    return;
  }
  with_integer(out.dtype, [&]<class T>() {
    plan.for_each([&](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) {
        const T *a = p.side[0].row<const T>(r), *b = p.side[1].row<const T>(r),
                *s = p.side[2].row<const T>(r);
        T* o = p.side[3].row<T>(r);
        for (Index c = 0; c < p.cols; ++c) {
          const T product =
              integer_binary(Binary::kMul, a[c * p.side[0].step], b[c * p.side[1].step]);
          o[c] = integer_binary(Binary::kAdd, product, s[c * p.side[2].step]);
        }
      }
    });
  });
}

}  // namespace kref::detail
#endif  // HWY_ONCE
