// SPDX-License-Identifier: Apache-2.0
// Tile verbs: what a kernel body may do to its blocks. Each works on views of any rank, any
// extents (0 included) and any row stride, and is vector code for every SIMD target, chosen at run
// time; the result has the same bits on all of them (but for the payload of a NaN). Each verb that
// names an output writes every element of it.
//
// The output comes last and sets the shape: inputs have that shape, extent 1 where they repeat, or
// fewer leading dimensions (numpy's broadcasting), or are a scalar; Error otherwise. So a block
// (m, n) goes together with a row (n) or (1, n), a column (m, 1), a number. An input may be the
// output itself, exactly the same view; views that overlap in another way are the caller's mistake.
#pragma once

#include <type_traits>

#include "dsl/array.h"
#include "dsl/tensor.h"

namespace kref {

// What a cast to f16, bf16, f8_e4m3 or f8_e5m2 makes of values past the largest finite one.
enum class Overflow {
  kDefault,   // infinity; NaN in f8_e4m3, which has none (jnp.astype)
  kSaturate,  // the largest finite value, also for infinities; NaN stays NaN
};

// Element types with arithmetic; the 8-bit floats are for storage, cast them first.
template <class T>
concept Number = ElementType<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, f8_e4m3> &&
                 !std::is_same_v<T, f8_e5m2>;
template <class T>
concept Float = Number<T> && !std::is_integral_v<T>;

namespace detail {

// An input of element type T: a Ref<T>, a Ref<const T> or a Tensor of any rank, or a number.
template <class T>
class AnyInput {
 public:
  template <std::size_t R>
  AnyInput(Ref<const T, R> ref) : view_(ref) {}
  template <std::size_t R>
  AnyInput(Ref<T, R> ref) : view_(Ref<const T, R>(ref)) {}
  template <std::size_t R>
  AnyInput(const Tensor<T, R>& tensor) : view_(tensor.ref()) {}
  AnyInput(T value) : value_(value) { view_.dtype = dtype_of<T>; }

  operator ArrayRef() const {
    ArrayRef view = view_;
    if (view.data == nullptr && view.rank == 0) view.data = &value_;
    return view;
  }

