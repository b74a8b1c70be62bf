// SPDX-License-Identifier: Apache-2.0
// Row reductions against the stated order, written as a plain loop, and against the definition.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dsl/tensor.h"
#include "kernels/reference.h"
#include "kernels/tile_ops.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

template <class T>
T value_at(Index i) {
  const auto u = static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(u >> (64 - 8 * sizeof(T)));
  else
    return T(std::ldexp(static_cast<double>(static_cast<std::int32_t>(u >> 32)),
                        static_cast<int>(u % 11) - 31));
}

// The order of row_sum as its comment states it.
template <class W, class T>
W stated_sum(const T* x, Index n) {
  W lanes[16] = {};
  for (Index j = 0; j < n; ++j) lanes[j % 16] += static_cast<W>(x[j]);
  for (const int width : {8, 4, 2, 1}) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

template <class S, class T>
struct Pair {
  using From = S;
  using To = T;
};

TEST_CASE_TEMPLATE("row_sum: the bits of the stated order", P, Pair<double, double>,
                   Pair<float, float>, Pair<f16, float>, Pair<bf16, float>, Pair<bf16, bf16>,
                   Pair<f16, f16>) {
  using S = typename P::From;
  using T = typename P::To;
  using W = std::conditional_t<std::is_same_v<S, double>, double, float>;
  for_each_target([] {
    for (const Index rows : {1, 3, 4, 9}) {
      for (Index cols = 0; cols <= 67; ++cols) {
        Tensor<S, 2> x({rows, cols + 3});
        for (Index i = 0; i < x.size(); ++i) x.data()[i] = value_at<S>(i);
        const Ref<S, 2> block = x.ref().block({0, 2}, {rows, cols});
        Tensor<T, 1> out({rows + 1}, T(-7.0));
        row_sum(block, out.ref().block({0}, {rows}));
        for (Index r = 0; r < rows; ++r) {
          const T want = T(stated_sum<W>(&x.ref()(r, 0) + 2, cols));
          CAPTURE(cols);
          REQUIRE(std::memcmp(&out(r), &want, sizeof(T)) == 0);
        }
        REQUIRE(static_cast<float>(out(rows)) == -7.0f);
      }
    }
  });
}

TEST_CASE("row_sum: within its bound of the definition") {
  Tensor<float, 2> x({2, 1000});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = value_at<float>(i);
  Tensor<float, 2> out({2, 1});
  row_sum(x.ref(), out.ref());
  const reference::Sums sums = reference::row_sum(Ref<const float, 2>(x.ref()));
  for (Index r = 0; r < 2; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const double depth = 1000.0 / 16 + 4;  // additions that an element passes
    CHECK(std::abs(static_cast<double>(out(r, 0)) - sums.value[at]) <=
          depth * 0x1p-24 * sums.magnitude[at]);
    CHECK(out(r, 0) != 0);
  }
}

TEST_CASE_TEMPLATE("row_max, row_min", P, Pair<double, double>, Pair<float, float>,
                   Pair<f16, float>, Pair<bf16, float>, Pair<bf16, bf16>,
                   Pair<std::int64_t, std::int64_t>, Pair<std::int32_t, std::int32_t>,
                   Pair<std::int8_t, std::int8_t>, Pair<std::uint8_t, std::uint8_t>) {
  using S = typename P::From;
  using T = typename P::To;
  for_each_target([] {
    for (Index cols = 1; cols <= 67; ++cols) {
      Tensor<S, 2> x({5, cols + 1});
      for (Index i = 0; i < x.size(); ++i) x.data()[i] = value_at<S>(i);
      const Ref<const S, 2> block = x.ref().block({0, 1}, {5, cols});
      Tensor<T, 2> max({5, 1}), min({5, 1});
      row_max(block, max.ref());
      row_min(block, min.ref());
      const auto want_max = reference::row_max(block), want_min = reference::row_min(block);
      for (Index r = 0; r < 5; ++r) {
        REQUIRE(static_cast<double>(max(r, 0)) == want_max[static_cast<std::size_t>(r)]);
        REQUIRE(static_cast<double>(min(r, 0)) == want_min[static_cast<std::size_t>(r)]);
      }
    }
  });
}

TEST_CASE("row_max, row_min, row_sum: NaN at every place, zeros of either sign, infinities") {
  for_each_target([] {
    for (Index cols = 1; cols <= 40; ++cols) {
      Tensor<float, 1> max({1}), min({1}), sum({1});
      const auto run = [&](const Tensor<float, 1>& x) {
        const Ref<const float, 2> row(x.data(), {1, cols});
        row_max(row, max.ref());
        row_min(row, min.ref());
        row_sum(row, sum.ref());
      };
      for (Index at = 0; at < cols; ++at) {
        Tensor<float, 1> x({cols}, -0.0f);
        x(at) = -std::numeric_limits<float>::quiet_NaN();
        run(x);
        const auto nan = std::numeric_limits<float>::quiet_NaN();
        CHECK(std::memcmp(max.data(), &nan, 4) == 0);
        CHECK(std::memcmp(min.data(), &nan, 4) == 0);
        CHECK(std::memcmp(sum.data(), &nan, 4) == 0);
        x(at) = 0.0f;
        run(x);
        CHECK_FALSE(std::signbit(max(0)));
        CHECK(std::signbit(min(0)) == (cols > 1));
        CHECK_FALSE(std::signbit(sum(0)));
        x(at) = -INFINITY;
        run(x);
        CHECK(min(0) == -INFINITY);
        CHECK(max(0) == (cols > 1 ? 0.0f : -INFINITY));
        CHECK(sum(0) == -INFINITY);
      }
    }
  });
}

TEST_CASE("sums of integers are exact and wrap") {
  Tensor<std::int32_t, 2> x({3, 70});
  Tensor<std::int32_t, 1> out({3});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = value_at<std::int32_t>(i);
  row_sum(x.ref(), out.ref());
  for (Index r = 0; r < 3; ++r) {
    std::uint32_t sum = 0;
    for (Index c = 0; c < 70; ++c) sum += static_cast<std::uint32_t>(x(r, c));
    CHECK(out(r) == static_cast<std::int32_t>(sum));
  }
  Tensor<std::uint8_t, 2> bytes({3, 1000}, 255);
  row_sum(bytes.ref(), out.ref());
  CHECK(out(2) == 255000);
  Tensor<std::int8_t, 2> small({3, 1000}, -128);
  row_sum(small.ref(), out.ref());
  CHECK(out(0) == -128000);
}

TEST_CASE("rows of any rank; what does not fit is refused") {
  Tensor<float, 4> x({2, 3, 4, 5});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i);
  Tensor<float, 3> out({2, 3, 4});
  row_sum(x.ref(), out.ref());
  CHECK(out(1, 2, 3) == 115 + 116 + 117 + 118 + 119);
  CHECK(out(0, 1, 0) == 20 + 21 + 22 + 23 + 24);
  Tensor<float, 4> kept({2, 2, 2, 1});
  row_max(x.ref().block({0, 1, 1, 1}, {2, 2, 2, 3}), kept.ref());
  CHECK(kept(1, 1, 1, 0) == x(1, 2, 2, 3));
  CHECK(kept(0, 0, 1, 0) == x(0, 1, 2, 3));
  Tensor<float, 0> one(Shape<0>{});
  row_min(Ref<float, 1>(x.data() + 7, {9}), one.ref());
  CHECK(one() == 7);

  const Tensor<float, 2> empty({3, 0});
  Tensor<float, 1> rows({3});
  row_sum(empty.ref(), rows.ref());
  for (Index r = 0; r < 3; ++r) CHECK(rows(r) == 0);
  CHECK_THROWS_WITH_AS(
      row_max(empty.ref(), rows.ref()),
      "row_max: x is F32[3,0], rows without elements have no largest or smallest one", Error);
  Tensor<float, 1> two({2});
  CHECK_THROWS_WITH_AS(
      row_sum(empty.ref(), two.ref()),
      "row_sum: x is F32[3,0], out is F32[2], expected the shape of x without its last dimension, "
      "or with extent 1 there",
      Error);
  Tensor<double, 1> wide({3});
  CHECK_THROWS_AS(row_sum(empty.ref(), wide.ref()), Error);
}

TEST_CASE("softmax in five verbs") {
  for_each_target([] {
    Tensor<float, 2> x({7, 33});
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = 0.2f * value_at<float>(i);
    x(3, 5) = -INFINITY;
    Tensor<float, 1> largest({7}), sum({7});
    Tensor<float, 2> p({7, 33});
    row_max(x.ref(), largest.ref());
    sub(x, column(largest.ref()), p.ref());
    exp(p, p.ref());
    row_sum(p.ref(), sum.ref());
    div(p, column(sum.ref()), p.ref());
    const auto want = reference::softmax(Ref<const float, 2>(x.ref()));
    for (Index i = 0; i < x.size(); ++i) {
      // x - max rounds by half a unit of |x - max|, which exp turns into a relative error.
      const double w = want[static_cast<std::size_t>(i)];
      if (w == 0) {
        REQUIRE(p.data()[i] == 0);
        continue;
      }
      const double bound =
          w * 0x1p-24 * (std::abs(static_cast<double>(x.data()[i])) * 2 + 40 + 16) + 0x1p-149;
      REQUIRE(std::abs(static_cast<double>(p.data()[i]) - w) <= bound);
    }
    CHECK(p(3, 5) == 0);
  });
}

}  // namespace
}  // namespace kref
