// SPDX-License-Identifier: Apache-2.0
// The definitions against numbers worked out by hand.
#include "kernels/reference.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "dsl/tensor.h"

namespace kref::reference {
namespace {

template <class T, std::size_t R>
Tensor<T, R> tensor(const Shape<R>& shape, std::initializer_list<double> values) {
  Tensor<T, R> t(shape);
  Index i = 0;
  for (const double v : values) t.data()[i++] = static_cast<T>(v);
  CHECK(i == t.size());
  return t;
}

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST_CASE("matmul: values and magnitudes") {
  const auto x = tensor<float, 2>({2, 3}, {1, -2, 3, 4, 5, -6});
  const auto y = tensor<float, 2>({3, 2}, {1, 2, 3, 4, -5, 6});
  const Sums z = matmul(x.ref(), y.ref());
  CHECK(z.value == Values{-20, 12, 49, -8});
  CHECK(z.magnitude == Values{22, 28, 49, 64});
  const auto empty = matmul(tensor<float, 2>({2, 0}, {}).ref(), tensor<float, 2>({0, 1}, {}).ref());
  CHECK(empty.value == Values{0, 0});
  CHECK(empty.magnitude == Values{0, 0});
}

TEST_CASE("matmul: stored transposed, batches, shared y, strided views") {
  const Values expected = {-20, 12, 49, -8};
  const auto x = tensor<bf16, 2>({2, 3}, {1, -2, 3, 4, 5, -6});
  const auto y = tensor<bf16, 2>({3, 2}, {1, 2, 3, 4, -5, 6});
  const auto xt = tensor<bf16, 2>({3, 2}, {1, 4, -2, 5, 3, -6});
  const auto yt = tensor<bf16, 2>({2, 3}, {1, 3, -5, 2, 4, 6});
  CHECK(matmul(xt.ref(), y.ref(), {.trans_x = true}).value == expected);
  CHECK(matmul(x.ref(), yt.ref(), {.trans_y = true}).value == expected);
  CHECK(matmul(xt.ref(), yt.ref(), {.trans_x = true, .trans_y = true}).value == expected);

  const auto xb = tensor<bf16, 3>({2, 1, 3}, {1, -2, 3, 4, 5, -6});
  CHECK(matmul(xb.ref(), y.ref()).value == expected);
  const auto yb = tensor<bf16, 3>({2, 3, 1}, {1, 2, 3, 10, 20, 30});
  CHECK(matmul(xb.ref(), yb.ref()).value == Values{6, -40});

  const auto wide = tensor<bf16, 2>({2, 4}, {1, -2, 3, 99, 4, 5, -6, 99});
  CHECK(matmul(wide.ref().block({0, 0}, {2, 3}), y.ref()).value == expected);
}

TEST_CASE("matmul: parts of bf16") {
  // hi, mid, lo of 1 + 2^-9 + 2^-18: 1, 2^-9, 2^-18 (each fits, nothing rounds up).
  const double v = 1 + 0x1p-9 + 0x1p-18;
  const auto x = tensor<float, 2>({1, 1}, {v});
  const auto y = tensor<float, 2>({1, 1}, {-v});
  const auto value = [&](Parts parts) {
    return matmul(x.ref(), y.ref(), {.parts = parts}).value[0];
  };
  CHECK(value(Parts::kAll) == -v * v);
  CHECK(value(Parts::kBF16) == -1);
  CHECK(value(Parts::kBF16x3) == -(1 + 2 * 0x1p-9));
  CHECK(value(Parts::kBF16x6) == -(1 + 2 * 0x1p-9 + 0x1p-18 + 2 * 0x1p-18));
  CHECK(matmul(x.ref(), y.ref(), {.parts = Parts::kBF16x3}).magnitude[0] == 1 + 2 * 0x1p-9);
  // The parts differ in sign: 1 + 3 * 2^-9 rounds up to 1 + 2^-7 and leaves -2^-9.
  const auto u = tensor<float, 2>({1, 1}, {1 + 3 * 0x1p-9});
  const auto one = tensor<float, 2>({1, 1}, {1});
  CHECK(matmul(u.ref(), one.ref(), {.parts = Parts::kBF16}).value[0] == 1 + 0x1p-7);
  CHECK(matmul(u.ref(), one.ref(), {.parts = Parts::kBF16x3}).value[0] == 1 + 3 * 0x1p-9);
  CHECK(matmul(u.ref(), one.ref(), {.parts = Parts::kBF16x3}).magnitude[0] == 1 + 5 * 0x1p-9);
}

TEST_CASE("matmul: integers wrap, infinities follow IEEE") {
  const auto x = tensor<std::int8_t, 2>({1, 2}, {-128, 127});
  const auto y = tensor<std::int8_t, 2>({2, 1}, {-128, 127});
  CHECK(matmul_int(x.ref(), y.ref()) == std::vector<std::int32_t>{128 * 128 + 127 * 127});
  const Index k = 33026;  // 255 * 255 * 33026 = 2^31 + 32002 : past the largest, becomes negative
  const Tensor<std::uint8_t, 2> ones({1, k}, 255);
  CHECK(matmul_int(ones.ref(), ones.ref(), {.trans_y = true}) ==
        std::vector<std::int32_t>{static_cast<std::int32_t>(255LL * 255 * k - (1LL << 32))});
  const auto a = tensor<float, 2>({1, 2}, {kInf, 1});
  CHECK(matmul(a.ref(), tensor<float, 2>({2, 1}, {2, -3}).ref()).value[0] == kInf);
  CHECK(std::isnan(matmul(a.ref(), tensor<float, 2>({2, 1}, {0, 1}).ref()).value[0]));
  // Past the range of f32: finite here, rounding it is the caller's business.
  const auto big = tensor<float, 2>({1, 1}, {0x1p100});
  CHECK(matmul(big.ref(), big.ref()).value[0] == 0x1p200);
}

TEST_CASE("matmul: what does not fit is refused") {
  const auto x = tensor<float, 2>({1, 2}, {1, 2});
  const auto i = tensor<std::int8_t, 2>({1, 1}, {1});
  CHECK_THROWS_WITH_AS(
      matmul(x.ref(), x.ref()),
      "reference::matmul: x is F32[1,2], y is F32[1,2]: x contracts 2 elements, y 1", Error);
  CHECK_THROWS_AS(matmul(i.ref(), i.ref()), Error);
  CHECK_THROWS_AS(matmul_int(x.ref(), x.ref()), Error);
  const auto h = tensor<bf16, 2>({1, 1}, {1});
  CHECK_THROWS_AS(matmul(h.ref(), h.ref(), {.parts = Parts::kBF16x3}), Error);
  CHECK_THROWS_AS(matmul(h.ref(), tensor<float, 2>({1, 1}, {1}).ref()), Error);
}

TEST_CASE("rows: sums, extremes, softmax") {
  const auto x = tensor<float, 2>({2, 3}, {1, -2, 4, -1, -8, -2});
  CHECK(row_sum(x.ref()).value == Values{3, -11});
  CHECK(row_sum(x.ref()).magnitude == Values{7, 11});
  CHECK(row_max(x.ref()) == Values{4, -1});
  CHECK(row_min(x.ref()) == Values{-2, -8});
  CHECK(row_sum(tensor<float, 2>({2, 0}, {}).ref()).value == Values{0, 0});
  CHECK_THROWS_AS(row_max(tensor<float, 2>({2, 0}, {}).ref()), Error);
  CHECK(std::isnan(row_max(tensor<float, 1>({3}, {1, NAN, 2}).ref())[0]));
  CHECK_FALSE(std::signbit(row_max(tensor<float, 1>({2}, {-0.0, 0.0}).ref())[0]));
  CHECK(std::signbit(row_min(tensor<float, 1>({2}, {0.0, -0.0}).ref())[0]));

  CHECK(exp(tensor<float, 1>({3}, {0, -kInf, 1}).ref()) == Values{1, 0, std::exp(1.0)});
  const Values p = softmax(tensor<double, 2>({2, 2}, {0, std::log(3.0), 1000, -kInf}).ref());
  CHECK(p[0] == doctest::Approx(0.25).epsilon(1e-15));
  CHECK(p[1] == doctest::Approx(0.75).epsilon(1e-15));
  CHECK(p[2] == 1);
  CHECK(p[3] == 0);
}

TEST_CASE("cast") {
  const auto x = tensor<double, 1>({6}, {-1.75, 300, NAN, kInf, 0.1, 1e9});
  CHECK(cast(x.ref(), DType::kU8) == Values{0, 255, 0, 255, 0, 255});
  CHECK(cast(x.ref(), DType::kI8) == Values{-1, 127, 0, 127, 0, 127});
  CHECK(cast(x.ref(), DType::kBool) == Values{1, 1, 1, 1, 1, 1});
  CHECK(cast(x.ref(), DType::kF32)[4] == static_cast<double>(0.1f));
  CHECK(cast(x.ref(), DType::kBF16)[4] == 0.10009765625);
  CHECK(std::isnan(cast(x.ref(), DType::kF8E4M3)[5]));
  CHECK(cast(x.ref(), DType::kF8E4M3, true)[5] == 448);
  CHECK(cast(x.ref(), DType::kF8E5M2)[5] == kInf);
  const auto i = tensor<std::int32_t, 1>({2}, {-1, 300});
  CHECK(cast(i.ref(), DType::kU8) == Values{255, 44});
  // 2^62 + 2^54 is a tie of bf16 and stays down; one more goes up. A double does not tell them
  // apart.
  Tensor<std::int64_t, 1> big({2});
  big(0) = (1LL << 62) + (1LL << 54), big(1) = big(0) + 1;
  CHECK(cast(big.ref(), DType::kBF16) == Values{0x1p62, 0x1p62 + 0x1p55});
}

}  // namespace
}  // namespace kref::reference
