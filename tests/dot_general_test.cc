// SPDX-License-Identifier: Apache-2.0
// Products over any dimensions against their definition, and JAX's names of precisions.
#include "kernels/dot_general.h"

#include <doctest/doctest.h>

#include <cmath>

#include "dsl/dsl.h"
#include "kernels/reference_vectors.h"
#include "tests/filled_blocks.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

// Whole numbers exactly, then floats within (k + 1) roundings of the sum of absolute products.
template <class T, class Out, std::size_t R, std::size_t P, std::size_t Q>
void check(const Shape<R>& x_shape, const Shape<P>& y_shape, const DotDimensions& dims,
           const Shape<Q>& out_shape) {
  Index k = 1;
  for (const Index d : dims.contract_x) k *= x_shape[static_cast<std::size_t>(d)];
  for (const bool whole : {true, false}) {
    if (std::is_integral_v<T> && !whole) continue;
    const Tensor<T, R> x = random_block<T, R>(x_shape, 1, whole ? 3 : 0);
    const Tensor<T, P> y = random_block<T, P>(y_shape, 2, whole ? 3 : 0);
    Tensor<Out, Q> z(out_shape);
    dot_general(x.ref(), y.ref(), dims, z.ref());
    const reference::Sums sums = reference::dot_general(
        x.ref(), y.ref(), {dims.contract_x, dims.contract_y, dims.batch_x, dims.batch_y});
    REQUIRE(static_cast<std::size_t>(z.size()) == sums.value.size());
    for (Index i = 0; i < z.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double found = static_cast<double>(z.data()[i]);
      if (whole) {
        REQUIRE(found == static_cast<double>(static_cast<Out>(sums.value[at])));
      } else {
        const double bound = 1.01 * static_cast<double>(k) * 0x1p-24 * sums.magnitude[at] +
                             1.01 * unit_roundoff(dtype_of<Out>) * std::abs(sums.value[at]);
        REQUIRE(std::abs(found - sums.value[at]) <= bound);
      }
    }
  }
}

template <class T, class Out>
void check_all() {
  // The four forms of two matrices.
  check<T, Out, 2, 2, 2>({5, 7}, {7, 9}, {{1}, {0}}, {5, 9});
  check<T, Out, 2, 2, 2>({5, 7}, {9, 7}, {{1}, {1}}, {5, 9});
  check<T, Out, 2, 2, 2>({7, 5}, {7, 9}, {{0}, {0}}, {5, 9});
  check<T, Out, 2, 2, 2>({7, 5}, {9, 7}, {{0}, {1}}, {5, 9});
  // Vectors.
  check<T, Out, 1, 2, 1>({7}, {7, 9}, {{0}, {0}}, {9});
  check<T, Out, 2, 1, 1>({5, 7}, {7}, {{1}, {0}}, {5});
  check<T, Out, 1, 1, 0>({17}, {17}, {{0}, {0}}, {});
  // Nothing contracted: an outer product.
  check<T, Out, 1, 1, 2>({3}, {4}, {{}, {}}, {3, 4});
  // Batches: in front, at the end, several, in another order.
  check<T, Out, 3, 3, 3>({4, 5, 7}, {4, 7, 9}, {{2}, {1}, {0}, {0}}, {4, 5, 9});
  check<T, Out, 3, 3, 3>({5, 7, 4}, {7, 4, 9}, {{1}, {0}, {2}, {1}}, {4, 5, 9});
  check<T, Out, 4, 4, 4>({2, 3, 5, 7}, {3, 2, 9, 7}, {{3}, {3}, {0, 1}, {1, 0}}, {2, 3, 5, 9});
  check<T, Out, 2, 2, 1>({6, 7}, {6, 7}, {{1}, {1}, {0}, {0}}, {6});
  // Several contracted dimensions, several free ones.
  check<T, Out, 3, 3, 2>({5, 3, 4}, {3, 4, 9}, {{1, 2}, {0, 1}}, {5, 9});
  check<T, Out, 3, 3, 2>({5, 3, 4}, {4, 9, 3}, {{2, 1}, {0, 2}}, {5, 9});
  check<T, Out, 4, 3, 5>({2, 3, 4, 5}, {4, 6, 7}, {{2}, {0}}, {2, 3, 5, 6, 7});
  // Contracted over no elements.
  check<T, Out, 2, 2, 2>({5, 0}, {0, 9}, {{1}, {0}}, {5, 9});
}

TEST_CASE("dimension numbers of all kinds, in every type of operand and result") {
  check_all<float, float>();
  check_all<bf16, float>();
  check_all<bf16, bf16>();
  check_all<f16, f16>();
  check_all<std::int8_t, I32>();
  check_all<std::uint8_t, I32>();
  check_all<float, bf16>();
}

