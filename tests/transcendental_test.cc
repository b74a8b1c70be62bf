// SPDX-License-Identifier: Apache-2.0
// exp2, log, tanh: measured against f64, the same bits on every target. The sweeps of all f32 are
// run by name: transcendental_test -ns -tc="*all 2^32*".
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

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  void (*verb)(Ref<const float, 1> x, Ref<float, 1> out);
  double (*truth)(double);
  double bound;  // units in the last place
};

const Function kFunctions[] = {
    {"exp2", [](Ref<const float, 1> x, Ref<float, 1> out) { exp2(x, out); },
     [](double x) { return std::exp2(x); }, 0.79},
    {"log", [](Ref<const float, 1> x, Ref<float, 1> out) { log(x, out); },
     [](double x) { return std::log(x); }, 0.9},
    {"tanh", [](Ref<const float, 1> x, Ref<float, 1> out) { tanh(x, out); },
     [](double x) { return std::tanh(x); }, 1.2},
};

// The error of got in units in the last place of want; a wrong kind of value is infinitely wrong.
double ulps(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInf;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : kInf;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : kInf;
  const int e = std::max(-126, std::ilogb(want));
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, e - 23);
}

// Over every step-th pattern of f32.
void sweep(const Function& f, std::uint64_t step) {
  constexpr Index kChunk = 4096;
  Tensor<float, 1> x({kChunk}), out({kChunk});
  double worst = 0;
  float at = 0;
  for (std::uint64_t b = 0; b < (1ull << 32);) {
    Index n = 0;
    for (; n < kChunk && b < (1ull << 32); b += step)
      x(n++) = std::bit_cast<float>(static_cast<std::uint32_t>(b));
    f.verb(x.ref().block({0}, {n}), out.ref().block({0}, {n}));
    for (Index i = 0; i < n; ++i) {
      const double error = ulps(out(i), f.truth(static_cast<double>(x(i))));
      if (!(error <= worst)) worst = error, at = x(i);
    }
  }
  MESSAGE(f.name, ": largest error ", worst, " units in the last place, at ", at);
  CHECK(worst < f.bound);
  CHECK(worst > 0.45);  // rounding to nearest comes close to half a unit among so many
}

TEST_CASE("sampled error") {
  for (const Function& f : kFunctions) sweep(f, 1999);
}
TEST_CASE("all 2^32 arguments" * doctest::skip()) {
  for (const Function& f : kFunctions) sweep(f, 1);
}

TEST_CASE("values that must be exact") {
  struct Row {
    int function;
    float x, want;
  };
  const Row rows[] = {
      {0, 0.0f, 1},
      {0, -0.0f, 1},
      {0, 10, 1024},
      {0, -126, 0x1p-126f},
      {0, -149, 0x1p-149f},
      {0, -151, 0},
      {0, 127, 0x1p127f},
      {0, 128, kInf},
      {0, kInf, kInf},
      {0, -kInf, 0},
      {0, 3e38f, kInf},
      {0, -3e38f, 0},
      {0, kNaN, kNaN},
      {1, 1, 0},
      {1, 0.0f, -kInf},
      {1, -0.0f, -kInf},
      {1, kInf, kInf},
      {1, -kInf, kNaN},
      {1, -1e-45f, kNaN},
      {1, -1, kNaN},
      {1, kNaN, kNaN},
      {1, 1e-45f, -103.27893f},
      {2, 0.0f, 0.0f},
      {2, -0.0f, -0.0f},
      {2, kInf, 1},
      {2, -kInf, -1},
      {2, 20, 1},
      {2, -20, -1},
      {2, 3e38f, 1},
      {2, 1e-45f, 1e-45f},
      {2, -1e-38f, -1e-38f},
      {2, kNaN, kNaN},
  };
  for_each_target([&] {
    for (const Row& row : rows) {
      Tensor<float, 1> x({21}, row.x), out({21});
      kFunctions[row.function].verb(x, out.ref());
      CAPTURE(kFunctions[row.function].name);
      CAPTURE(row.x);
      for (Index j = 0; j < 21; ++j) {
        if (std::isnan(row.want)) {
          CHECK(std::isnan(out(j)));
        } else {
          CHECK(out(j) == row.want);
          CHECK(std::signbit(out(j)) == std::signbit(row.want));
        }
      }
    }
  });
}

TEST_CASE("tanh is odd, and nowhere beyond 1") {
  constexpr Index n = 20000;
  Tensor<float, 1> x({n}), minus({n}), up({n}), down({n});
  for (Index i = 0; i < n; ++i) x(i) = static_cast<float>(i) * 0x1p-10f, minus(i) = -x(i);
  tanh(x, up.ref());
  tanh(minus, down.ref());
  for (Index i = 0; i < n; ++i) {
    REQUIRE(up(i) == -down(i));
    REQUIRE(up(i) <= 1.0f);
    if (i > 0) REQUIRE(up(i) >= up(i - 1));
  }
}

TEST_CASE("exp2 of f64") {
  constexpr Index n = 60000;
  Tensor<double, 1> x({n}), out({n});
  for (Index i = 0; i < n; ++i) x(i) = -1021.5 + 2045.0 * (static_cast<double>(i) + 0.37) / n;
  exp2(x, out.ref());
  double worst = 0;
  for (Index i = 0; i < n; ++i) {
    const long double want = std::exp2(static_cast<long double>(x(i)));
    const long double unit = std::ldexp(1.0L, std::ilogb(want) - 52);
    worst = std::max(worst, static_cast<double>(std::fabs(out(i) - want) / unit));
  }
  MESSAGE("largest error in f64: ", worst, " units in the last place");
  CHECK(worst < 0.67);
  CHECK(worst > 0.45);
  Tensor<double, 1> ends({4}), at({4});
  const double in[] = {-1074, -1076, 1023, 1024}, want[] = {0x1p-1074, 0, 0x1p1023, INFINITY};
  std::copy(in, in + 4, ends.data());
  exp2(ends, at.ref());
  for (Index i = 0; i < 4; ++i) CHECK(at(i) == want[i]);
}

template <class T>
void check_same_bits() {
  constexpr Index n = 4099;
  Tensor<T, 1> x({n});
  for (Index i = 0; i < n; ++i)
    x(i) = T(std::ldexp(-2.0 + 0.00131 * static_cast<double>(i), static_cast<int>(i % 9)));
  std::vector<T> first;
  for_each_target([&] {
    Tensor<T, 2> out({3, n});
    exp2(x, out.ref().block({0, 0}, {1, n}));
    log(x, out.ref().block({1, 0}, {1, n}));
    tanh(x, out.ref().block({2, 0}, {1, n}));
    for (T* v = out.data(); v < out.data() + out.size(); ++v) {
      if (std::isnan(static_cast<float>(*v))) *v = T(12345.0);  // a NaN is a NaN
    }
    if (first.empty()) first.assign(out.data(), out.data() + out.size());
    REQUIRE(std::memcmp(first.data(), out.data(), sizeof(T) * first.size()) == 0);
    for (Index i = 0; i < n; i += 37) {
      Tensor<T, 1> one({1});
      tanh(x.ref().block({i}, {1}), one.ref());
      REQUIRE(std::memcmp(one.data(), out.data() + 2 * n + i, sizeof(T)) == 0);
    }
  });
}

TEST_CASE("the same bits on every target, in every place of a vector") {
  check_same_bits<float>();
  check_same_bits<f16>();
  check_same_bits<bf16>();
}

}  // namespace
}  // namespace kref
