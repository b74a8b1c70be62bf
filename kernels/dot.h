// SPDX-License-Identifier: Apache-2.0
// dot_add: the product of two blocks added to an accumulator, the verb every matmul body calls.
#pragma once

#include "dsl/array.h"

namespace kref {

// How f32 operands are multiplied: the algorithms of jax.lax.DotAlgorithmPreset. An operand is
// split into bfloat16 parts, each rounded to nearest even: hi = bf16(v), mid = bf16(v - hi), lo =
// bf16(v - hi - mid). Products of parts are exact in f32. An operand that bf16 rounds to infinity
// has NaN as its further parts, as in JAX.
enum class Precision {
  kBF16,    // BF16_BF16_F32: hi hi, what a TPU does by default
  kBF16x3,  // BF16_BF16_F32_X3: mid hi + hi mid + hi hi
  kBF16x6,  // BF16_BF16_F32_X6: the six products whose ranks (hi 0, mid 1, lo 2) add up to 2 or
            // less
  kF32,     // F32_F32_F32
};

// All of them.
inline constexpr Precision kPrecisions[] = {Precision::kBF16, Precision::kBF16x3,
                                            Precision::kBF16x6, Precision::kF32};

// As run files spell it: "bf16", "bf16_x3", "bf16_x6", "f32".
constexpr const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kBF16:
      return "bf16";
    case Precision::kBF16x3:
      return "bf16_x3";
    case Precision::kBF16x6:
      return "bf16_x6";
    case Precision::kF32:
      break;
  }
  return "f32";
}

// How the operands of a product are stored and multiplied.
struct DotOptions {
  bool trans_x = false;                   // x is stored (k, m)
  bool trans_y = false;                   // y is stored (n, k)
  Precision precision = Precision::kF32;  // for f32 operands; must be kF32 for others
};

namespace detail {

// The accumulator that goes with an element type: f32 for floats up to 32 bits, f64, s32.
template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <>
struct AccumulatorOf<std::int8_t> {
  using type = std::int32_t;
};
template <>
struct AccumulatorOf<std::uint8_t> {
  using type = std::int32_t;
};

void dot_add(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& acc,
             const DotOptions& options, bool from_zero);

}  // namespace detail

// Element types that have a product: f32, f64, bf16, f16, f8_e4m3, f8_e5m2, s8, u8.
template <class T>
concept DotType = std::is_floating_point_v<T> || std::is_same_v<T, bf16> ||
    std::is_same_v<T, f16> || std::is_same_v<T, f8_e4m3> || std::is_same_v<T, f8_e5m2> ||
    std::is_same_v<T, std::int8_t> || std::is_same_v<T, std::uint8_t>;

// The type in which products of T are summed.
template <DotType T>
using Accumulator = typename detail::AccumulatorOf<T>::type;

// The same of types known at run time only.
constexpr bool has_product(DType type) {
  return with_dtype(type, []<class T>() { return DotType<T>; });
}
// Only of types that have a product.
constexpr DType accumulator_of(DType type) {
  return with_dtype(type,
                    []<class T>() { return dtype_of<typename detail::AccumulatorOf<T>::type>; });
}

// acc (m, n) += x (m, k) y (k, n). acc may be larger: a block at the edge of an array has fewer
// valid rows and columns than the scratch that was made for whole blocks; the rest of acc stays as
// it is. Each element is a chain along k ascending, in the accumulator's type: acc = fma(x, y,
// acc), one rounding a term; integers wrap. In the split precisions the terms of one k follow each
// other, the smallest first (x3: mid hi, hi mid, hi hi; x6: lo hi, mid mid, hi lo, mid hi, hi mid,
// hi hi). Hence the same bits for any way of cutting m, n and k into calls, any number of threads
// and any SIMD target; but of a NaN only that it is one: its sign and payload depend on which of
// several NaN operands an instruction hands on. Any row stride and alignment; m, n or k may be 0.
// acc must not overlap x or y. Error, naming operand and axis, when shapes do not fit.
template <DotType T>
void dot_add(std::type_identity_t<Ref<const T, 2>> x, Ref<const T, 2> y, Ref<Accumulator<T>, 2> acc,
             const DotOptions& options = {}) {
  detail::dot_add(x, y, acc, options, false);
}
template <DotType T>
void dot_add(std::type_identity_t<Ref<const T, 2>> x, Ref<T, 2> y, Ref<Accumulator<T>, 2> acc,
             const DotOptions& options = {}) {
  detail::dot_add(x, Ref<const T, 2>(y), acc, options, false);
}

// out = x y: dot_add to zeros, without reading out. k = 0 gives zeros.
template <DotType T>
void dot(std::type_identity_t<Ref<const T, 2>> x, Ref<const T, 2> y, Ref<Accumulator<T>, 2> out,
         const DotOptions& options = {}) {
  detail::dot_add(x, y, out, options, true);
}
template <DotType T>
void dot(std::type_identity_t<Ref<const T, 2>> x, Ref<T, 2> y, Ref<Accumulator<T>, 2> out,
         const DotOptions& options = {}) {
  detail::dot_add(x, Ref<const T, 2>(y), out, options, true);
}

}  // namespace kref
