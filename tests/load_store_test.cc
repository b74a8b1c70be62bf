// SPDX-License-Identifier: Apache-2.0
// Masked loads, stores and swaps through windows that stick out of their Ref, against loops over
// lanes. The numbers in the names are those of the behaviours of Pallas (tests/behaviours.tsv).
#include "kernels/load_store.h"

#include <doctest/doctest.h>

#include <random>

#include "dsl/dsl.h"
#include "kernels/kernels.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

Tensor<I32, 2> random_block(const Shape<2>& shape, std::mt19937& bits) {
  Tensor<I32, 2> x(shape);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<I32>(bits() % 1000);
  return x;
}

// Whether lane (r, c) of a window at `start` lies inside of `x`.
bool inside(const Tensor<I32, 2>& x, const Shape<2>& start, Index r, Index c) {
  r += start[0], c += start[1];
  return r >= 0 && r < x.extent(0) && c >= 0 && c < x.extent(1);
}

TEST_CASE("every window around a block, with random masks") {
  std::mt19937 bits(1);
  const Tensor<I32, 2> x = random_block({4, 5}, bits);
  int refused = 0, done = 0;
  for (const Shape<2>& size : {Shape<2>{1, 1}, {2, 3}, {4, 5}, {6, 2}, {3, 7}, {0, 3}}) {
    for (Index a = -size[0] - 1; a <= 5; ++a) {
      for (Index b = -size[1] - 1; b <= 6; ++b) {
        const Shape<2> start{a, b};
        const Tensor<I32, 2> value = random_block(size, bits);
        for (const bool stray : {false, true}) {
          // Random lanes inside; outside none, or one.
          Tensor<bool, 2> mask(size, false);
          bool on_outside = false;
          for (Index r = 0; r < size[0]; ++r) {
            for (Index c = 0; c < size[1]; ++c) {
              const bool in = inside(x, start, r, c);
              mask(r, c) = in ? bits() % 2 == 0 : stray && !on_outside;
              on_outside = on_outside || (!in && mask(r, c));
            }
          }
          Tensor<I32, 2> stored = x, swapped = x, loaded(size), old(size);
          if (on_outside) {
            ++refused;
            CHECK_THROWS_AS(load(x, start, mask, -1, loaded.ref()), Error);
            CHECK_THROWS_AS(store(value, mask, stored.ref(), start), Error);
            CHECK_THROWS_AS(swap(swapped.ref(), start, value, mask, old), Error);
            CHECK(std::equal(stored.data(), stored.data() + 20, x.data()));
            continue;
          }
          ++done;
          load(x, start, mask, -1, loaded.ref());
          store(value, mask, stored.ref(), start);
          swap(swapped.ref(), start, value, mask, old);
          for (Index r = 0; r < size[0]; ++r) {
            for (Index c = 0; c < size[1]; ++c) {
              const I32 there = mask(r, c) ? x(r + a, c + b) : 0;
              CHECK(loaded(r, c) == (mask(r, c) ? there : -1));
              CHECK(old(r, c) == (mask(r, c) ? there : value(r, c)));
            }
          }
          for (Index r = 0; r < 4; ++r) {
            for (Index c = 0; c < 5; ++c) {
              const bool in = r >= a && r < a + size[0] && c >= b && c < b + size[1];
              const I32 expected = in && mask(r - a, c - b) ? value(r - a, c - b) : x(r, c);
              CHECK(stored(r, c) == expected);
              CHECK(swapped(r, c) == expected);
            }
          }
        }
      }
    }
  }
  CHECK(refused > 300);
  CHECK(done > 500);
}

