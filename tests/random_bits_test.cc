// SPDX-License-Identifier: Apache-2.0
// Random bits are those of jax.random, element by element: the constants are what JAX 0.10.2 gives
// (jax_threefry_partitionable), on a CPU. The numbers in the names are those of the behaviours of
// Pallas (tests/behaviours.tsv).
#include "kernels/random_bits.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "dsl/dsl.h"
#include "kernels/reference_vectors.h"
#include "tests/refusal.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

using U32 = std::uint32_t;

TEST_CASE("the cipher: the published test vectors, and the definition at random places") {
  for_each_target([] {
    CHECK(threefry2x32({0, 0}, 0, 0) == std::array<U32, 2>{0x6B200159u, 0x99BA4EFEu});
    CHECK(threefry2x32({~0u, ~0u}, ~0u, ~0u) == std::array<U32, 2>{0x1CB996FCu, 0xBB002BE7u});
    CHECK(threefry2x32({0x13198A2Eu, 0x03707344u}, 0x243F6A88u, 0x85A308D3u) ==
          std::array<U32, 2>{0xC4923A9Cu, 0x483DF7A0u});
    U32 seed = 1;
    const auto next = [&seed] { return seed = seed * 1664525u + 1013904223u; };
    for (int i = 0; i < 1000; ++i) {
      const RandomKey key{next(), next()};
      const U32 high = next(), low = next();
      REQUIRE(threefry2x32(key, high, low) ==
              reference::threefry2x32({key.high, key.low}, {high, low}));
    }
  });
}

TEST_CASE("keys: seeds, fold_in and split") {
  CHECK(random_key(42) == RandomKey{0, 42});
  CHECK(random_key((std::uint64_t{1} << 40) + 7) == RandomKey{0x100, 7});
  const RandomKey key = random_key(42);
  CHECK(fold_in(key, 7) == RandomKey{0x97D0552Fu, 0x51BF719Fu});
  CHECK(fold_in(key, ~0u) == RandomKey{0x8EF6C48Du, 0xE7EB97CAu});
  CHECK(split_key(key, 0) == RandomKey{0x6D3E048Fu, 0x1022172Du});
  CHECK(split_key(key, 1) == RandomKey{0x3D7B32Du, 0xADD083F4u});
  CHECK(split_key(key, 2) == RandomKey{0x92FB20EAu, 0xF38D913u});
}

TEST_CASE("behaviour 93: bits of every width and shape are JAX's") {
  for_each_target([] {
    const RandomKey key = random_key(42);
    Tensor<U32, 1> words({7});
    random_bits(key, words.ref());
    const U32 expected[] = {0x7D1C13A2u, 0xAE0730D9u, 0x9DC3F9F9u, 0x8F9EC1D7u,
                            0x735D7315u, 0x95FB4ED8u, 0x1326B799u};
    for (Index i = 0; i < 7; ++i) CHECK(words(i) == expected[i]);
    Tensor<U32, 0> scalar(Shape<0>{});
    random_bits(key, scalar.ref());
    CHECK(scalar() == 0x7D1C13A2u);
    Tensor<U32, 2> large({137, 275});
    random_bits(key, large.ref());
    U32 mixed = 0;
    std::uint64_t sum = 0;
    for (Index i = 0; i < large.size(); ++i) mixed ^= large.data()[i], sum += large.data()[i];
    CHECK(mixed == 0xB2352075u);
    CHECK(sum == 80837982246041u);
    CHECK(large(0, 1) == 0xAE0730D9u);
    CHECK(large(136, 272) == 0xDC61DF81u);
    CHECK(large(136, 274) == 0x3AC4CF8Au);
    Tensor<std::int16_t, 1> halves({5});
    random_bits(key, halves.ref());
    const unsigned half[] = {0x13A2, 0x30D9, 0xF9F9, 0xC1D7, 0x7315};
    for (Index i = 0; i < 5; ++i) CHECK(static_cast<std::uint16_t>(halves(i)) == half[i]);
    Tensor<std::uint8_t, 2> bytes({3, 3});
    random_bits(key, bytes.ref());
    const unsigned byte[] = {0xA2, 0xD9, 0xF9, 0xD7, 0x15, 0xD8, 0x99, 0xB0, 0x8D};
    for (Index i = 0; i < 9; ++i) CHECK(bytes.data()[i] == byte[i]);
    Tensor<std::int64_t, 1> wide({3});
    random_bits(key, wide.ref());
    const std::uint64_t both[] = {0x6D3E048F1022172Du, 0x3D7B32DADD083F4u, 0x92FB20EA0F38D913u};
    for (Index i = 0; i < 3; ++i) CHECK(static_cast<std::uint64_t>(wide(i)) == both[i]);
  });
}

