// SPDX-License-Identifier: Apache-2.0
// The bounds of a matmul: honest machines stay inside, small faults do not.
#include "golden/matmul_bound.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "golden/judge.h"
#include "golden/rounding.h"
#include "tests/matmul_machine.h"

namespace kref {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Builds that check themselves are slow: they see fewer products.
#ifdef NDEBUG
constexpr Index kLongest = 3000;
#else
constexpr Index kLongest = 300;
#endif

// Of random f32 products: which share of elements shows a fault of the given kind?
struct Caught {
  double zero = 0, dropped = 0, median = 0;
};

template <class T>
Caught faults(Index k, std::mt19937& random) {
  const Array x = filled<T>(48, k, Fill::kNormal, random);
  const Array y = filled<T>(48, k, Fill::kNormal, random);
  const Product product = transposed_y(dtype_of<T>);
  const Expectation e = expect_product(x, y, product);
  const Array z = multiplied<float, T>(x, y, Order::kBlocked);
  Caught caught;
  std::vector<double> ratios;
  const auto n = static_cast<double>(z.size());
  for (Index i = 0; i < z.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double bound = e.likely[at], v = e.value[at];
    ratios.push_back(std::fabs(z.at(i) - v) / bound);
    if (std::fabs(v) > bound) caught.zero += 1 / n;
    // The median of the products by size.
    std::vector<double> products;
    for (Index t = 0; t < k; ++t) products.push_back(x.at(i / 48 * k + t) * y.at(i % 48 * k + t));
    const auto middle = products.begin() + k / 2;
    std::nth_element(products.begin(), middle, products.end(),
                     [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    if (std::fabs(z.at(i) - *middle - v) > bound) caught.dropped += 1 / n;
  }
  std::nth_element(ratios.begin(), ratios.begin() + z.size() / 2, ratios.end());
  caught.median = ratios[ratios.size() / 2];
  std::printf(
      "%s, K = %ld: zero caught in %.1f %%, one dropped product in %.1f %%, "
      "median error %.3f of the likely bound\n",
      name_of(dtype_of<T>), static_cast<long>(k), 100 * caught.zero, 100 * caught.dropped,
      caught.median);
  return caught;
}

TEST_CASE("the likely bound is tight enough to show small faults") {
  std::mt19937 random(11);
  for (const Index k : {4, 32, 256, 2048}) {
    if (k > kLongest) continue;
    const Caught c = faults<float>(k, random);
    CHECK(c.zero > 0.99);
    CHECK(c.dropped > (k < 1000 ? 0.99 : 0.9));
  }
  for (const Index k : {4, 32, 256, 2048}) {
    if (k > kLongest) continue;
    const Caught c = faults<bf16>(k, random);
    CHECK(c.zero > 0.99);
    CHECK(c.median > 0.05);
  }
}

TEST_CASE("an error of 50 bounds, zeros and another product are seen") {
  std::mt19937 random(3);
  const Array x = filled<float>(20, 300, Fill::kNormal, random);
  const Array y = filled<float>(30, 300, Fill::kNormal, random);
  Product product = transposed_y(DType::kF32);
  product.tile = {8, 16, 100};
  const Expectation e = expect_product(x, y, product);
  const Array right = multiplied<float, float>(x, y, Order::kLanes);
  CHECK(judge(e, right).ok());
  std::vector<double> z;
  for (Index i = 0; i < right.size(); ++i) z.push_back(right.at(i));
  const std::vector<double> whole = z;
  z[17 * 30 + 20] += 50 * e.likely[17 * 30 + 20];
  const Verdict v = judge(e, matrix_of<float>(20, 30, z));
  CHECK(v.wrong == 1);
  CHECK(v.worst.step == "i=2, j=1, k=0..2");
  CHECK(v.worst.ratio == doctest::Approx(50).epsilon(0.05));
  CHECK(v.worst.bound == v.worst.likely_bound);
  CHECK(v.worst.worst_bound == e.worst[17 * 30 + 20]);
  CHECK(v.worst.worst_bound > v.worst.likely_bound);
  // Neither a judge that takes everything nor one that expects zeros gets past these, under either
  // bound.
  const auto wrong = [&](const std::vector<double>& values, BoundKind kind) {
    return judge(e, matrix_of<float>(20, 30, values), kind).wrong;
  };
  for (const BoundKind kind : {BoundKind::kLikely, BoundKind::kWorst}) {
    CHECK(wrong(whole, kind) == 0);
    CHECK(wrong(std::vector<double>(600, 0), kind) >= 597);
    z = whole;
    std::fill_n(z.begin() + 30, 30, 0.0);
    CHECK(wrong(z, kind) >= 29);
    z = whole;
    std::reverse(z.begin(), z.end());
    CHECK(wrong(z, kind) >= 597);
    z = whole;
    for (double& element : z) element = -element;
    CHECK(wrong(z, kind) >= 597);
  }
}

TEST_CASE("no products, no error") {
  const Array x = matrix_of<bf16>(2, 0, {}), y = matrix_of<bf16>(3, 0, {});
  const Expectation e = expect_product(x, y, transposed_y(DType::kBF16));
  CHECK(e.value == std::vector<double>(6, 0));
  CHECK(e.likely == std::vector<double>(6, 0));
  CHECK(judge(e, matrix_of<bf16>(2, 3, {0, -0.0, 0, 0, 0, 0})).ok());
  CHECK_FALSE(judge(e, matrix_of<bf16>(2, 3, {0, 0, 0, 1e-38, 0, 0})).ok());
}

// One dot product judged: x and y as T, the output as O.
template <class T, class O>
bool accepts(const std::vector<double>& x, const std::vector<double>& y, double z,
             reference::Parts parts = reference::Parts::kAll) {
  const auto k = static_cast<Index>(x.size());
  Product product = transposed_y(dtype_of<O>);
  product.options.parts = parts;
  const Expectation e = expect_product(matrix_of<T>(1, k, x), matrix_of<T>(1, k, y), product);
  return judge(e, matrix_of<O>(1, 1, {z})).ok();
}

TEST_CASE("numbers below the smallest normal one may be flushed") {
  CHECK(accepts<float, float>({1e-40}, {2}, 2e-40));
  CHECK(accepts<float, float>({1e-40}, {2}, 0));
  CHECK(accepts<float, float>({1e-40, 1}, {1e30, 1}, 1));  // the input was flushed
  CHECK_FALSE(accepts<float, float>({1e-30, 1}, {1e25, 1}, 1));
  CHECK(accepts<float, float>({1e-30}, {1e-9}, 0));  // the product was
  CHECK_FALSE(accepts<float, float>({1e-30}, {1e-7}, 0));
  CHECK(accepts<bf16, bf16>({1e-40}, {2}, 0));
  CHECK_FALSE(accepts<f16, f16>({1e-6}, {2}, 0));  // normal once it is widened
  CHECK_FALSE(accepts<f8_e4m3, float>({0.01}, {2}, 0));
  // A part of the input: the low part of 2^-120 (1 + 2^-10) is subnormal.
  CHECK(accepts<float, float>({0x1.004p-120}, {0x1p100}, 0x1p-20, reference::Parts::kBF16x3));
  // Flushed times infinity.
  CHECK(accepts<float, float>({1e-40}, {kInf}, kInf));
  CHECK(accepts<float, float>({1e-40}, {kInf}, std::nan("")));
  CHECK_FALSE(accepts<float, float>({1e-30}, {kInf}, std::nan("")));
}

TEST_CASE("partial sums may overflow, by the sign of what overflows") {
  const std::vector<double> ones(3, 1);
  const std::vector<double> up{3e38, 3e38, -3e38};
  CHECK(accepts<float, float>(up, ones, 3e38));
  CHECK(accepts<float, float>(up, ones, kInf));
  CHECK_FALSE(accepts<float, float>(up, ones, -kInf));
  CHECK_FALSE(accepts<float, float>(up, ones, std::nan("")));
  CHECK_FALSE(accepts<float, float>(up, ones, 2e38));
  const std::vector<double> both{3e38, 3e38, -3e38, -3e38};
  CHECK(accepts<float, float>(both, {1, 1, 1, 1}, std::nan("")));
  CHECK(accepts<float, float>(both, {1, 1, 1, 1}, -kInf));
  CHECK(accepts<float, float>({3e38, 3e38}, {1, 1}, kInf));
  CHECK_FALSE(accepts<float, float>({3e38, 3e38}, {1, 1}, 3.4e38));
  CHECK_FALSE(accepts<float, float>({1e38, 1e38}, {1, 1}, kInf));
  // f64 has room for them.
  CHECK_FALSE(accepts<double, double>(up, ones, kInf));
  const std::vector<double> large{1e308, 1e308, -1e308};
  CHECK(accepts<double, double>(large, ones, kInf));
  CHECK(accepts<double, double>(large, ones, 1e308));
  // A sum of magnitudes past the range bounds what is finite no less.
  CHECK_FALSE(accepts<double, double>(large, ones, 0));
  CHECK_FALSE(accepts<double, double>(large, ones, 0.999e308));
  CHECK(accepts<double, float>(up, ones, 3e38));
}

TEST_CASE("beside an infinite product, partial sums may overflow to the other side first") {
  const double nan = std::nan("");
  const std::vector<double> ones(3, 1);
  const std::vector<double> against{-3e38, -3e38, kInf};
  CHECK(accepts<float, float>(against, ones, kInf));
  CHECK(accepts<float, float>(against, ones, nan));  // -inf + inf
  CHECK_FALSE(accepts<float, float>(against, ones, -kInf));
  CHECK_FALSE(accepts<float, float>(against, ones, 3e38));
  CHECK_FALSE(accepts<float, float>(against, ones, 0));
  const std::vector<double> mirrored{3e38, 3e38, -kInf};
  CHECK(accepts<float, float>(mirrored, ones, nan));
  CHECK(accepts<float, float>(mirrored, ones, -kInf));
  CHECK_FALSE(accepts<float, float>(mirrored, ones, kInf));
  // On its own side, or within the range, nothing else comes of it.
  for (const double other : {3e38, -1e38, 1.0}) {
    CHECK(accepts<float, float>({other, other, kInf}, ones, kInf));
    CHECK_FALSE(accepts<float, float>({other, other, kInf}, ones, nan));
    CHECK_FALSE(accepts<float, float>({other, other, kInf}, ones, -kInf));
  }
  CHECK(accepts<float, float>({-3e38, -3e38, 1}, {1, 1, kInf}, nan));
  CHECK(accepts<float, float>({-3e38, -3e38, kInf}, ones, nan, reference::Parts::kBF16));
  CHECK(accepts<bf16, bf16>({-3e38, -3e38, kInf}, ones, nan));
  CHECK(accepts<double, double>({-1e308, -1e308, kInf}, ones, nan));
  CHECK_FALSE(accepts<double, double>({-3e38, -3e38, kInf}, ones, nan));
  CHECK(accepts<float, float>({nan, kInf, 1}, ones, nan));
  CHECK_FALSE(accepts<float, float>({nan, kInf, 1}, ones, kInf));
}

TEST_CASE("by tiles as by loops: what may overflow") {
  const std::vector<double> x{-3e38, -3e38, kInf, 1, 3e38, 3e38, -kInf, 1, 1, 2, 3, 4};
  const std::vector<double> y{1, 1, 1, 1, -1, 1, 2, 3, 0, 1, kInf, 0.5};
  const Array a = matrix_of<float>(3, 4, x), b = matrix_of<float>(3, 4, y);
  for (const auto parts : {reference::Parts::kAll, reference::Parts::kBF16}) {
    Product product = transposed_y(DType::kF32);
    product.options.parts = parts;
    const Expectation loops = expect_product(a, b, product, Evaluation::kLoops),
                      tiles = expect_product(a, b, product, Evaluation::kTiles);
    REQUIRE(loops.overflow.size() == 9);
    CHECK(loops.overflow == tiles.overflow);
    CHECK(loops.overflow[0] == Expectation::kNaN);
    CHECK(loops.overflow[8] == Expectation::kNoOverflow);
  }
}

TEST_CASE("the algorithm of the precision mode is told apart") {
  const double v = static_cast<float>(0.7);
  const std::vector<double> x(40, v), y(40, 1 + 0x1p-9);
  const double full = 40 * v * (1 + 0x1p-9);
  const double half = 40 * static_cast<double>(bf16(v)) * 1;
  CHECK(accepts<float, float>(x, y, full));
  CHECK_FALSE(accepts<float, float>(x, y, half));
  CHECK(accepts<float, float>(x, y, half, reference::Parts::kBF16));
  CHECK_FALSE(accepts<float, float>(x, y, full, reference::Parts::kBF16));
  CHECK(accepts<float, float>(x, y, full, reference::Parts::kBF16x6));
}

TEST_CASE("f64 is judged against something wider, integers modulo 2^32") {
  std::mt19937 random(5);
  const Array x = filled<double>(8, 500, Fill::kNormal, random),
              y = filled<double>(8, 500, Fill::kNormal, random);
  const Expectation e = expect_product(x, y, transposed_y(DType::kF64));
  CHECK(judge(e, multiplied<double, double>(x, y, Order::kFused)).ok());
  CHECK_FALSE(judge(e, multiplied<float, double>(x, y, Order::kFused)).ok());

  const Index shape[] = {1, 140000};
  Array a(DType::kU8, shape);
  for (auto& v : a.mutable_elements<std::uint8_t>()) v = 255;
  const Expectation wraps = expect_product(a, a, transposed_y(DType::kI32));
  CHECK(wraps.likely.empty());
  CHECK(wraps.value[0] == 140000.0 * 65025 - 0x1p33);
}

}  // namespace
}  // namespace kref
