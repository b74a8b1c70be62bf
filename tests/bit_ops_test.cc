// SPDX-License-Identifier: Apache-2.0
// Verbs on bits, on every SIMD target, against loops over elements. The numbers in the names are
// those of the behaviours of Pallas (tests/behaviours.tsv).
#include "kernels/bit_ops.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dsl/dsl.h"
#include "kernels/random_bits.h"
#include "kernels/reference_vectors.h"
#include "tests/refusal.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

using I32 = std::int32_t;
using I16 = std::int16_t;
using U32 = std::uint32_t;

// Random bits as elements of T, NaNs included.
template <class T, std::size_t R>
Tensor<T, R> random_elements(const Shape<R>& shape, std::uint64_t seed) {
  Tensor<T, R> x(shape);
  Tensor<std::uint8_t, 1> bytes({x.size() * static_cast<Index>(sizeof(T))});
  random_bits(random_key(seed), bytes.ref());
  std::memcpy(static_cast<void*>(x.data()), bytes.data(), static_cast<std::size_t>(bytes.size()));
  return x;
}

template <class Wide, class Narrow>
void bitcast_both_ways() {
  constexpr Index k = sizeof(Wide) / sizeof(Narrow);
  for (const Index n : {1, 2, 7, 16, 33}) {
    const Tensor<Wide, 3> x = random_elements<Wide, 3>({2, 3, n}, 1);
    Tensor<Narrow, 3> z({2, 3 * k, n});
    bitcast(x.ref(), z.ref());
    for (Index a = 0; a < 2; ++a) {
      for (Index r = 0; r < 3; ++r) {
        for (Index c = 0; c < n; ++c) {
          Narrow parts[k];
          std::memcpy(static_cast<void*>(parts), &x(a, r, c), sizeof(Wide));  // low bits first
          for (Index j = 0; j < k; ++j)
            REQUIRE(std::memcmp(&parts[j], &z(a, r * k + j, c), sizeof(Narrow)) == 0);
        }
      }
    }
    Tensor<Wide, 3> back({2, 3, n});
    bitcast(z.ref(), back.ref());
    CHECK(std::memcmp(back.data(), x.data(), static_cast<std::size_t>(x.size()) * sizeof(Wide)) ==
          0);
  }
}

TEST_CASE("behaviour 56: bitcast scales the last but one dimension, low bits first") {
  bitcast_both_ways<I32, I16>();
  bitcast_both_ways<float, bf16>();
  bitcast_both_ways<U32, std::uint8_t>();
  bitcast_both_ways<std::int64_t, float>();
  bitcast_both_ways<double, std::int8_t>();
  bitcast_both_ways<I16, f8_e4m3>();
  bitcast_both_ways<float, U32>();
  // Slicing before and after agree: rows 8 to 16 are rows 16 to 32 of the halves.
  const Tensor<I32, 2> x = random_elements<I32, 2>({16, 256}, 2);
  Tensor<I16, 2> halves({32, 256}), part({16, 128});
  bitcast(x.ref(), halves.ref());
  bitcast(x.ref().at(ds(8, 8), ds(128)), part.ref());
  for (Index r = 0; r < 16; ++r) CHECK(std::memcmp(&part(r, 0), &halves(16 + r, 0), 256) == 0);
  Tensor<float, 1> f({4});
  bitcast(Tensor<U32, 1>({4}, 0x3F800000u).ref(), f.ref());
  CHECK(f(3) == 1.0f);
}

TEST_CASE("behaviour 55: a chain of slices, bitcasts and reshapes comes back to itself") {
  const Tensor<I32, 2> x = random_elements<I32, 2>({16, 256}, 3);
  Tensor<I16, 2> halves({16, 256});
  bitcast(x.ref().at(ds(8, 8)), halves.ref());
  Tensor<f16, 3> floats({2, 8, 256});
  bitcast(halves.ref().reshape(2, 8, 256), floats.ref());
  const Ref<f16, 2> rows = floats.ref().at(ds(), ds(), ds(128)).at(ellipsis).reshape(16, 128);
  Tensor<I32, 2> z({8, 128});
  bitcast(rows, z.ref());
  for (Index r = 0; r < 8; ++r) CHECK(std::memcmp(&z(r, 0), &x(8 + r, 0), 512) == 0);
}

