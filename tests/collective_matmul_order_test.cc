// SPDX-License-Identifier: Apache-2.0
// Products round a ring have the bits of the order in which sharding_semantics 4.1 to 4.3 lets the
// blocks come by.
#include <doctest/doctest.h>

#include <cmath>

#include "sharding/collective_matmul.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// Numbers whose sums depend on the order in which they are added.
Array rough(const std::vector<Index>& shape, unsigned seed) {
  Array out = mixed(shape, seed);
  unsigned state = seed;
  for (float& v : out.mutable_elements<float>()) {
    state = state * 1664525u + 1013904223u;
    v += static_cast<float>(state >> 8) * 0x1p-24f;
  }
  return out;
}

// One chain of fused multiply-adds over elements begin .. end - 1 of the contraction, from `sum`.
float chain(const Array& x, const Array& y, Index i, Index j, Index begin, Index end, float sum) {
  for (Index k = begin; k < end; ++k) {
    sum = std::fma(static_cast<float>(x.at(i * x.extent(1) + k)),
                   static_cast<float>(y.at(k * y.extent(1) + j)), sum);
  }
  return sum;
}

TEST_CASE("the blocks of a contraction come by in the order d, d + 1, ... or d, d - 1, ...") {
  const Index n = 4, block = 6;
  const Mesh mesh = Mesh::parse("X=4");
  const Array x = rough({8, n * block}, 5), y = rough({n * block, 12}, 6);
  const MatmulSpecs of_x{P{none, "X"}, P{none, "X"}, {P{none, "X"}, {}}};
  const MatmulSpecs of_y{P{"X"}, P{"X"}, {P{"X"}, {}}};
  for (const bool is_x : {true, false}) {
    for (const bool both : {false, true}) {
      const Array z = collective_matmul(
          mesh, is_x ? of_x : of_y, x, y,
          {.axis_name = "X", .direction = both ? RingDirection::kBoth : RingDirection::kOne});
      Index differ = 0;
      for (Index i = 0; i < 8; ++i) {
        for (Index j = 0; j < 12; ++j) {
          const Index d = is_x ? j / 3 : i / 2;  // the device that has this element
          float sum = 0;
          for (Index s = 0; s < n; ++s) {
            const Index up = (d + n - s) % n * block, down = (d + s) % n * block;
            if (both) {
              sum = chain(x, y, i, j, up, up + block / 2, sum);
              sum = chain(x, y, i, j, down + block / 2, down + block, sum);
            } else {
              const Index at = is_x ? down : up;  // 4.1 shifts down, 4.2 up
              sum = chain(x, y, i, j, at, at + block, sum);
            }
          }
          CHECK(static_cast<float>(z.at(i * 12 + j)) == sum);
          differ += sum != chain(x, y, i, j, 0, n * block, 0);
        }
      }
      CHECK(differ > 10);  // else this says nothing about the order
    }
  }
}

TEST_CASE("a travelling sum collects its terms as c - 1, c - 2, ..., c") {
  const Index n = 4, block = 5;
  const Mesh mesh = Mesh::parse("X=4");
  const Array x = rough({8, n * block}, 7), y = rough({n * block, 12}, 8);
  for (const bool rows : {true, false}) {
    for (const bool both : {false, true}) {
      const Array z = collective_matmul(
          mesh, {P{none, "X"}, P{"X"}, {rows ? P{"X"} : P{none, "X"}, {}}}, x, y,
          {.axis_name = "X", .direction = both ? RingDirection::kBoth : RingDirection::kOne});
      Index differ = 0;
      for (Index i = 0; i < 8; ++i) {
        for (Index j = 0; j < 12; ++j) {
          // Its block, of 2 rows or 3 columns; the first half goes up in both directions.
          const Index c = rows ? i / 2 : j / 3;
          const bool up = both && (rows ? i % 2 < 1 : j % 3 < 1);
          float sum = 0;
          for (Index s = 1; s <= n; ++s) {
            const Index d = up ? (c + s) % n : (c + n - s) % n;
            const float term = chain(x, y, i, j, d * block, (d + 1) * block, 0);
            sum = s == 1 ? term : sum + term;
          }
          CHECK(static_cast<float>(z.at(i * 12 + j)) == sum);
          differ += sum != chain(x, y, i, j, 0, n * block, 0);
        }
      }
      CHECK(differ > 10);
    }
  }
}

TEST_CASE("the order of blocks that 4.1 and 4.3 list for four devices") {
  const Index gathered[4][4] = {{0, 1, 2, 3}, {1, 2, 3, 0}, {2, 3, 0, 1}, {3, 0, 1, 2}};
  const Index scattered[4][4] = {{1, 2, 3, 0}, {2, 3, 0, 1}, {3, 0, 1, 2}, {0, 1, 2, 3}};
  for (Index d = 0; d < 4; ++d) {
    for (Index i = 0; i < 4; ++i) {
      CHECK(gathered_block(d, i, 4, -1) == gathered[d][i]);
      CHECK(scattered_block(d, i, 4, -1) == scattered[d][i]);
      CHECK(gathered_block(d, i, 4, 1) == (d + 4 - i) % 4);
      CHECK(scattered_block(d, i, 4, 1) == (d + 3 + 4 - i) % 4);  // d - 1 first, then d - i - 1
      // What a device has at a step came from its neighbour, and was worked on there before.
      CHECK(gathered_block((d + 1) % 4, i, 4, 1) == gathered_block(d, i + 3, 4, 1));
    }
  }
}

TEST_CASE("other schedules give the same bits") {
  const Mesh mesh = Mesh::parse("X=4");
  const Array x = rough({8, 16}, 16), y = rough({16, 12}, 17);
  const MatmulSpecs specs{P{none, "X"}, P{"X"}, {P{"X"}, {}}};
  std::vector<double> first;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CollectiveMatmulOptions options{.axis_name = "X", .direction = RingDirection::kBoth};
    options.launch.delay_seed = seed;
    const std::vector<double> z = values(collective_matmul(mesh, specs, x, y, options));
    if (first.empty()) first = z;
    CHECK(z == first);
  }
}

}  // namespace
}  // namespace kref
