// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparisons and select against plain loops: every width of a row, every way an input
// can broadcast, unaligned views with gaps, every SIMD target.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "dsl/tensor.h"
#include "kernels/tile_ops.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

constexpr Index kRows = 3, kMaxCols = 35;

template <class T>
using WideOf = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
template <class T>
WideOf<T> wide(T v) {
  return static_cast<WideOf<T>>(v);
}

// Equal bits, any NaN equal to any other.
template <class T>
bool same(T a, T b) {
  if (wide(a) != wide(a) && wide(b) != wide(b)) return true;
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Values with all that is special about T, in no regular order.
template <class T>
T value_at(Index i) {
  const auto u = static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(u >> (64 - 8 * sizeof(T)));
  } else {
    switch ((u >> 40) % 12) {
      case 0:
        return T(0.0);
      case 1:
        return T(-0.0);
      case 2:
        return T(std::numeric_limits<double>::infinity());
      case 3:
        return T(-std::numeric_limits<double>::infinity());
      case 4:
        return T(std::numeric_limits<double>::quiet_NaN());
      case 5:
        return T(1e-40);
      default:
        return T(std::ldexp(static_cast<double>(static_cast<std::int32_t>(u >> 32)),
                            static_cast<int>(u % 41) - 51));
    }
  }
}

// A block that starts unaligned, with a gap after each row.
template <class T>
struct Block {
  Tensor<T, 2> all;
  Ref<T, 2> ref;

  Block(Index rows, Index cols, Index seed) : all({rows + 2, cols + 4}) {
    for (Index i = 0; i < all.size(); ++i) all.data()[i] = value_at<T>(i + seed);
    ref = all.ref().block({1, 1}, {rows, cols});
  }
};

// Checks out against `expected`, dense (rows, cols), and that nothing but the block was written.
template <class T>
void check_block(const Block<T>& out, const Block<T>& before, const Tensor<T, 2>& expected) {
  const Index rows = out.ref.extent(0), cols = out.ref.extent(1);
  for (Index r = 0; r < rows + 2; ++r) {
    for (Index c = 0; c < cols + 4; ++c) {
      const bool inside = r >= 1 && r <= rows && c >= 1 && c <= cols;
      const T want = inside ? expected(r - 1, c - 1) : before.all(r, c);
      if (!same(out.all(r, c), want)) {
        CAPTURE(r);
        CAPTURE(c);
        CAPTURE(cols);
        const auto got = static_cast<double>(wide(out.all(r, c)));
        REQUIRE(got == static_cast<double>(wide(want)));
        REQUIRE(std::signbit(got) == std::signbit(static_cast<double>(wide(want))));
        FAIL("other bits");
      }
    }
  }
}

// An input as the verb gets it and as a plain loop reads it.
template <class T>
struct Source {
  detail::AnyInput<T> input;
  Ref<const T, 2> view;

  T operator()(Index r, Index c) const {
    return view(view.extent(0) == 1 ? 0 : r, view.extent(1) == 1 ? 0 : c);
  }
};

template <class T>
using BinaryVerb = void (*)(detail::Input<T>, detail::Input<T>, Ref<T, 2>);
template <class T>
using BinaryPlain = T (*)(T, T);

