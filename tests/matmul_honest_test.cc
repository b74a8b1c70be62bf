// SPDX-License-Identifier: Apache-2.0
// False alarms: no honest machine is called wrong, whatever its order of sums, its precision mode
// and the data.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "golden/judge.h"
#include "golden/repeats.h"
#include "tests/matmul_machine.h"

namespace kref {
namespace {

struct Alarms {
  Index elements = 0, likely = 0, worst = 0;
  double largest = 0;  // ratio to the likely bound

  void count(const Expectation& e, const Array& z) {
    const Verdict v = judge(e, z);
    elements += v.elements;
    likely += v.wrong;
    worst += judge(e, z, BoundKind::kWorst).wrong;
    // The output's own rounding alone may reach 1; that of the sum is what is of interest.
    if (z.dtype() == DType::kF32 || z.dtype() == DType::kF64) {
      largest = std::max(largest, v.worst.ratio);
    }
  }
  void check(const char* what, int fill) const {
    std::printf("%s, fill %d: %ld elements, %ld beyond likely, %ld beyond worst, largest %.3f\n",
                what, fill, static_cast<long>(elements), static_cast<long>(likely),
                static_cast<long>(worst), largest);
    CHECK(likely == 0);
    CHECK(worst == 0);
    CHECK(elements > 0);
  }
};

// Builds that check themselves are slow: they see fewer machines.
#ifdef NDEBUG
constexpr Index kLongest = 1 << 20;
#else
constexpr Index kLongest = 300;
#endif

Expectation expected(const Array& x, const Array& y, DType out, reference::Parts parts) {
  Product product = transposed_y(out);
  product.options.parts = parts;
  Expectation e = expect_product(x, y, product);
  for (std::size_t i = 0; i < e.value.size(); ++i) REQUIRE(e.likely[i] <= e.worst[i]);
  return e;
}

template <class T, class A, class O>
void honest_runs(Index m, Index k, Fill fill, std::mt19937& random, Alarms& alarms) {
  const Array x = filled<T>(m, k, fill, random), y = filled<T>(m + 1, k, fill, random);
  const Expectation e = expected(x, y, dtype_of<O>, reference::Parts::kAll);
  for (const Order order : kOrders) alarms.count(e, multiplied<A, O>(x, y, order));
}

TEST_CASE("sums of every element type") {
  std::mt19937 random(7);
  for (const Fill fill : kFills) {
    Alarms alarms;
    for (const Index k : {1, 2, 3, 5, 8, 17, 64, 65, 100, 257, 1000, 3000}) {
      if (k > kLongest) continue;
      honest_runs<float, float, float>(16, k, fill, random, alarms);
      honest_runs<bf16, float, float>(16, k, fill, random, alarms);
      honest_runs<bf16, float, bf16>(16, k, fill, random, alarms);
      honest_runs<f16, float, f16>(16, k, fill, random, alarms);
      honest_runs<f8_e4m3, float, f8_e5m2>(16, k, fill, random, alarms);
      honest_runs<double, double, double>(16, k, fill, random, alarms);
    }
    alarms.check("types", static_cast<int>(fill));
  }
}

TEST_CASE("long sums") {
  std::mt19937 random(8);
  for (const Fill fill : kFills) {
    Alarms alarms;
    for (const Index k : {4096, 16384}) {
      if (k > kLongest) continue;
      honest_runs<float, float, float>(3, k, fill, random, alarms);
      honest_runs<bf16, float, float>(3, k, fill, random, alarms);
      honest_runs<f8_e4m3, float, float>(3, k, fill, random, alarms);
      honest_runs<double, double, double>(3, k, fill, random, alarms);
    }
    if (alarms.elements > 0) alarms.check("long", static_cast<int>(fill));
  }
}

TEST_CASE("sums of bf16 parts") {
  std::mt19937 random(9);
  for (const Fill fill : kFills) {
    Alarms alarms;
    for (const Index k : {7, 200, 4096, 16384}) {
      if (k > kLongest) continue;
      const Array x = filled<float>(2, k, fill, random), y = filled<float>(3, k, fill, random);
      for (const auto parts :
           {reference::Parts::kBF16, reference::Parts::kBF16x3, reference::Parts::kBF16x6}) {
        const Expectation e = expected(x, y, DType::kF32, parts);
        for (const Order order : kOrders) {
          for (const bool together : {false, true}) {
            alarms.count(e, multiplied_parts(x, y, order, parts, together));
          }
        }
      }
    }
    alarms.check("parts", static_cast<int>(fill));
  }
}

// Data that repeats itself after `period` elements, x and y in step.
Array periodic(Index rows, Index k, Index period, std::mt19937& random) {
  std::uniform_real_distribution<double> unit(0.5, 1.5);
  std::vector<double> values;
  for (Index i = 0; i < rows; ++i) {
    std::vector<double> once;
    for (Index t = 0; t < period; ++t) once.push_back(unit(random));
    for (Index t = 0; t < k; ++t) values.push_back(once[static_cast<std::size_t>(t % period)]);
  }
  return matrix_of<float>(rows, k, values);
}

TEST_CASE("data that repeats itself in step") {
  std::mt19937 random(10);
  for (const Index period : {1, 2, 7, 16, 60, 128, 200, 500, 1000}) {
    Alarms alarms;
    for (const Index k : {4096, 16384, 65536}) {
      if (k > kLongest) continue;
      const Array x = periodic(4, k, period, random), y = periodic(5, k, period, random);
      const Expectation e = expected(x, y, DType::kF32, reference::Parts::kAll);
      for (const Order order : kOrders) alarms.count(e, multiplied<float, float>(x, y, order));
    }
    if (alarms.elements > 0) alarms.check("period", static_cast<int>(period));
  }
}

TEST_CASE("constant arrays make errors of one sign") {
  // Far beyond what the likely bound would be if these errors were independent.
  const std::vector<double> tenth(20000, 0.1);
  const Array x = matrix_of<float>(1, 20000, tenth), y = x;
  const Expectation e = expect_product(x, y, transposed_y(DType::kF32));
  const double off = std::fabs(multiplied<float, float>(x, y, Order::kForward).at(0) - e.value[0]);
  CHECK(off < e.likely[0]);
  CHECK(off > kLambda * std::sqrt(20000.0) * 0x1p-24 * e.value[0]);
}

TEST_CASE("repeats of factors") {
  const auto squares = [](const std::vector<double>& row, reference::Parts parts) {
    const auto k = static_cast<Index>(row.size());
    return repeats(matrix_of<float>(1, k, row), false, k, parts).at(0).squares;
  };
  using Squares = std::array<double, 3>;
  CHECK(squares({1, 2, 3, 4}, reference::Parts::kAll) == Squares{4, 0, 0});
  CHECK(squares({1, -1, 0, 4}, reference::Parts::kAll) == Squares{5, 0, 0});
  CHECK(squares({0, 0}, reference::Parts::kAll) == Squares{0, 0, 0});
  CHECK(squares({}, reference::Parts::kAll) == Squares{0, 0, 0});
  // Alike in their first parts only.
  CHECK(squares({1 + 0x1p-10, 1 + 0x1p-11, 1}, reference::Parts::kBF16) == Squares{9, 0, 0});
  CHECK(squares({1 + 0x1p-10, 1 + 0x1p-11, 1}, reference::Parts::kBF16x3) == Squares{9, 2, 0});
  // Closer than a long sum can tell apart, and columns.
  std::vector<double> near;
  for (int i = 0; i < 4096; ++i) near.push_back(1 + i * 0x1p-23);
  CHECK(squares(near, reference::Parts::kAll)[0] == 4096.0 * 128);
  std::vector<double> pairs;
  for (int i = 0; i < 40 * 100; ++i) pairs.push_back(1 + i % 40 + (i / 40) % 50 * 64);
  const std::vector<Repeats> columns = repeats(matrix_of<bf16>(100, 40, pairs), true, 100);
  REQUIRE(columns.size() == 40);
  for (const Repeats& c : columns) CHECK(c.squares[0] >= 200);
}

}  // namespace
}  // namespace kref