TEST_CASE("bitcast refuses by Pallas' words") {
  const Tensor<I32, 1> x({4}, 1);
  Tensor<I16, 1> z({8});
  CHECK(refusal([&] { bitcast(x.ref(), z.ref()); }) ==
        "bitcast: bitcast 1D between widths: x is I32[4], out is I16[8], expected rank 2 or more");
  Tensor<I32, 2> odd({1, 4});
  CHECK(refusal([&] {
          bitcast(Tensor<I16, 2>({3, 4}, I16{1}).ref(), odd.ref());
        }) ==
        "bitcast: x is I16[3,4], out is I32[1,4], expected dimension 0 scaled by 2 / 4 and the "
        "others "
        "equal");
}

template <class P, class T, std::size_t N>
void pack_and_unpack() {
  constexpr auto kWidth = static_cast<unsigned>(8 * sizeof(P));
  for (Index n = 0; n < 40; ++n) {
    std::array<Tensor<T, 2>, N> x;
    std::array<Ref<const T, 2>, N> sources;
    for (std::size_t i = 0; i < N; ++i) {
      x[i] = random_elements<T, 2>({3, n}, 10 + i);
      sources[i] = x[i].ref();
    }
    Tensor<U32, 2> words({3, n});
    pack_elementwise<P>(sources, words.ref());
    for (std::size_t i = 0; i < N; ++i) {
      Tensor<T, 2> part({3, n});
      unpack_elementwise<P>(words, static_cast<Index>(i), part.ref());
      for (Index e = 0; e < x[i].size(); ++e) {
        const P packed = static_cast<P>(x[i].data()[e]);  // rounded, or the low bits
        std::conditional_t<sizeof(P) == 1, std::uint8_t, std::uint16_t> bits;
        std::memcpy(&bits, &packed, sizeof(P));
        const U32 found = words.data()[e] >> (kWidth * i) & ((1u << kWidth) - 1);
        REQUIRE(found == bits);
        const T wide = static_cast<T>(packed);
        REQUIRE(std::memcmp(&part.data()[e], &wide, 4) == 0);
      }
    }
  }
}

TEST_CASE("behaviour 89: packed elements come back, the first one in the low bits") {
  for_each_target([] {
    pack_and_unpack<bf16, float, 2>();
    pack_and_unpack<I16, I32, 2>();
    pack_and_unpack<std::int8_t, I32, 4>();
    pack_and_unpack<std::uint8_t, U32, 4>();
    Tensor<U32, 1> words({1});
    const Tensor<I32, 1> a({1}, 0x1111), b({1}, -2);
    pack_elementwise<I16>(std::array<Ref<const I32, 1>, 2>{a.ref(), b.ref()}, words.ref());
    CHECK(words(0) == 0xFFFE1111u);
  });
  Tensor<U32, 1> words({2}, 0u);
  Tensor<I32, 1> part({2});
  CHECK(refusal([&] { unpack_elementwise<I16>(words, 2, part.ref()); }) ==
        "unpack_elementwise: index 2 is out of bounds for packing factor 2");
  CHECK(refusal([&] {
          const Tensor<I32, 1> a({2}, 1), b({3}, 1);
          pack_elementwise<I16>(std::array<Ref<const I32, 1>, 2>{a.ref(), b.ref()}, words.ref());
        }) == "pack_elementwise: source 1 is I32[3], expected the shape of out, U32[2]");
}