TEST_CASE("f64, and a product from strided views into one") {
  const Tensor<double, 2> x = random_block<double, 2>({8, 12}, 3, 3);
  const Tensor<double, 2> y = random_block<double, 2>({12, 10}, 4, 3);
  Tensor<double, 2> z({9, 20}, 100.0);
  const auto xs = x.ref().at(ds(1, 3, 2), ds(2, 6));
  const auto ys = y.ref().at(ds(2, 6), ds(1, 4));
  dot_general(xs, ys, {{1}, {0}}, z.ref().at(ds(0, 3, 4), ds(5, 4)));
  for (Index i = 0; i < 9; ++i) {
    for (Index j = 0; j < 20; ++j) {
      double sum = 100;
      if (i % 4 == 0 && j >= 5 && j < 9) {
        sum = 0;
        for (Index k = 0; k < 6; ++k) sum += xs(i / 4, k) * ys(k, j - 5);
      }
      CHECK(z(i, j) == sum);
    }
  }
}

TEST_CASE("the bits are those of dot, whichever way the operands lie") {
  const Tensor<float, 2> x = random_block<float, 2>({33, 65}, 5, 0),
                         y = random_block<float, 2>({65, 29}, 6, 0);
  Tensor<float, 2> expected({33, 29});
  for (const Precision p : kPrecisions) {
    dot<float>(x, y.ref(), expected.ref(), {.precision = p});
    Tensor<float, 2> z({33, 29});
    dot_general(x.ref(), y.ref(), {{1}, {0}}, z.ref(), p);
    CHECK(std::equal(z.data(), z.data() + z.size(), expected.data()));
    // The same product with the contracted dimension in two parts.
    Tensor<float, 3> yt({29, 5, 13});
    for (Index k = 0; k < 65; ++k) {
      for (Index j = 0; j < 29; ++j) yt(j, k / 13, k % 13) = y(k, j);
    }
    dot_general(x.ref().reshape(33, 5, 13), yt.ref(), {{1, 2}, {1, 2}}, z.ref(), p);
    CHECK(std::equal(z.data(), z.data() + z.size(), expected.data()));
  }
}

TEST_CASE("precisions by JAX's names; those that are not offered are refused with the list") {
  CHECK(precision_of("DEFAULT") == Precision::kBF16);
  CHECK(precision_of("default") == Precision::kBF16);
  CHECK(precision_of("HIGH") == Precision::kBF16x3);
  CHECK(precision_of("HIGHEST") == Precision::kF32);
  CHECK(precision_of("float32") == Precision::kF32);
  CHECK(precision_of("BF16_BF16_F32") == Precision::kBF16);
  CHECK(precision_of("BF16_BF16_F32_X3") == Precision::kBF16x3);
  CHECK(precision_of("BF16_BF16_F32_X6") == Precision::kBF16x6);
  CHECK(precision_of("F32_F32_F32") == Precision::kF32);
  for (const char* const other : {"BF16_BF16_F32_X9", "TF32_TF32_F32", "F16_F16_F16", "", "bf16"}) {
    CAPTURE(other);
    CHECK(refusal([&] { precision_of(other); }) ==
          "precision \"" + std::string(other) +
              "\" is not offered, expected DEFAULT, HIGH, HIGHEST, float32, BF16_BF16_F32, "
              "BF16_BF16_F32_X3, BF16_BF16_F32_X6 or F32_F32_F32");
  }
}

TEST_CASE("dimension numbers that do not fit are refused by operand and dimension") {
  const Tensor<float, 2> x({5, 7}, 1.0f), y({7, 9}, 1.0f);
  Tensor<float, 2> z({5, 9});
  const auto told = [&](const DotDimensions& d) {
    return refusal([&] { dot_general(x.ref(), y.ref(), d, z.ref()); });
  };
  CHECK(told({{2}, {0}}) == "dot_general: dimension 2 of x F32[5,7], expected 0..2 - 1");
  CHECK(told({{1, 1}, {0, 1}}) == "dot_general: dimension 1 of x is named twice");
  CHECK(told({{1}, {0, 1}}) == "dot_general: x has 1 contracted dimensions, y has 2");
  CHECK(told({{0}, {0}}) ==
        "dot_general: contracted dimension 0 of x F32[5,7] and 0 of y F32[7,9], expected equal "
        "extents");
  CHECK(told({{1}, {0}, {0}, {1}}) ==
        "dot_general: batch dimension 0 of x F32[5,7] and 1 of y F32[7,9], expected equal extents");
  Tensor<float, 2> wrong({9, 5});
  CHECK(refusal([&] {
          dot_general(x.ref(), y.ref(), {{1}, {0}}, wrong.ref());
        }) == "dot_general: x is F32[5,7], y is F32[7,9], out is F32[9,5], expected [5,9]");
  Tensor<bf16, 2> narrow({5, 9});
  const Tensor<bf16, 2> a({5, 7}, bf16(1.0)), b({7, 9}, bf16(1.0));
  CHECK_THROWS_AS(dot_general(a.ref(), b.ref(), {{1}, {0}}, narrow.ref(), Precision::kBF16), Error);
}

}  // namespace
}  // namespace kref
