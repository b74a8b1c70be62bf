// SPDX-License-Identifier: Apache-2.0
// The sums of large products: tiles in f64 give what the plain loops give.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "golden/matmul_bound.h"
#include "golden/matmul_sums.h"

namespace kref {
namespace {

template <class T>
Array random_array(const std::vector<Index>& shape, std::mt19937& random, bool small) {
  std::normal_distribution<double> normal;
  Array a(dtype_of<T>, shape);
  for (T& v : a.mutable_elements<T>()) {
    double d = normal(random);
    // Some subnormal numbers, and some whose bf16 parts are.
    if (small) d = std::ldexp(d, -static_cast<int>(random() % 140));
    if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(random());
    } else {
      v = T(d);
    }
  }
  return a;
}

void same(const std::vector<double>& loops, const std::vector<double>& tiles, double unit,
          const std::vector<double>& size) {
  REQUIRE(loops.size() == tiles.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    if (loops[i] == tiles[i] || (std::isnan(loops[i]) && std::isnan(tiles[i]))) continue;
    if (!(std::fabs(loops[i] - tiles[i]) <= unit * size[i])) {
      FAIL_CHECK("element " << i << ": loops " << loops[i] << ", tiles " << tiles[i]);
    }
  }
}

template <class T>
void compare(const std::vector<Index>& xs, const std::vector<Index>& ys,
             const reference::MatmulOptions& options, bool small = false) {
  std::mt19937 random(static_cast<unsigned>(xs.back()));
  Array x = random_array<T>(xs, random, small), y = random_array<T>(ys, random, small);
  if (small) x.mutable_elements<T>()[1] = T(std::numeric_limits<double>::infinity());
  const ProductSums loops = sums_by_loops(x, y, options), tiles = sums_by_tiles(x, y, options);
  const Index k = ProductSizes(x, y, options).k * products_per_pair(options.parts);
  const double unit = static_cast<double>(2 * k) * 0x1p-53;
  if (!is_float(x.dtype())) {
    std::vector<double> wrapped = tiles.value;  // exact, not yet modulo 2^32
    for (double& v : wrapped) v = static_cast<std::int32_t>(static_cast<std::int64_t>(v));
    CHECK(loops.value == wrapped);
    return;
  }
  same(loops.magnitude, tiles.magnitude, unit, loops.magnitude);
  same(loops.value, tiles.value, unit, loops.magnitude);
  same(loops.flushed, tiles.flushed, unit, loops.flushed);
  CHECK(loops.flushed.empty() == !small);
}

TEST_CASE("tiles and loops give the same sums") {
  // One tile, several with remainders, batches, a shared y.
  const std::vector<std::pair<std::vector<Index>, std::vector<Index>>> shapes{
      {{3, 5}, {5, 4}},        {{260, 270}, {270, 6}},
      {{5, 20}, {20, 259}},    {{2, 3, 7, 9}, {2, 3, 9, 8}},
      {{4, 9, 300}, {300, 7}}, {{3, 0}, {0, 2}},
      {{0, 3}, {3, 2}}};
  for (const auto& shape : shapes) {
    const std::vector<Index>& x = shape.first;
    const std::vector<Index>& y = shape.second;
    CAPTURE(shape_string(x));
    for (const bool tx : {false, true}) {
      for (const bool ty : {false, true}) {
        std::vector<Index> xs = x, ys = y;
        if (tx) std::swap(xs[xs.size() - 1], xs[xs.size() - 2]);
        if (ty) std::swap(ys[ys.size() - 1], ys[ys.size() - 2]);
        const reference::MatmulOptions options{.trans_x = tx, .trans_y = ty};
        compare<float>(xs, ys, options);
        compare<bf16>(xs, ys, options);
        compare<std::int8_t>(xs, ys, options);
        if (tx != ty) continue;
        compare<double>(xs, ys, options);
        compare<f16>(xs, ys, options);
        compare<f8_e5m2>(xs, ys, options);
        compare<std::uint8_t>(xs, ys, options);
        for (const auto parts :
             {reference::Parts::kBF16, reference::Parts::kBF16x3, reference::Parts::kBF16x6}) {
          compare<float>(xs, ys, {.trans_x = tx, .trans_y = ty, .parts = parts});
        }
      }
    }
  }
}

TEST_CASE("tiles and loops count the same flushed products") {
  for (const auto parts : {reference::Parts::kAll, reference::Parts::kBF16,
                           reference::Parts::kBF16x3, reference::Parts::kBF16x6}) {
    compare<float>({20, 300}, {300, 11}, {.parts = parts}, true);
  }
  compare<bf16>({20, 300}, {300, 11}, {}, true);
}

}  // namespace
}  // namespace kref
