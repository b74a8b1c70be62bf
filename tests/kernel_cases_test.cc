// SPDX-License-Identifier: Apache-2.0
// Faults that people met with comparable kernels, as small cases; the number in each name is the
// row of the collection they come from. Those of views and grids: view_cases_test.cc,
// grid_cases_test.cc.
#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "dsl/threads.h"
#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "tests/dot_inputs.h"
#include "tests/refusal.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

template <class T, std::size_t R>
Tensor<T, R> made(const Shape<R>& shape, Index seed, T (*value)(Random&)) {
  Tensor<T, R> out(shape);
  Random r(seed);
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = value(r);
  return out;
}

template <class T, std::size_t R>
bool equal_bytes(const Tensor<T, R>& a, const Tensor<T, R>& b) {
  return a.extents() == b.extents() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(T)) == 0;
}

TEST_CASE("L022: bf16 operands are numbers, not bit patterns") {
  const auto value = [](Random& r) { return bf16(static_cast<int>(r.next() % 5) - 2); };
  const auto x = made<bf16, 2>({16, 16}, 1, value), y = made<bf16, 2>({16, 16}, 2, value);
  for_each_target([&] {
    Tensor<float, 2> z({16, 16}), wide({16, 16}), xf({16, 16}), yf({16, 16});
    matmul(x.ref(), y.ref(), z.ref());
    cast(x.ref(), xf.ref()), cast(y.ref(), yf.ref());
    matmul(xf.ref(), yf.ref(), wide.ref());
    bool zeros = true;
    for (Index i = 0; i < 16; ++i) {
      for (Index j = 0; j < 16; ++j) {
        int sum = 0;
        for (Index k = 0; k < 16; ++k)
          sum += static_cast<int>(static_cast<float>(x(i, k))) *
                 static_cast<int>(static_cast<float>(y(k, j)));
        CHECK(z(i, j) == static_cast<float>(sum));
        CHECK(wide(i, j) == static_cast<float>(sum));
        zeros = zeros && sum == 0;
      }
    }
    CHECK_FALSE(zeros);
  });
}

TEST_CASE("L023: sum, comparison and negation of bf16 scalars") {
  for_each_target([] {
    Tensor<bf16, 0> sum(Shape<0>{}), negative(Shape<0>{});
    Tensor<bool, 0> is_less(Shape<0>{}), is_greater(Shape<0>{});
    const Tensor<bf16, 0> minus_five(Shape<0>{}, bf16(-5.0)), minus_two(Shape<0>{}, bf16(-2.0));
    add(bf16(2.5), bf16(2.0), sum.ref());
    neg(bf16(2.5), negative.ref());
    less(minus_five.ref(), minus_two.ref(), is_less.ref());
    less(minus_two.ref(), minus_five.ref(), is_greater.ref());
    CHECK(static_cast<float>(sum()) == 4.5f);
    CHECK(static_cast<float>(negative()) == -2.5f);
    CHECK(is_less());
    CHECK_FALSE(is_greater());
  });
}

TEST_CASE("L081: tiles of an f16 product, against f64 with a bound that grows with K") {
  for (const Shape<3>& s : {Shape<3>{8, 8, 12}, Shape<3>{64, 48, 952}}) {
    const Index m = s[0], n = s[1], k = s[2];
    const auto x = made<f16, 2>({m, k}, 3, rounding<f16>),
               y = made<f16, 2>({k, n}, 4, rounding<f16>);
    Tensor<float, 2> whole({m, n}), tiled({m, n});
    matmul(x.ref(), y.ref(), whole.ref());
    matmul(x.ref(), y.ref(), tiled.ref(), {.tile = {m / 2, n / 2, k / 2}});
    CHECK(equal_bytes(whole, tiled));  // more than the row asks for
    const reference::Sums sums = reference::matmul(x.ref(), y.ref());
    for (Index e = 0; e < m * n; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const double bound = static_cast<double>(k) * 0x1p-24 * sums.magnitude[at];
      REQUIRE(std::abs(static_cast<double>(tiled.data()[e]) - sums.value[at]) <= bound);
      REQUIRE(bound < sums.magnitude[at] / 1000);  // zeros would not pass
    }
  }
}

TEST_CASE("L082: a y for the whole batch, in every form that has one") {
  const auto x = made<bf16, 3>({2, 17, 64}, 5, small_integer<bf16>);
  const auto y = made<bf16, 2>({64, 64}, 6, small_integer<bf16>);
  Tensor<float, 3> shared({2, 17, 64}), repeated({2, 17, 64});
  matmul(x.ref(), y.ref(), shared.ref());
  matmul(x.ref(), Ref<const bf16, 3>(y.data(), {2, 64, 64}, {0, 64, 1}), repeated.ref());
  CHECK(equal_bytes(shared, repeated));
  for (Index b = 0; b < 2; ++b) {
    const Ref<const bf16, 2> rows(&x.ref()(b, 0, 0), {17, 64});
    const reference::Sums sums = reference::matmul(rows, y.ref());
    for (std::size_t e = 0; e < 17 * 64; ++e)
      REQUIRE((&shared(b, 0, 0))[e] == static_cast<float>(sums.value[e]));
  }
  // A batch of 1 is no batch of 2: numpy would repeat it, runs.md does not.
  const Ref<const bf16, 3> one(y.data(), {1, 64, 64});
  CHECK(refusal([&] { matmul(x.ref(), one, shared.ref()); }) ==
        "matmul: x BF16[2,17,64] has 2 along batch axis 0, y BF16[1,64,64] has 1");
}

