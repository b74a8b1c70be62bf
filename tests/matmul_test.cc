// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // as kernels/dot_s32.cc
#include "kernels/matmul.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "bench/cases.h"
#include "dsl/tensor.h"
#include "dsl/threads.h"
#include "kernels/reference.h"
#include "tests/dot_inputs.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

struct ThreadsRestored {
  ~ThreadsRestored() { set_threads(0); }
};

template <class T>
Array random_array(std::initializer_list<Index> shape, Index seed, T (*value)(Random&)) {
  Array a(dtype_of<T>, std::vector<Index>(shape));
  Random r(seed);
  for (T& v : a.template mutable_elements<T>()) v = value(r);
  return a;
}

Array product(const Array& x, const Array& y, DType type, std::initializer_list<Index> shape,
              const MatmulOptions& options = {}) {
  Array z(type, std::vector<Index>(shape));
  matmul(x, y, z.mutable_ref(), options);
  return z;
}

bool equal_bytes(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

// Every element equal to the plain loops' value; small integers, so the sums are exact.
template <class T>
bool equals_reference(const Array& x, const Array& y, const Array& z,
                      const reference::MatmulOptions& o) {
  bool equal = true, zeros = true;
  const auto check = [&](const auto& expected) {
    for (Index i = 0; i < z.size(); ++i) {
      const auto e = static_cast<double>(expected[static_cast<std::size_t>(i)]);
      equal = equal && z.at(i) == e;
      zeros = zeros && e == 0;
    }
  };
  if constexpr (std::is_integral_v<T>)
    check(reference::matmul_int(x, y, o));
  else
    check(reference::matmul(x, y, o).value);
  return equal && (!zeros || z.size() < 4 || x.size() == 0);
}

TEST_CASE_TEMPLATE("matmul equals the plain loops on integers: remainders, transpositions, tiles",
                   T, float, double, bf16, f16, f8_e4m3, f8_e5m2, std::int8_t, std::uint8_t) {
  constexpr DType kOut = std::is_integral_v<T>       ? DType::kI32
                         : std::is_same_v<T, double> ? DType::kF64
                                                     : DType::kF32;
  for (const bool tx : {false, true})
    for (const bool ty : {false, true})
      for (const Index m : {1, 3, 4, 9})
        for (const Index n : {1, 7, 8, 33})
          for (const Index k : {1, 2, 31}) {
            CAPTURE(tx);
            CAPTURE(ty);
            CAPTURE(m);
            CAPTURE(n);
            CAPTURE(k);
            const Array x = tx ? random_array<T>({k, m}, 1, small_integer<T>)
                               : random_array<T>({m, k}, 1, small_integer<T>);
            const Array y = ty ? random_array<T>({n, k}, 2, small_integer<T>)
                               : random_array<T>({k, n}, 2, small_integer<T>);
            const Array z =
                product(x, y, kOut, {m, n}, {.trans_x = tx, .trans_y = ty, .tile = {4, 8, 16}});
            CHECK(equals_reference<T>(x, y, z, {.trans_x = tx, .trans_y = ty}));
            CHECK(equal_bytes(z, product(x, y, kOut, {m, n}, {.trans_x = tx, .trans_y = ty})));
          }
}

TEST_CASE("batch dimensions, shared y, every output type") {
  const Array x = random_array<float>({2, 3, 5, 7}, 3, small_integer<float>);
  const Array y = random_array<float>({2, 3, 7, 6}, 4, small_integer<float>);
  const Array shared = random_array<float>({7, 6}, 5, small_integer<float>);
  for (const DType type : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    CHECK(
        equals_reference<float>(x, y, product(x, y, type, {2, 3, 5, 6}, {.tile = {2, 4, 3}}), {}));
    CHECK(equals_reference<float>(x, shared, product(x, shared, type, {2, 3, 5, 6}), {}));
  }
}

TEST_CASE("the result is rounded once to the type of z") {
  // 256 + 1 lies between neighbours of bf16; the f32 sum is exact, the rounding is to even.
  Tensor<bf16, 2> x({1, 2}), y({2, 1}, bf16(1)), z({1, 1});
  x(0, 0) = bf16(256), x(0, 1) = bf16(1);
  matmul(x.ref(), y.ref(), z.ref());
  CHECK(z(0, 0).bits == bf16(256.0f).bits);
  Tensor<float, 2> whole({1, 1});
  matmul(x.ref(), y.ref(), whole.ref());
  CHECK(whole(0, 0) == 257.0f);
}

TEST_CASE("batch strides that cannot be merged, and rows with gaps") {
  // (2, 3, 4, 5) cut out of (2, 4, 4, 8): no single batch stride, NaN in the gaps.
  Tensor<float, 4> big({2, 4, 4, 8}), y({2, 3, 5, 6}), z({2, 3, 4, 6}), dense({2, 3, 4, 5});
  const Ref<float, 4> x = big.ref().block({0, 1, 0, 2}, {2, 3, 4, 5});
  Random r(8);
  for (Index a = 0; a < 2; ++a)
    for (Index b = 0; b < 3; ++b)
      for (Index i = 0; i < 4; ++i)
        for (Index l = 0; l < 5; ++l) x(a, b, i, l) = dense(a, b, i, l) = small_integer<float>(r);
  for (Index i = 0; i < y.size(); ++i) y.data()[i] = small_integer<float>(r);
  matmul(x, y.ref(), z.ref());
  const auto expected = reference::matmul(dense.ref(), y.ref()).value;
  bool equal = true;
  for (Index i = 0; i < z.size(); ++i)
    equal = equal && z.data()[i] == expected[static_cast<std::size_t>(i)];
  CHECK(equal);
}

TEST_CASE("empty products: K = 0 gives zeros, no rows give nothing") {
  Tensor<float, 2> x({3, 0}), y({0, 5}), z({3, 5}), none({0, 5});
  matmul(x.ref(), y.ref(), z.ref());
  for (Index i = 0; i < z.size(); ++i) CHECK(std::bit_cast<std::uint32_t>(z.data()[i]) == 0);
  Tensor<std::int8_t, 2> xi({2, 0}), yi({0, 3});
  Tensor<std::int32_t, 2> zi({2, 3});
  matmul(xi.ref(), yi.ref(), zi.ref());
  CHECK(zi(1, 2) == 0);
  Tensor<float, 2> no_rows({0, 4}), four({4, 5}, 1.0f);
  matmul(no_rows.ref(), four.ref(), none.ref());
}

TEST_CASE("the same bits for threads 1, 2, 3, 8, every SIMD target and five tile sizes") {
  const ThreadsRestored restored;
  const MatmulTile tiles[] = {{}, {8, 8, 8}, {16, 64, 24}, {33, 40, 57}, {128, 128, 128}};
  using Sizes = std::initializer_list<Index>;
  const auto compare = [&](const Array& x, const Array& y, DType type, Sizes shape,
                           MatmulOptions options) {
    set_threads(1);
    const Array expected = product(x, y, type, shape, options);
    for_each_target([&] {
      for (const int threads : {1, 2, 3, 8})
        for (const MatmulTile& tile : tiles) {
          CAPTURE(threads);
          set_threads(threads);
          options.tile = tile;
          CHECK(equal_bytes(product(x, y, type, shape, options), expected));
        }
    });
    return expected;
  };
  const Index m = 37, n = 99, k = 150;
  const Array x = random_array<float>({m, k}, 1, rounding<float>),
              y = random_array<float>({k, n}, 2, rounding<float>);
  const Array whole = compare(x, y, DType::kF32, {m, n}, {});
  const Array one = compare(x, y, DType::kF32, {m, n}, {.precision = Precision::kBF16});
  const Array three = compare(x, y, DType::kF32, {m, n}, {.precision = Precision::kBF16x3});
  const Array six = compare(x, y, DType::kBF16, {m, n}, {.precision = Precision::kBF16x6});
  CHECK_FALSE(equal_bytes(whole, one));  // the modes differ, so the inputs do round
  CHECK_FALSE(equal_bytes(whole, three));
  compare(random_array<float>({150, k}, 3, rounding<float>), y, DType::kF32, {150, n}, {});
  compare(random_array<float>({2, m, k}, 3, rounding<float>),
          random_array<float>({2, k, n}, 4, rounding<float>), DType::kF16, {2, m, n}, {});
  compare(random_array<float>({3, m, k}, 3, rounding<float>), y, DType::kF32, {3, m, n}, {});
  compare(random_array<bf16>({m, k}, 3, rounding<bf16>),
          random_array<bf16>({k, n}, 4, rounding<bf16>), DType::kBF16, {m, n}, {});
  compare(random_array<f16>({m, k}, 3, rounding<f16>), random_array<f16>({n, k}, 4, rounding<f16>),
          DType::kF32, {m, n}, {.trans_y = true});
  compare(random_array<f8_e4m3>({m, k}, 3, rounding<f8_e4m3>),
          random_array<f8_e4m3>({k, n}, 4, rounding<f8_e4m3>), DType::kF32, {m, n}, {});
  compare(random_array<f8_e5m2>({m, k}, 3, rounding<f8_e5m2>),
          random_array<f8_e5m2>({k, n}, 4, rounding<f8_e5m2>), DType::kBF16, {m, n}, {});
  compare(random_array<double>({k, m}, 5, rounding<double>),
          random_array<double>({k, n}, 6, rounding<double>), DType::kF64, {m, n},
          {.trans_x = true});
  compare(random_array<std::int8_t>({m, k}, 7, rounding<std::int8_t>),
          random_array<std::int8_t>({k, n}, 8, rounding<std::int8_t>), DType::kI32, {m, n}, {});
  compare(random_array<std::uint8_t>({150, k}, 7, rounding<std::uint8_t>),
          random_array<std::uint8_t>({k, n}, 8, rounding<std::uint8_t>), DType::kI32, {150, n}, {});
}

// |z - exact| <= (k + 1) u sum |x y| for f32 sums; the products of bf16 and f16 are exact in f32.
template <class T>
double largest_ratio(Index m, Index n, Index k, bool trans_x) {
  const Array x =
      trans_x ? random_array<T>({k, m}, k, rounding<T>) : random_array<T>({m, k}, k, rounding<T>);
  const Array y = random_array<T>({k, n}, k + 1, rounding<T>);
  const Array z = product(x, y, DType::kF32, {m, n}, {.trans_x = trans_x});
  const reference::Sums sums = reference::matmul(x, y, {.trans_x = trans_x});
  double worst = 0;
  for (Index i = 0; i < z.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double bound = static_cast<double>(k + 1) * 0x1p-24 * sums.magnitude[at];
    worst = std::max(worst, std::abs(z.at(i) - sums.value[at]) / bound);
    CHECK(bound < sums.magnitude[at]);  // zeros would not pass
  }
  return worst;
}

// L082 of the collection of cases; its batch that shares y: kernel_cases_test.cc.
TEST_CASE(
    "fractions within the computed bound, at oneDNN's list of shapes that once failed elsewhere") {
  const Index shapes[][3] = {{10, 20, 1},    {1, 256, 2},   {2, 32, 8},    {5, 32, 16},
                             {17, 64, 64},   {31, 96, 72},  {2, 65, 1280}, {8, 256, 2664},
                             {17, 64, 2184}, {1057, 1, 129}};
  for (const auto& shape : shapes)
    for (const bool trans_x : {false, true}) {
      const Index m = shape[0], n = shape[1], k = shape[2];
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      CHECK(largest_ratio<bf16>(m, n, k, trans_x) <= 1);
      CHECK(largest_ratio<float>(m, n, k, trans_x) <= 1);
    }
}

TEST_CASE("the benchmark's cubes, sampled against the definition") {
  for (const bench::MatmulCase& c : {bench::kCubes[0], bench::kCubes[1]}) {
    const Array x = random_array<float>({c.m, c.k}, 1, rounding<float>),
                y = random_array<float>({c.k, c.n}, 2, rounding<float>);
    const Array z = product(x, y, DType::kF32, {c.m, c.n});
    for (Index i = 0; i < c.m; i += 37)
      for (Index j = 0; j < c.n; j += 41) {
        float acc = 0;
        for (Index l = 0; l < c.k; ++l)
          acc = std::fma(x.elements<float>()[static_cast<std::size_t>(i * c.k + l)],
                         y.elements<float>()[static_cast<std::size_t>(l * c.n + j)], acc);
        CHECK(z.elements<float>()[static_cast<std::size_t>(i * c.n + j)] == acc);
      }
  }
}

TEST_CASE("small depth, outer product, products inside a parallel region") {
  Tensor<float, 2> ones({128, 8}, 1.0f), more({8, 128}, 1.0f), z({128, 128});
  matmul(ones.ref(), more.ref(), z.ref());
  for (Index i = 0; i < z.size(); ++i) REQUIRE(z.data()[i] == 8.0f);

  Tensor<float, 2> column({4, 1}, 3.0f), row({1, 4}, 2.0f), outer({4, 4});
  matmul(column.ref(), row.ref(), outer.ref());
  for (Index i = 0; i < outer.size(); ++i) CHECK(outer.data()[i] == 6.0f);

  int wrong = 0;
#pragma omp parallel for num_threads(4) reduction(+ : wrong)
  for (int i = 0; i < 100; ++i) {
    Tensor<float, 2> a({20, 20}, 1.0f), b({20, 20}, 1.0f), c({20, 20});
    matmul(a.ref(), b.ref(), c.ref());
    for (Index e = 0; e < c.size(); ++e) wrong += c.data()[e] == 20.0f ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace kref