 private:
  ArrayRef view_;
  T value_{};
};
// Not deduced: the output says what T is.
template <class T>
using Input = const std::type_identity_t<AnyInput<T>>&;

enum class Binary { kAdd, kSub, kMul, kDiv, kMaximum, kMinimum };
enum class Unary { kNeg, kAbs, kExp, kExp2, kLog, kTanh };  // from kExp on: floats only
enum class Compare { kEqual, kLess, kLessEqual };
enum class Reduction { kSum, kMax, kMin };

void fill(const MutableArrayRef& out, const void* value);
// `verb` is the one that the user called.
void copy(const ArrayRef& x, const MutableArrayRef& out, const char* verb = "copy");
void cast(const ArrayRef& x, const MutableArrayRef& out, Overflow overflow);
void binary(Binary op, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out);
void unary(Unary op, const ArrayRef& x, const MutableArrayRef& out);
void mul_add(const ArrayRef& x, const ArrayRef& y, const ArrayRef& z, const MutableArrayRef& out);
void compare(Compare op, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out);
void select(const ArrayRef& mask, const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& out);
// Whether a reduction of elements `from` may have the type `to`.
bool legal_reduction(Reduction op, DType from, DType to);
void reduce_rows(Reduction op, const ArrayRef& x, const MutableArrayRef& out);

}  // namespace detail

// ---- Moving

// out = value, every element.
template <ElementType T, std::size_t R>
void fill(Ref<T, R> out, std::type_identity_t<T> value) {
  detail::fill(out, &value);
}

// out = x, bit for bit.
template <ElementType T, std::size_t R>
void copy(detail::Input<T> x, Ref<T, R> out) {
  detail::copy(x, out);
}

// out = x.astype(element type of out); any pair of element types. As jnp.astype (XLA's
// ConvertElementType):
// - to a float: to nearest, ties to even, rounded once whatever the source; a NaN keeps its sign;
// - float to integer: toward zero; values outside the range become its end, NaN becomes 0;
// - integer to a narrower integer: the low bits (wraps); bool counts as 0 and 1;
// - to bool: x != 0 (NaN is true).
// Overflow::kSaturate applies to the 16- and 8-bit floats; Error for other outputs.
template <ElementType S, ElementType T, std::size_t R, std::size_t Q>
requires(R <= Q) void cast(Ref<S, R> x, Ref<T, Q> out, Overflow overflow = Overflow::kDefault) {
  detail::cast(x, out, overflow);
}

// out = mask ? x : y, bit for bit (jnp.where).
template <ElementType T, std::size_t R>
void select(detail::Input<bool> mask, detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::select(mask, x, y, out);
}

// A vector as a column, to go with the rows of a block: (m) -> (m, 1).
template <ElementType T>
constexpr Ref<T, 2> column(Ref<T, 1> v) {
  return Ref<T, 2>(v.data(), {v.extent(0), 1}, {1, 1});
}

// ---- Arithmetic, element by element. f32 and f64 round as IEEE 754 says; f16 and bf16 are
// computed in f32, rounded there, then rounded to the element type; integers wrap.

template <Number T, std::size_t R>
void add(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::binary(detail::Binary::kAdd, x, y, out);
}
template <Number T, std::size_t R>
void sub(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::binary(detail::Binary::kSub, x, y, out);
}
template <Number T, std::size_t R>
void mul(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::binary(detail::Binary::kMul, x, y, out);
}
template <Float T, std::size_t R>
void div(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::binary(detail::Binary::kDiv, x, y, out);
}

// NaN where x or y is NaN, as jnp.maximum and jnp.minimum; -0 is less than +0.
template <Number T, std::size_t R>
void maximum(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::binary(detail::Binary::kMaximum, x, y, out);
}
template <Number T, std::size_t R>
void minimum(detail::Input<T> x, detail::Input<T> y, Ref<T, R> out) {
  detail::binary(detail::Binary::kMinimum, x, y, out);
}

// out = x * y + z, fused: floats round once (f16 and bf16: in f32, then to the element type).
template <Number T, std::size_t R>
void mul_add(detail::Input<T> x, detail::Input<T> y, detail::Input<T> z, Ref<T, R> out) {
  detail::mul_add(x, y, z, out);
}

template <Number T, std::size_t R>
void neg(detail::Input<T> x, Ref<T, R> out) {
  detail::unary(detail::Unary::kNeg, x, out);
}
template <Number T, std::size_t R>
void abs(detail::Input<T> x, Ref<T, R> out) {
  detail::unary(detail::Unary::kAbs, x, out);
}

// e^x over the whole range, subnormal results, infinities and NaN included. Measured error: f32
// below 0.66 units in the last place, subnormal results, which round twice, 0.78; f64 0.65 and 0.72
// on a sample. f16 and bf16 are computed in f32 and rounded.
template <Float T, std::size_t R>
void exp(detail::Input<T> x, Ref<T, R> out) {
  detail::unary(detail::Unary::kExp, x, out);
}

// 2^x, as exp: measured below 0.79 units in the last place over all f32, subnormal results
// included.
template <Float T, std::size_t R>
void exp2(detail::Input<T> x, Ref<T, R> out) {
  detail::unary(detail::Unary::kExp2, x, out);
}

// The natural logarithm, subnormal arguments included; of 0 it is -infinity, of what is below NaN.
// Measured over all f32: below 0.9 units in the last place.
template <Float T, std::size_t R>
requires(!std::is_same_v<T, double>) void log(detail::Input<T> x, Ref<T, R> out) {
  detail::unary(detail::Unary::kLog, x, out);
}

// Measured over all f32: below 1.2 units in the last place; odd, so that -0 stays -0.
template <Float T, std::size_t R>
requires(!std::is_same_v<T, double>) void tanh(detail::Input<T> x, Ref<T, R> out) {
  detail::unary(detail::Unary::kTanh, x, out);
}

// ---- Comparisons: false where an operand is NaN; -0 equals +0.

template <Number T, std::size_t R, std::size_t Q>
void equal(Ref<T, R> x, detail::Input<std::remove_const_t<T>> y, Ref<bool, Q> out) {
  detail::compare(detail::Compare::kEqual, x, y, out);
}
template <Number T, std::size_t R, std::size_t Q>
void less(Ref<T, R> x, detail::Input<std::remove_const_t<T>> y, Ref<bool, Q> out) {
  detail::compare(detail::Compare::kLess, x, y, out);
}
template <Number T, std::size_t R, std::size_t Q>
void less_equal(Ref<T, R> x, detail::Input<std::remove_const_t<T>> y, Ref<bool, Q> out) {
  detail::compare(detail::Compare::kLessEqual, x, y, out);
}

// ---- Reductions over the last dimension. out has the shape of x without it, or with extent 1.
// The element type of out is that of x; or F32 for F16 and BF16; or I32 for the sum of 8- and
// 16-bit integers, which wraps.

// The order of a sum is fixed: 16 lanes start at +0, element j is added to lane j mod 16, j
// ascending; then lane l takes lane l + 8, then l + 4, l + 2, l + 1. Floats are summed in f32 (F64:
// f64). Rows of extent 0 give 0; a NaN comes out as the positive quiet one.
template <Number S, Number T, std::size_t R, std::size_t Q>
requires(R >= 1 && (Q == R || Q + 1 == R)) void row_sum(Ref<S, R> x, Ref<T, Q> out) {
  detail::reduce_rows(detail::Reduction::kSum, x, out);
}

// NaN when an element is NaN (the positive quiet one); -0 is less than +0. Error on rows of extent
// 0.
template <Number S, Number T, std::size_t R, std::size_t Q>
requires(R >= 1 && (Q == R || Q + 1 == R)) void row_max(Ref<S, R> x, Ref<T, Q> out) {
  detail::reduce_rows(detail::Reduction::kMax, x, out);
}
template <Number S, Number T, std::size_t R, std::size_t Q>
requires(R >= 1 && (Q == R || Q + 1 == R)) void row_min(Ref<S, R> x, Ref<T, Q> out) {
  detail::reduce_rows(detail::Reduction::kMin, x, out);
}

}  // namespace kref