TEST_CASE("L084: bf16 operands at any multiple of two bytes") {
  for (const Shape<3>& s : {Shape<3>{1057, 1, 129}, Shape<3>{5, 1, 7}, Shape<3>{5, 33, 7}}) {
    const Index m = s[0], n = s[1], k = s[2];
    const auto x = made<bf16, 2>({m, k}, 7, rounding<bf16>),
               y = made<bf16, 2>({k, n}, 8, rounding<bf16>);
    Tensor<float, 2> aligned({m, n});
    matmul(x.ref(), y.ref(), aligned.ref());
    for (const Index shift : {1, 2, 3, 5}) {
      Tensor<bf16, 1> xs({m * k + shift}), ys({k * n + shift});  // NaN before the first element
      std::memcpy(xs.data() + shift, x.data(), static_cast<std::size_t>(m * k) * sizeof(bf16));
      std::memcpy(ys.data() + shift, y.data(), static_cast<std::size_t>(k * n) * sizeof(bf16));
      for_each_target([&] {
        Tensor<float, 2> z({m, n});
        matmul(Ref<const bf16, 2>(xs.data() + shift, {m, k}),
               Ref<const bf16, 2>(ys.data() + shift, {k, n}), z.ref());
        CHECK(equal_bytes(z, aligned));
      });
    }
    const reference::Sums sums = reference::matmul(x.ref(), y.ref());
    for (Index e = 0; e < m * n; ++e) {
      const auto at = static_cast<std::size_t>(e);
      REQUIRE(std::abs(static_cast<double>(aligned.data()[e]) - sums.value[at]) <=
              static_cast<double>(k) * 0x1p-24 * sums.magnitude[at]);
    }
  }
}

// x / sqrt(mean(x^2) + eps), the sum of squares given: everything in f32, rounded to bf16 once.
bf16 normalised(bf16 x, float sum, Index n) {
  const float scale = 1 / std::sqrt(sum / static_cast<float>(n) + 1e-6f);
  return bf16(static_cast<float>(x) * scale);
}

TEST_CASE("L088: bf16 results of different orders of a sum are at most one unit apart") {
  const Index rows = 256, n = 512;
  const auto x = made<bf16, 2>({rows, n}, 9, rounding<bf16>);
  Tensor<float, 2> wide({rows, n}), squares({rows, n}), sums({rows, 1});
  cast(x.ref(), wide.ref());
  mul(wide, wide, squares.ref());
  row_sum(squares.ref(), sums.ref());
  Index differ = 0;
  for (Index r = 0; r < rows; ++r) {
    float backward = 0;
    double exact = 0;
    for (Index c = n; c-- > 0;) backward += squares(r, c), exact += double{squares(r, c)};
    const double scale = 1 / std::sqrt(exact / n + 1e-6);
    for (Index c = 0; c < n; ++c) {
      const int here = normalised(x(r, c), sums(r, 0), n).bits;
      const int there = normalised(x(r, c), backward, n).bits;
      const int truth = bf16(static_cast<double>(x(r, c)) * scale).bits;
      REQUIRE(std::abs(here - there) <= 1);
      REQUIRE(std::abs(here - truth) <= 1);
      differ += here != there ? 1 : 0;
    }
  }
  // The order does show, so comparing exactly would be wrong; but seldom.
  CHECK(differ > 0);
  CHECK(differ < rows * n / 100);
}

TEST_CASE("L138: products and sums of their elements in nested regions") {
  const auto x = made<float, 2>({40, 30}, 10, rounding<float>),
             y = made<float, 2>({30, 50}, 11, rounding<float>);
  Tensor<float, 2> expected({40, 50});
  matmul(x.ref(), y.ref(), expected.ref());
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(3);
  set_threads(2);
  int wrong = 0;
#pragma omp parallel for num_threads(3) reduction(+ : wrong)
  for (int i = 0; i < 12; ++i) {
    Tensor<float, 2> z({40, 50});
    matmul(x.ref(), y.ref(), z.ref(), {.tile = {8, 8, 8}});
    int unequal = 0;
#pragma omp parallel for num_threads(2) reduction(+ : unequal)
    for (Index e = 0; e < z.size(); ++e) unequal += z.data()[e] == expected.data()[e] ? 0 : 1;
    wrong += unequal;
  }
  set_threads(0);
  omp_set_max_active_levels(levels);
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace kref