// The verb on x and y of full shape, in each broadcast form, with a number, and in place.
template <class T>
void check_binary(BinaryVerb<T> verb, BinaryPlain<T> plain) {
  for (Index cols = 0; cols <= kMaxCols; ++cols) {
    const Block<T> x(kRows, cols, 1), y(kRows, cols, 1000), col(kRows, 1, 77), row(1, cols, 2000);
    const Block<T> before(kRows, cols, 5);
    const Tensor<T, 2> number({1, 1}, T(3));
    Tensor<T, 1> flat({cols});
    for (Index c = 0; c < cols; ++c) flat(c) = row.ref(0, c);
    const Source<T> xs{x.ref, x.ref}, ys{y.ref, y.ref}, cs{col.ref, col.ref}, rs{row.ref, row.ref};
    const Source<T> fs{flat, row.ref}, ns{T(3), number};
    const std::pair<const Source<T>*, const Source<T>*> forms[] = {
        {&xs, &ys}, {&xs, &cs}, {&cs, &ys}, {&xs, &rs},
        {&xs, &fs}, {&cs, &rs}, {&xs, &ns}, {&ns, &ns}};
    Tensor<T, 2> expected({kRows, cols});
    for (const auto& [a, b] : forms) {
      for (Index i = 0; i < expected.size(); ++i) {
        expected.data()[i] = plain((*a)(i / cols, i % cols), (*b)(i / cols, i % cols));
      }
      Block<T> out(kRows, cols, 5);
      verb(a->input, b->input, out.ref);
      check_block(out, before, expected);
    }
    for (Index i = 0; i < expected.size(); ++i) {
      expected.data()[i] = plain(before.ref(i / cols, i % cols), y.ref(i / cols, i % cols));
    }
    Block<T> in_place(kRows, cols, 5);
    verb(in_place.ref, y.ref, in_place.ref);
    check_block(in_place, before, expected);
  }
}

template <class T>
T plain_max(T x, T y) {
  const auto a = wide(x), b = wide(y);
  if constexpr (!std::is_integral_v<T>) {
    if (a != a || b != b) return T(std::numeric_limits<double>::quiet_NaN());
    if (a == b) return std::signbit(a) ? y : x;
  }
  return a > b ? x : y;
}
template <class T>
T plain_min(T x, T y) {
  const auto a = wide(x), b = wide(y);
  if constexpr (!std::is_integral_v<T>) {
    if (a != a || b != b) return T(std::numeric_limits<double>::quiet_NaN());
    if (a == b) return std::signbit(a) ? x : y;
  }
  return a < b ? x : y;
}

// The low bits of an exact result; floats as they round.
template <class T, class F>
T computed(T x, T y, F f) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(f(static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(y)));
  } else {
    return T(f(wide(x), wide(y)));
  }
}

TEST_CASE_TEMPLATE("add, sub, mul, maximum, minimum", T, double, float, f16, bf16, std::int64_t,
                   std::int32_t, std::int16_t, std::int8_t, std::uint32_t, std::uint8_t) {
  using In = detail::Input<T>;
  for_each_target([] {
    check_binary<T>([](In x, In y, Ref<T, 2> z) { add(x, y, z); },
                    [](T x, T y) { return computed(x, y, [](auto a, auto b) { return a + b; }); });
    check_binary<T>([](In x, In y, Ref<T, 2> z) { sub(x, y, z); },
                    [](T x, T y) { return computed(x, y, [](auto a, auto b) { return a - b; }); });
    check_binary<T>([](In x, In y, Ref<T, 2> z) { mul(x, y, z); },
                    [](T x, T y) { return computed(x, y, [](auto a, auto b) { return a * b; }); });
    check_binary<T>([](In x, In y, Ref<T, 2> z) { maximum(x, y, z); }, plain_max<T>);
    check_binary<T>([](In x, In y, Ref<T, 2> z) { minimum(x, y, z); }, plain_min<T>);
  });
}

TEST_CASE_TEMPLATE("div", T, double, float, f16, bf16) {
  using In = detail::Input<T>;
  for_each_target([] {
    check_binary<T>([](In x, In y, Ref<T, 2> z) { div(x, y, z); },
                    [](T x, T y) { return computed(x, y, [](auto a, auto b) { return a / b; }); });
  });
}

template <class T>
T plain_neg(T v) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0 - static_cast<std::uint64_t>(v));
  } else {
    return T(-wide(v));
  }
}
template <class T>
T plain_mul_add(T x, T y, T z) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y) +
                          static_cast<std::uint64_t>(z));
  } else {
    return T(std::fma(wide(x), wide(y), wide(z)));
  }
}

