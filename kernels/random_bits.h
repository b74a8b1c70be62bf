// SPDX-License-Identifier: Apache-2.0
// Random numbers by counters: threefry2x32 as jax.random uses it (jax_threefry_partitionable, the
// default), bit for bit. An element depends on key and place only, never on blocks or order. The
// stream of a TPU's own generator (pltpu.prng_seed) is its generation's and is not offered.
#pragma once

#include <array>

#include "kernels/tile_ops.h"

namespace kref {

// jax.random.key_data of a threefry key.
struct RandomKey {
  std::uint32_t high = 0, low = 0;
  bool operator==(const RandomKey&) const = default;
};

// jax.random.key(seed). Without jax_enable_x64 JAX keeps the low 32 bits of a seed only; this one
// keeps all 64.
constexpr RandomKey random_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(seed)};
}

// The block cipher: 20 rounds on two words (jax.extend.random.threefry_2x32 of two counters).
std::array<std::uint32_t, 2> threefry2x32(RandomKey key, std::uint32_t high, std::uint32_t low);

// jax.random.fold_in(key, data).
RandomKey fold_in(RandomKey key, std::uint32_t data);
// jax.random.split(key, n)[i]; the same for every n.
RandomKey split_key(RandomKey key, std::uint64_t i);

namespace detail {

void random_bits(RandomKey key, std::uint64_t first, const MutableArrayRef& out);
void uniform(RandomKey key, float low, float high, const MutableArrayRef& out);

}  // namespace detail

// out = jax.random.bits(key, out.shape, dtype): U32, U8, or I16, I32 and I64 for the bits of
// uint16, uint32 and uint64, which have no element type here. `first` is the number of the first
// element, for a part of a larger array that is contiguous in it.
template <class T, std::size_t R>
requires(std::is_integral_v<T> &&
         !std::is_same_v<T, bool>) void random_bits(RandomKey key, Ref<T, R> out,
                                                    std::uint64_t first = 0) {
  detail::random_bits(key, first, out);
}

// out = jax.random.uniform(key, out.shape, jnp.float32, low, high): the upper 23 of 32 bits as a
// number of [0, 1), times high - low, plus low, the last two in one rounding as JAX's compiler for
// CPUs has it. Error unless low and high are finite.
template <std::size_t R>
void uniform(RandomKey key, Ref<float, R> out, float low = 0, float high = 1) {
  detail::uniform(key, low, high, out);
}

}  // namespace kref