TEST_CASE("without a mask every lane must lie inside") {
  std::mt19937 bits(2);
  const Tensor<I32, 2> x = random_block({4, 5}, bits);
  Tensor<I32, 2> z = x, part({2, 2});
  load(x, {2, 3}, part.ref());
  CHECK(part(1, 1) == x(3, 4));
  store(part, z.ref(), {0, 1});
  CHECK(z(1, 2) == x(3, 4));
  CHECK(z(1, 3) == x(1, 3));
  CHECK(refusal([&] {
          load(x, {3, 3}, part.ref());
        }) == "load: lane [1,0] lies outside: dimension 0: start 3, size 2, extent 4");
  CHECK(refusal([&] {
          store(part, z.ref(), {0, -1});
        }) == "store: lane [0,0] lies outside: dimension 1: start -1, size 2, extent 5");
}

TEST_CASE("behaviour 34: of a masked store each lane that is on must lie inside") {
  // A (16, 256) tile at (8, 128) of (16, 256).
  Tensor<float, 2> z({16, 256}, 0.0f);
  const Tensor<float, 2> ones({16, 256}, 1.0f);
  Tensor<bool, 2> mask({16, 256}, false);
  mask(0, 0) = true;
  store(ones, mask, z.ref(), {8, 128});
  for (Index i = 0; i < z.size(); ++i) CHECK(z.data()[i] == (i == 8 * 256 + 128 ? 1.0f : 0.0f));
  mask.fill(true);
  CHECK(refusal([&] {
          store(ones, mask, z.ref(), {8, 128});
        }) ==
        "store: lane [0,128] is on and lies outside: dimension 1: start 128, size 256, extent 256");
  // The cases that the simulator gets wrong: a column past the end, more rows than columns.
  Tensor<I32, 2> tall({3, 2}, 0);
  store(Tensor<I32, 2>({3, 2}, 1), Tensor<bool, 2>({3, 2}, true), tall.ref());
  CHECK(tall(2, 1) == 1);
  Tensor<bool, 2> column({2, 2}, false);
  column(0, 1) = true;
  CHECK_THROWS_AS(store(Tensor<I32, 2>({2, 2}, 1), column, tall.ref(), {0, 1}), Error);
}

TEST_CASE("behaviour 57: swap returns what was there; lanes outside may be masked off") {
  Tensor<float, 2> x({8, 128}, 1.0f), out0({8, 128}), out1({8, 128}, 2.0f);
  swap(out1.ref(), x, out0);
  CHECK(out0(7, 127) == 2.0f);
  CHECK(out1(7, 127) == 1.0f);
  std::mt19937 bits(3);
  Tensor<I32, 2> a = random_block({8, 16}, bits), b = random_block({8, 16}, bits), old({8, 16});
  const Tensor<I32, 2> before = a;
  Tensor<bool, 2> mask({8, 16});
  for (Index i = 0; i < 128; ++i) mask.data()[i] = bits() % 2 == 0;
  swap(a.ref(), {0, 0}, b, mask, old);
  for (Index i = 0; i < 128; ++i) {
    const bool on = mask.data()[i];
    CHECK(old.data()[i] == (on ? before.data()[i] : b.data()[i]));
    CHECK(a.data()[i] == (on ? b.data()[i] : before.data()[i]));
  }
}

TEST_CASE("a store does not broadcast and does not convert; grids name the operand of a lane") {
  Tensor<float, 1> z({2}, 0.0f);
  CHECK(refusal([&] { store(Tensor<float, 1>({1}, 1.0f), z.ref()); }) ==
        "store: value is F32[1], ref is F32[2], expected equal shapes: a store does not broadcast, "
        "copy() does");
  CHECK(refusal([&] { store(Tensor<float, 1>({2}, 1.0f), Tensor<bool, 1>({1}, true), z.ref()); }) ==
        "store: mask is BOOL[1], expected the shape of the window, [2]");
  static_assert(!std::is_convertible_v<Tensor<I32, 1>, Ref<const float, 1>>);
  Grid grid("g");
  const auto zb = grid.in_out("z", z);
  CHECK(refusal([&] {
          grid.run([&](const Step& s) { store(Tensor<float, 1>({2}, 1.0f), s[zb], {1}); });
        }) ==
        "grid 'g': in_out 'z': step 0: store: lane [1] lies outside: dimension 0: start 1, size 2, "
        "extent 2");
}

}  // namespace
}  // namespace kref
