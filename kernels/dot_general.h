// SPDX-License-Identifier: Apache-2.0
// dot_general: products over any dimensions, with batches, and JAX's names for how f32 is
// multiplied. It brings the operands into the form of `dot` (kernels/dot.h), which multiplies.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/dot.h"

namespace kref {

// The dimension numbers of jax.lax.dot_general: ((contract_x, contract_y), (batch_x, batch_y)).
struct DotDimensions {
  std::vector<Index> contract_x, contract_y;
  std::vector<Index> batch_x = {}, batch_y = {};
};

// The precision of f32 operands that JAX gives this name, in capitals or not:
// - jax.lax.Precision: "DEFAULT" is one pass over bf16, what a TPU does; "HIGH" three passes;
//   "HIGHEST" and "float32" are products of f32, where a TPU takes six passes over bf16. (On a CPU
//   JAX computes all of them in f32.)
// - jax.lax.DotAlgorithmPreset: "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
//   "F32_F32_F32". The others are refused: F16_F16_F16, BF16_BF16_BF16 and the F8 presets that
//   accumulate in less than f32, X9 and TF32, which no unit here has. Error with the list.
Precision precision_of(std::string_view name);

namespace detail {

void dot_general(const ArrayRef& x, const ArrayRef& y, const DotDimensions& dims,
                 const MutableArrayRef& out, Precision precision);

}  // namespace detail

// out = lax.dot_general(x, y, dims, precision, preferred_element_type=T): the dimensions of out are
// those of the batch, then the others of x, then the others of y, each in order. Batch dimensions
// and contracted ones may stand anywhere, in any number; x or y may be of rank 1.
//
// Each sum is the chain of `dot` over the contracted dimensions, the last one listed fastest; it is
// made in the accumulator of the operands' type (f32 for floats up to 32 bits, f64, s32 for 8-bit
// integers, unsigned ones too) and rounded to T once. The special path of a TPU for a matrix times
// one row of narrow elements, which sums in the narrow type, is not modelled.
//
// Error, naming operand and dimension, on numbers that do not fit, on different element types, and
// on a precision for operands that are not f32.
template <class S, DotType S2, std::size_t R, std::size_t P, ElementType T, std::size_t Q>
requires(std::is_same_v<std::remove_const_t<S>, S2>) void dot_general(
    Ref<S, R> x, Ref<const S2, P> y, const DotDimensions& dims, Ref<T, Q> out,
    Precision precision = Precision::kF32) {
  detail::dot_general(Ref<const S2, R>(x), y, dims, out, precision);
}
template <class S, DotType S2, std::size_t R, std::size_t P, ElementType T, std::size_t Q>
requires(std::is_same_v<std::remove_const_t<S>, S2>) void dot_general(
    Ref<S, R> x, Ref<S2, P> y, const DotDimensions& dims, Ref<T, Q> out,
    Precision precision = Precision::kF32) {
  detail::dot_general(Ref<const S2, R>(x), Ref<const S2, P>(y), dims, out, precision);
}

}  // namespace kref
