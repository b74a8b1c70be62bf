// SPDX-License-Identifier: Apache-2.0
// Verbs on the bits of elements: bitcast, packing into 32-bit words, stochastic rounding; and the
// reciprocal. The names are those of jax.experimental.pallas and .tpu.
#pragma once

#include <array>

#include "kernels/tile_ops.h"

namespace kref {

namespace detail {

void bitcast(const ArrayRef& x, const MutableArrayRef& out);
void pack_elementwise(const ArrayRef* xs, std::size_t count, DType packed,
                      const MutableArrayRef& out);
void unpack_elementwise(const ArrayRef& x, Index index, DType packed, const MutableArrayRef& out);
void stochastic_round(const ArrayRef& x, const ArrayRef& bits, const MutableArrayRef& out);
void reciprocal(const ArrayRef& x, const MutableArrayRef& out, bool approx);

}  // namespace detail

// The bits of x as elements of another type (pltpu.bitcast(x, dtype)). Where the widths differ the
// last but one dimension is scaled by their ratio k: row r * k + j of the narrower array holds bits
// j * w to (j + 1) * w of row r of the wider one, the low bits first. Also what goes through
// ref.bitcast(dtype): bitcast(s[x], v) loads through it and bitcast(v, s[z]) stores. C++ does not
// let one memory be two types, so that there is no such view.
//
// Error: widths that differ on rank 0 or 1 ("bitcast 1D"), extents that do not fit, bool.
template <class S, std::size_t R, ElementType T>
requires(ElementType<S> && !std::is_same_v<T, bool> &&
         !std::is_same_v<std::remove_const_t<S>, bool>) void bitcast(Ref<S, R> x, Ref<T, R> out) {
  detail::bitcast(Ref<const std::remove_const_t<S>, R>(x), out);
}

// A type that several elements of go into one word of 32 bits.
template <class T>
concept Packed = std::is_same_v<T, bf16> || std::is_same_v<T, std::int16_t> ||
    std::is_same_v<T, std::int8_t> || std::is_same_v<T, std::uint8_t>;

// xs[i] in bits i * w to (i + 1) * w of each word of out, w the width of P
// (pltpu.pack_elementwise(xs, packed_dtype=P)): 32 / w sources of F32 for bf16, rounded to nearest
// even, or of I32 or U32 for the integers, of which the low bits are kept. All of the shape of out.
template <Packed P, ElementType T, std::size_t R, std::size_t N>
requires(
    sizeof(P) * N == 4 && sizeof(T) == 4 &&
    std::is_same_v<P, bf16> ==
        std::is_same_v<T, float>) void pack_elementwise(const std::array<Ref<const T, R>, N>& xs,
                                                        Ref<std::uint32_t, R> out) {
  std::array<ArrayRef, N> sources;
  for (std::size_t i = 0; i < N; ++i) sources[i] = xs[i];
  detail::pack_elementwise(sources.data(), N, dtype_of<P>, out);
}

// Part `index` of each word, widened: to F32 exactly for bf16, else to I32 or U32, by the sign of P
// (pltpu.unpack_elementwise(x, index=, packed_dtype=P, unpacked_dtype=)). Error, naming both, on an
// index of a part that there is not.
template <Packed P, ElementType T, std::size_t R>
requires(
    sizeof(T) == 4 &&
    std::is_same_v<P, bf16> ==
        std::is_same_v<
            T, float>) void unpack_elementwise(std::type_identity_t<Ref<const std::uint32_t, R>> x,
                                               Index index, Ref<T, R> out) {
  detail::unpack_elementwise(x, index, dtype_of<P>, out);
}

// out = one of the two bf16 next to x, by 32 random bits an element (pltpu.stochastic_round(x,
// bits, target_dtype=jnp.bfloat16)): the low 16 of them are added to the bits that are dropped, and
// what carries rounds away from zero. So the chance of each neighbour is how near it is, and a
// value that bf16 has stays. Past the largest bf16 the neighbour is infinity; infinities stay and
// NaN gives the quiet one with its sign.
template <std::size_t R>
void stochastic_round(std::type_identity_t<Ref<const float, R>> x,
                      std::type_identity_t<Ref<const std::uint32_t, R>> bits, Ref<bf16, R> out) {
  detail::stochastic_round(x, bits, out);
}

// out = 1 / x, rounded once (pl.reciprocal(x)). With `approx` what JAX's interpreters give for
// pl.reciprocal(x, approx=True): bf16(1 / bf16(x)), which is within 2^-7 of 1 / x; subnormal
// operands and results are kept. The fast unit of a TPU is nearer, within 2e-5, and has no bits
// that are written down.
template <std::size_t R>
void reciprocal(std::type_identity_t<Ref<const float, R>> x, Ref<float, R> out,
                bool approx = false) {
  detail::reciprocal(x, out, approx);
}

}  // namespace kref
