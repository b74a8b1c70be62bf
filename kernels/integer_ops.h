// SPDX-License-Identifier: Apache-2.0
// Verbs on whole numbers and bools, element by element; shapes go together as in
// kernels/tile_ops.h, and an input may be the output. The names are those of jax.lax.
#pragma once

#include "kernels/tile_ops.h"

namespace kref {

// Integers and, for the bitwise verbs, bool.
template <class T>
concept Bitwise = ElementType<T> && std::is_integral_v<T>;
template <class T>
concept Integer = Bitwise<T> && !std::is_same_v<T, bool>;

namespace detail {

enum class IntegerOp {
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRightArithmetic,
  kShiftRightLogical,
  kRem
};

void integer(IntegerOp op, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out);

}  // namespace detail

// out = x & y, x | y, x ^ y, ~x; of bools `and`, `or`, `unequal`, `not`.
template <Bitwise T, std::size_t R>
void bitwise_and(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kAnd, x, y, out);
}
template <Bitwise T, std::size_t R>
void bitwise_or(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kOr, x, y, out);
}
template <Bitwise T, std::size_t R>
void bitwise_xor(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kXor, x, y, out);
}
template <Bitwise T, std::size_t R>
void bitwise_not(detail::Input<T> x, Ref<T, R> out) {
  const T ones = static_cast<T>(std::is_same_v<T, bool> ? 1 : -1);
  detail::integer(detail::IntegerOp::kXor, x, Ref<const T, 0>(&ones, {}), out);
}

// out = x shifted by y bits. By as many as the type has, more, or a negative number: 0, or what the
// sign fills for the arithmetic one, as XLA has it.
template <Integer T, std::size_t R>
void shift_left(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kShiftLeft, x, y, out);
}
template <Integer T, std::size_t R>
void shift_right_arithmetic(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kShiftRightArithmetic, x, y, out);
}
template <Integer T, std::size_t R>
void shift_right_logical(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kShiftRightLogical, x, y, out);
}

// out = what is left of x / y rounded toward zero, with the sign of x (lax.rem; the % of Python and
// jnp has the sign of y). By 0 it is x, and the minimum by -1 is 0, as XLA has it.
template <Integer T, std::size_t R>
void rem(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::integer(detail::IntegerOp::kRem, x, y, out);
}

}  // namespace kref
