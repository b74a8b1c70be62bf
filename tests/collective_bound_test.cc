// SPDX-License-Identifier: Apache-2.0
// The bound of a sum over devices: honest machines of every kind stay within it, and reach a good
// part of it.
#include "golden/collective_bound.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "golden/compared.h"

namespace kref {
namespace {

// Adds in the type Sum, rounding each time.
template <class Sum, class T>
double added(const std::vector<T>& terms) {
  Sum sum = static_cast<Sum>(static_cast<double>(terms[0]));
  for (std::size_t i = 1; i < terms.size(); ++i) {
    sum = static_cast<Sum>(static_cast<double>(sum) + static_cast<double>(terms[i]));
  }
  return static_cast<double>(sum);
}

template <class T>
std::vector<T> divided(const std::vector<T>& terms, double n, bool reciprocal) {
  std::vector<T> out;
  for (const T& t : terms) {
    const double v = static_cast<double>(t);
    out.push_back(static_cast<T>(reciprocal ? v * static_cast<double>(T(1 / n)) : v / n));
  }
  return out;
}

// What machines make of the mean (n = 1: the sum).
template <class T>
std::vector<double> machines(std::vector<T> terms, double n) {
  std::vector<double> out;
  const auto mean = [&](double sum) {
    out.push_back(static_cast<double>(T(sum / n)));
    out.push_back(static_cast<double>(T(sum * static_cast<double>(T(1 / n)))));
  };
  for (int order = 0; order < 3; ++order) {
    mean(added<T>(terms));
    mean(static_cast<double>(T(added<float>(terms))));
    out.push_back(static_cast<double>(T(added<float>(terms) / static_cast<float>(n))));
    if (order == 0) std::reverse(terms.begin(), terms.end());
    if (order == 1)
      std::sort(terms.begin(), terms.end(), [](const T& a, const T& b) {
        return static_cast<double>(a) < static_cast<double>(b);
      });
  }
  return out;
}

template <class T>
void try_type(double sharpest_needed) {
  const DType type = dtype_of<T>;
  CAPTURE(name_of(type));
  std::mt19937 engine(5);
  std::normal_distribution<double> normal;
  double reached = 0;
  for (int round = 0; round < 4000; ++round) {
    const int k = 1 + static_cast<int>(engine() % 12);
    const double n = round % 3 == 0 ? k : 1;
    // Of one size, or of sizes far apart; subnormal ones among them.
    const int spread = round % 2 == 0 ? 1 : 12;
    std::vector<T> terms;
    TermSums sums;
    for (int i = 0; i < k; ++i) {
      const double scale =
          std::ldexp(1.0, static_cast<int>(engine() % static_cast<unsigned>(spread)) - spread / 2);
      terms.push_back(T(normal(engine) * scale));
      sums.add(static_cast<double>(terms.back()), type);
    }
    const ExpectedSum expected = expected_sum(sums, {type, static_cast<Index>(n), false, false});
    const ExpectedSum either = expected_sum(sums, {type, static_cast<Index>(n), false, true});
    REQUIRE(std::isfinite(expected.bound));
    CHECK(either.bound >= expected.bound);
    const auto holds = [&](double got, const ExpectedSum& e) {
      if (!std::isfinite(got)) return (e.overflow != 0);
      const double error = std::fabs(got - e.value);
      if (e.bound > 0) reached = std::max(reached, error / e.bound);
      return error <= e.bound;
    };
    for (const double got : machines(terms, n)) {
      CAPTURE(k);
      CAPTURE(n);
      CAPTURE(got);
      CAPTURE(expected.value);
      CAPTURE(expected.bound);
      CHECK(holds(got, expected));
    }
    if (n > 1) {
      for (const bool reciprocal : {false, true}) {
        for (const double got : machines(divided(terms, n, reciprocal), 1)) {
          CAPTURE(k);
          CAPTURE(got);
          CAPTURE(either.value);
          CAPTURE(either.bound);
          CHECK(holds(got, either));
        }
      }
    }
  }
  CAPTURE(reached);
  CHECK(reached > sharpest_needed);
}

TEST_CASE("honest machines stay within the bound") {
  try_type<float>(0.5);
  try_type<bf16>(0.5);
  try_type<f16>(0.5);
  try_type<f8_e4m3>(0.5);
  try_type<f8_e5m2>(0.5);
}

ExpectedSum sum_of(DType type, std::initializer_list<double> terms, Index n = 1) {
  TermSums sums;
  for (const double t : terms) sums.add(t, type);
  return expected_sum(sums, {type, n, false, false});
}

TEST_CASE("a single term is compared exactly, two are not") {
  CHECK(sum_of(DType::kBF16, {3}).bound == 0);
  CHECK(sum_of(DType::kF32, {0x1p-140}).bound == 0);
  const double two = sum_of(DType::kF32, {1, 2}).bound;
  CHECK(two >= 3 * 0x1p-24);
  CHECK(two < 3 * 0x1.01p-24);
  CHECK(sum_of(DType::kBF16, {1, 2, 3, 4}).bound < 3 * 10 * 0x1.02p-8);
  // Means: of one device exactly; of integers after one rounding to f32.
  CHECK(sum_of(DType::kF32, {3}, 1).bound == 0);
  const ExpectedSum mean = expected_sum(TermSums::exact(7), {DType::kF32, 4, true, false});
  CHECK(mean.value == 1.75);
  CHECK(mean.bound < 1.75 * 0x1.8p-23);
  CHECK(mean.bound > 0);
}

TEST_CASE("numbers that may be flushed to zero") {
  const ExpectedSum small = sum_of(DType::kF32, {0x1p-127, 0x1p-127});
  CHECK(small.bound >= 0x1p-126);
  CHECK(sum_of(DType::kF16, {0x1p-20, 0x1p-20}).bound < 0x1p-24);  // f16 is widened, not flushed
  CHECK(sum_of(DType::kF32, {1, 0x1p-130}).bound < 0x1.1p-23);
}

TEST_CASE("partial sums that overflow") {
  using E = Expectation;
  CHECK(sum_of(DType::kF16, {60000, 60000, -60000}).overflow == E::kPlusInfinity);
  CHECK(sum_of(DType::kF16, {60000, 60000, -60000, -60000}).overflow ==
        (E::kPlusInfinity | E::kMinusInfinity | E::kNaN));
  CHECK(sum_of(DType::kF16, {30000, 30000, -30000}).overflow == 0);
  CHECK(sum_of(DType::kF8E4M3, {448, 448, -4}).overflow == (E::kPlusInfinity | E::kNaN));
  CHECK(sum_of(DType::kF64, {1e308, 1e308, -1e308}).value == 1e308);
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(sum_of(DType::kF32, {inf, 1}).value == inf);
  CHECK(sum_of(DType::kF32, {inf, 1}).overflow == 0);
  CHECK(sum_of(DType::kF32, {inf, -3e38, -3e38}).overflow == E::kNaN);
  CHECK(std::isnan(sum_of(DType::kF32, {inf, -inf}).value));
}

}  // namespace
}  // namespace kref