TEST_CASE("a part of an array has the bits of its place, whatever the blocks; counters carry") {
  for_each_target([] {
    const RandomKey key{123, 456};
    Tensor<U32, 2> whole({32, 24}), blocks({32, 24});
    random_bits(key, whole.ref());
    for (const Index rows : {1, 3, 8, 32}) {
      Grid grid("bits");
      const Axis i = grid.parallel("i", cdiv(32, rows));
      const auto zb = grid.out("z", blocks, {.block = {rows, 24}, .index = {i, 0}});
      grid.check([&](const Step& s) {
        random_bits(key, s.valid(zb), static_cast<std::uint64_t>(s.index(i) * rows * 24));
      });
      CHECK(std::equal(whole.data(), whole.data() + whole.size(), blocks.data()));
    }
    // Across 2^32: the high word of the counter moves within one vector.
    Tensor<U32, 1> far({100});
    const std::uint64_t first = (std::uint64_t{5} << 32) - 50;
    random_bits(key, far.ref(), first);
    for (Index i = 0; i < 100; ++i) {
      const std::uint64_t n = first + static_cast<std::uint64_t>(i);
      const auto w =
          reference::threefry2x32({123, 456}, {static_cast<U32>(n >> 32), static_cast<U32>(n)});
      CHECK(far(i) == (w[0] ^ w[1]));
    }
    // Rows with gaps between them are numbered without the gaps.
    Tensor<U32, 2> gaps({3, 10}, 0u);
    random_bits(key, gaps.ref().at(ds(), ds(2, 5)));
    CHECK(gaps(1, 2) == whole(0, 5));
    CHECK(gaps(1, 7) == 0);
  });
}

void check_uniform() {
  const RandomKey key = random_key(42);
  Tensor<float, 1> u({6});
  uniform(key, u.ref());
  const float expected[] = {0x1.f47048p-2f, 0x1.5c0e6p-1f,  0x1.3b87fp-1f,
                            0x1.1f3d8p-1f,  0x1.cd75c8p-2f, 0x1.2bf69cp-1f};
  for (Index i = 0; i < 6; ++i) CHECK(u(i) == expected[i]);
  uniform(key, u.ref(), -2, 3);
  const float scaled[] = {0x1.c63168p-2f, 0x1.6623fp+0f,  0x1.14d3d8p+0f,
                          0x1.9c338p-1f,  0x1.034ce8p-2f, 0x1.dbd10cp-1f};
  for (Index i = 0; i < 6; ++i) CHECK(u(i) == scaled[i]);
  Tensor<float, 1> many({1001});
  uniform(random_key(7), many.ref(), -0.3f, 0.7f);
  U32 mixed = 0;
  for (Index i = 0; i < 1001; ++i) {
    U32 bits;
    std::memcpy(&bits, &many(i), 4);
    mixed ^= bits;
    CHECK(many(i) >= -0.3f);
    CHECK(many(i) < 0.7f);
  }
  CHECK(many(1000) == 0x1.8cf8ccp-2f);
  CHECK(mixed == 0x3BFB19F1u);
  CHECK(refusal([&] { uniform(key, u.ref(), 0, std::numeric_limits<float>::infinity()); }) ==
        "uniform: low is 0.000000, high is inf, expected finite numbers");
}

TEST_CASE("behaviour 93: uniform numbers are JAX's bit for bit") { for_each_target(check_uniform); }

}  // namespace
}  // namespace kref
