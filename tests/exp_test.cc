// SPDX-License-Identifier: Apache-2.0
// exp: measured against f64 (f32) and extended precision (f64), the same bits on every target. The
// sweep of all f32 is run by name: exp_test -ns -tc="*all 2^32*".
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "dsl/tensor.h"
#include "kernels/tile_ops.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

// Largest error in units in the last place of the result, kept apart for normal and subnormal
// results: those round a second time when they are scaled.
struct Errors {
  double normal = 0, subnormal = 0;
};

// kMantissa, kMinExponent: of T. Wide: precise enough to stand for the true value.
template <int kMantissa, int kMinExponent, class T, class Wide>
void note(Errors& errors, T got, Wide want) {
  const T rounded = static_cast<T>(want);
  if (std::isnan(want) || std::isinf(rounded) || std::isinf(got)) {
    CHECK(std::isnan(got) == std::isnan(want));
    if (!std::isnan(want)) CHECK(got == rounded);
    return;
  }
  const bool subnormal = want < std::ldexp(Wide{1}, kMinExponent);
  const int e = subnormal ? kMinExponent : std::ilogb(want);
  const auto error = static_cast<double>(std::abs(static_cast<Wide>(got) - want) /
                                         std::ldexp(Wide{1}, e - kMantissa));
  double& worst = subnormal ? errors.subnormal : errors.normal;
  worst = std::max(worst, error);
}

// Over every step-th pattern of f32.
Errors f32_errors(std::uint64_t step) {
  constexpr Index kChunk = 4096;
  Tensor<float, 1> x({kChunk}), out({kChunk});
  Errors errors;
  for (std::uint64_t b = 0; b < (1ull << 32);) {
    Index n = 0;
    for (; n < kChunk && b < (1ull << 32); b += step)
      x(n++) = std::bit_cast<float>(static_cast<std::uint32_t>(b));
    exp(x.ref().block({0}, {n}), out.ref().block({0}, {n}));
    for (Index i = 0; i < n; ++i)
      note<23, -126>(errors, out(i), std::exp(static_cast<double>(x(i))));
  }
  return errors;
}

void check_f32(const Errors& e) {
  MESSAGE("largest error in f32: ", e.normal, " units in the last place, subnormal results ",
          e.subnormal);
  CHECK(e.normal < 0.66);
  CHECK(e.subnormal < 0.78);
  CHECK(e.normal > 0.45);  // rounding to nearest comes close to half a unit among so many
}

TEST_CASE("f32: sampled error") { check_f32(f32_errors(1999)); }
TEST_CASE("f32: all 2^32 arguments" * doctest::skip()) { check_f32(f32_errors(1)); }

TEST_CASE("f64: sampled error") {
  constexpr Index n = 200000;
  Tensor<double, 1> x({n}), out({n});
  for (Index i = 0; i < n; ++i) {
    x(i) = -746.0 + (746.0 + 710.0) * (static_cast<double>(i) + 0.37) / n;
    if (i % 3 == 0)
      x(i) = std::ldexp(static_cast<double>(i) / n - 0.5, static_cast<int>(i % 50) - 45);
  }
  exp(x, out.ref());
  Errors e;
  for (Index i = 0; i < n; ++i)
    note<52, -1022>(e, out(i), std::exp(static_cast<long double>(x(i))));
  MESSAGE("largest error in f64: ", e.normal, " units in the last place, subnormal results ",
          e.subnormal);
  CHECK(e.normal < 0.67);
  CHECK(e.subnormal < 0.78);
  CHECK(e.normal > 0.45);
}

TEST_CASE("values that must be exact") {
  for_each_target([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float in[] = {0.0f,        -0.0f,       INFINITY, -INFINITY, 88.72283f, 88.72284f,
                        -103.97207f, -103.97209f, 1e38f,    -1e38f,    nan};
    const float want[] = {1, 1,        INFINITY, 0,  3.4027985e38f, INFINITY, 0x1p-149f,
                          0, INFINITY, 0,        nan};
    for (std::size_t i = 0; i < std::size(in); ++i) {
      Tensor<float, 1> out({21});
      exp(in[i], out.ref());
      for (Index j = 0; j < 21; ++j) {
        CAPTURE(in[i]);
        if (std::isnan(want[i]))
          CHECK(std::isnan(out(j)));
        else
          CHECK(out(j) == want[i]);
      }
    }
    Tensor<double, 1> out({5});
    const double all[] = {0.0, 709.782712893384, 709.7827128933841, -745.1332191019411,
                          -745.1332191019412};
    const double wide[] = {1.0, 0, INFINITY, 0x1p-1074, 0};
    for (std::size_t i = 0; i < std::size(all); ++i) {
      exp(all[i], out.ref());
      if (i == 1) CHECK(out(4) > 1.79e308);
      if (i == 1) CHECK(out(4) < INFINITY);
      if (i != 1) CHECK(out(4) == wide[i]);
    }
  });
}

TEST_CASE_TEMPLATE("the same bits on every target, in every place of a vector", T, float, double,
                   f16, bf16) {
  constexpr Index n = 4099;
  Tensor<T, 1> x({n});
  for (Index i = 0; i < n; ++i) x(i) = T(-120.0 + 0.053 * static_cast<double>(i));
  std::vector<T> first;
  for_each_target([&] {
    Tensor<T, 1> out({n});
    exp(x, out.ref());
    if (first.empty()) first.assign(out.data(), out.data() + n);
    REQUIRE(std::memcmp(first.data(), out.data(), sizeof(T) * n) == 0);
    for (Index i = 0; i < n; i += 37) {
      Tensor<T, 1> one({1});
      exp(x.ref().block({i}, {1}), one.ref());
      REQUIRE(std::memcmp(one.data(), out.data() + i, sizeof(T)) == 0);
    }
  });
  for (Index i = 1; i < n; ++i)
    REQUIRE(static_cast<double>(first[static_cast<std::size_t>(i)]) >=
            static_cast<double>(first[static_cast<std::size_t>(i - 1)]));
}

}  // namespace
}  // namespace kref