TEST_CASE_TEMPLATE("neg, abs, mul_add, select", T, double, float, f16, bf16, std::int64_t,
                   std::int32_t, std::int16_t, std::int8_t, std::uint32_t, std::uint8_t) {
  for_each_target([] {
    for (Index cols = 0; cols <= kMaxCols; ++cols) {
      const Block<T> x(kRows, cols, 1), y(kRows, 1, 1000), z(1, cols, 2000), before(kRows, cols, 5);
      Tensor<bool, 2> mask({kRows, cols});
      for (Index i = 0; i < mask.size(); ++i) mask.data()[i] = (i * 7 % 3) == 0;
      Tensor<T, 2> minus({kRows, cols}), size({kRows, cols}), product({kRows, cols}),
          chosen({kRows, cols});
      for (Index i = 0; i < mask.size(); ++i) {
        const T v = x.ref(i / cols, i % cols);
        minus.data()[i] = plain_neg(v);
        const bool negative =
            std::is_integral_v<T> ? wide(v) < 0 : std::signbit(static_cast<double>(wide(v)));
        size.data()[i] = negative ? plain_neg(v) : v;
        product.data()[i] = plain_mul_add(v, y.ref(i / cols, 0), z.ref(0, i % cols));
        chosen.data()[i] = mask.data()[i] ? v : T(9);
      }
      Block<T> out(kRows, cols, 5);
      neg(x.ref, out.ref);
      check_block(out, before, minus);
      abs(x.ref, out.ref);
      check_block(out, before, size);
      mul_add(x.ref, y.ref, z.ref, out.ref);
      check_block(out, before, product);
      select(mask, x.ref, T(9), out.ref);
      check_block(out, before, chosen);
    }
  });
}

TEST_CASE_TEMPLATE("equal, less, less_equal", T, double, float, f16, bf16, std::int32_t,
                   std::uint8_t) {
  const Block<T> x(kRows, 40, 1), y(kRows, 40, 50);
  Tensor<bool, 2> eq({kRows, 40}), lt({kRows, 40}), le({kRows, 40});
  Block<T> z(kRows, 40, 50);
  for (Index c = 0; c < 40; c += 3) z.ref(0, c) = x.ref(0, c);
  equal(x.ref, z.ref, eq.ref());
  less(x.ref, z.ref, lt.ref());
  less_equal(x.ref, z.ref, le.ref());
  for (Index r = 0; r < kRows; ++r) {
    for (Index c = 0; c < 40; ++c) {
      const auto a = wide(x.ref(r, c)), b = wide(z.ref(r, c));
      CHECK(eq(r, c) == (a == b));
      CHECK(lt(r, c) == (a < b));
      CHECK(le(r, c) == (a <= b));
    }
  }
}

TEST_CASE("arithmetic on bf16 is on values, not on bits") {
  for_each_target([] {
    const Tensor<bf16, 1> x({1}, bf16(2.5));
    Tensor<bf16, 1> out({1});
    add(x, bf16(2.0), out.ref());
    CHECK(static_cast<float>(out(0)) == 4.5f);
    neg(x, out.ref());
    CHECK(static_cast<float>(out(0)) == -2.5f);
    Tensor<bool, 1> smaller({1});
    less(Tensor<bf16, 1>({1}, bf16(-5.0)).ref(), bf16(-2.0), smaller.ref());
    CHECK(smaller(0));
  });
}

TEST_CASE("mul_add rounds once") {
  for_each_target([] {
    const float x = 1 + 0x1p-12f;
    Tensor<float, 1> out({20});
    mul_add(x, x, -1.0f, out.ref());
    for (Index i = 0; i < 20; ++i) CHECK(out(i) == 0x1p-11f + 0x1p-24f);
  });
}

}  // namespace
}  // namespace kref