TEST_CASE("behaviour 90: stochastic rounding gives a neighbour, by the bits, and keeps NaN") {
  for_each_target([] {
    const Tensor<float, 2> x = random_elements<float, 2>({7, 301}, 4);
    const Tensor<U32, 2> bits = random_elements<U32, 2>({7, 301}, 5);
    Tensor<bf16, 2> z({7, 301});
    stochastic_round(x, bits, z.ref());
    for (Index i = 0; i < x.size(); ++i) {
      std::uint16_t found;
      std::memcpy(&found, &z.data()[i], 2);
      REQUIRE(found == reference::stochastic_round(x.data()[i], bits.data()[i]));
      const float v = x.data()[i];
      if (std::isfinite(v)) {
        const U32 low = std::bit_cast<U32>(v) & 0xFFFF0000u;
        const bool neighbour = found == low >> 16 || found == (low >> 16) + 1;
        REQUIRE(neighbour);
      }
    }
    const float special[] = {1.0f,
                             -1.5f,
                             0.0f,
                             -0.0f,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::nanf("")};
    for (const float v : special) {
      Tensor<bf16, 1> out({1});
      stochastic_round(Tensor<float, 1>({1}, v), Tensor<U32, 1>({1}, ~0u), out.ref());
      const auto found = static_cast<float>(out(0));
      CHECK(
          (std::isnan(v) ? std::isnan(found) : std::bit_cast<U32>(found) == std::bit_cast<U32>(v)));
    }
    // The largest float: infinity is its other neighbour.
    Tensor<bf16, 1> out({1});
    stochastic_round(Tensor<float, 1>({1}, std::numeric_limits<float>::max()),
                     Tensor<U32, 1>({1}, 1u), out.ref());
    CHECK(std::isinf(static_cast<float>(out(0))));
  });
}

TEST_CASE("stochastic rounding wants as many bits as elements") {
  Tensor<bf16, 1> z({3});
  CHECK(refusal([&] {
          stochastic_round(Tensor<float, 1>({3}, 1.0f), Tensor<U32, 1>({1}, 0u), z.ref());
        }) == "stochastic_round: bits is U32[1], expected the shape of out, BF16[3]");
}

TEST_CASE("the mean of stochastic rounding is the number itself") {
  // 1 + j / 2^16 lies j / 2^9 of the way to the next bf16, so that many of 2^16 draws go up.
  const Index n = 65536;
  Tensor<U32, 1> bits({n});
  for (Index i = 0; i < n; ++i) bits(i) = static_cast<U32>(i) | 0xABC0000u;
  for (const int j : {1, 100, 255, 256, 511}) {
    const float x = 1.0f + static_cast<float>(j) * 0x1p-16f;
    Tensor<bf16, 1> z({n});
    stochastic_round(Tensor<float, 1>({n}, x), bits, z.ref());
    Index up = 0;
    for (Index i = 0; i < n; ++i) up += static_cast<float>(z(i)) > 1.0f ? 1 : 0;
    CHECK(up == j * 128);
  }
}

TEST_CASE("behaviour 90: the reciprocal is rounded once, and with approx as the interpreters'") {
  for_each_target([] {
    const Tensor<float, 2> x = random_elements<float, 2>({5, 333}, 6);
    Tensor<float, 2> exact({5, 333}), approx({5, 333});
    reciprocal(x, exact.ref());
    reciprocal(x, approx.ref(), true);
    for (Index i = 0; i < x.size(); ++i) {
      const float v = x.data()[i];
      const float e = 1.0f / v, a = static_cast<float>(bf16(1.0f / static_cast<float>(bf16(v))));
      REQUIRE((std::isnan(e) ? std::isnan(exact.data()[i]) : exact.data()[i] == e));
      REQUIRE((std::isnan(a) ? std::isnan(approx.data()[i]) : approx.data()[i] == a));
    }
    // What JAX 0.10.2 gives for approx=True on a CPU.
    const float in[] = {1.0f, 3.0f, 0.1f, -7.5f, 0.0f, 1.00390625f, 123456.7f};
    const float out[] = {
        1.0f, 0x1.56p-2f, 0x1.4p+3f, -0x1.12p-3f, std::numeric_limits<float>::infinity(),
        1.0f, 0x1.1p-17f};
    for (std::size_t i = 0; i < 7; ++i) {
      Tensor<float, 1> z({1});
      reciprocal(Tensor<float, 1>({1}, in[i]), z.ref(), true);
      CHECK(z(0) == out[i]);
    }
  });
}

}  // namespace
}  // namespace kref
