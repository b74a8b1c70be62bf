// SPDX-License-Identifier: Apache-2.0
// bf16 products where kernels/dot_bf16-inl.h decides between two ways of multiplying: subnormal
// values and sums, exponents on either side of its condition, single small values among others.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/dot.h"
#include "tests/dot_inputs.h"
#include "tests/dot_product.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A value whose exponent is one of `count` from `first` on; -133 is that of the least subnormal.
bf16 of_exponent(Random& r, int first, std::uint32_t count) {
  const float significand = 1.0f + static_cast<float>(r.next() % 128) / 128.0f;
  const int exponent = first + static_cast<int>(r.next() % count);
  return static_cast<bf16>(std::ldexp(r.next() % 2 == 0 ? significand : -significand, exponent));
}

// How many sums differ, in any bit but those of a NaN.
int differing(const std::vector<float>& a, const std::vector<float>& b) {
  int count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
    count += both_nan || std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])
                 ? 0
                 : 1;
  }
  return count;
}

// dot and dot_add against their chains.
int wrong_sums(const Product<bf16>& p) {
  Product<bf16> added = p, from_zero = p;
  added.run(), from_zero.run_from_zero();
  return differing(added.acc, Product<bf16>(p).expected(false)) +
         differing(from_zero.acc, Product<bf16>(p).expected(true));
}

constexpr DotOptions kForms[] = {{false, false}, {false, true}, {true, false}, {true, true}};

// All four ways to store the operands, and shapes on both sides of every choice: streamed or not,
// packed in passing or not, whole vectors or an edge, k odd or even, one panel depth or more.
template <class Make>
int wrong_in_all_shapes(const Make& make) {
  int wrong = 0;
  for (const DotOptions& form : kForms)
    for (const Index m : {1, 3, 8, 9, 12, 27})
      for (const Index n : {7, 32, 33, 64})
        for (const Index k : {1, 2, 33, 66}) wrong += wrong_sums(make(m, n, k, form));
  for (const DotOptions& form : kForms)
    for (const Index m : {2, 13}) wrong += wrong_sums(make(m, 67, 1030, form));
  return wrong;
}

TEST_CASE("bf16 sums at the edge of subnormal numbers, on either side, on every target") {
  for_each_target([] {
    // The least product counts 2^(ex + ey - 14) in its last place.
    for (const int sum : {-140, -126, -114, -113, -112, -111, -100}) {
      const int ex = sum % 2 == 0 ? -60 : -20;
      CAPTURE(sum);
      CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
              Product<bf16> p(m, n, k, form, [](Random& r) { return of_exponent(r, -133, 30); });
              Random r(sum + m);
              p.each_x([&](bf16& v) { v = of_exponent(r, ex, 2); });
              p.each_y([&](bf16& v) { v = of_exponent(r, sum - ex, 2); });
              return p;
            }) == 0);
    }
  });
}

TEST_CASE("bf16 sums that cancel to the last unit keep it, normal or subnormal") {
  for_each_target([] {
    for (const Index m : {1, 9})
      for (int exponent = -108; exponent >= -118; --exponent) {
        CAPTURE(exponent);
        // 150^2 - 149 * 151 = 1, in units of 2^-14 times the exponents.
        const auto value = [](int units, int e) {
          return static_cast<bf16>(std::ldexp(static_cast<float>(units), e - 7));
        };
        Tensor<bf16, 2> x({m, 2}), y({2, 32});
        for (Index i = 0; i < m; ++i) x(i, 0) = value(150, -50), x(i, 1) = value(149, -50);
        for (Index j = 0; j < 32; ++j) {
          y(0, j) = value(150, exponent + 50);
          y(1, j) = value(-151, exponent + 50);
        }
        Tensor<float, 2> acc({m, 32}, 0.0f);
        dot_add<bf16>(x.ref(), y.ref(), acc.ref());
        for (const Index i : {Index{0}, acc.size() - 1})
          CHECK(acc.data()[i] == std::ldexp(1.0f, exponent - 14));

        // The same of a sum that was there: 1 + 2^-23 - 1.
        for (Index i = 0; i < m; ++i) x(i, 0) = value(128, -50), x(i, 1) = bf16(0);
        for (Index j = 0; j < 32; ++j) y(0, j) = value(-128, exponent + 58), y(1, j) = bf16(0);
        acc.fill(std::ldexp(1.0f + 0x1p-23f, exponent + 8));
        dot_add<bf16>(x.ref(), y.ref(), acc.ref());
        for (const Index i : {Index{0}, acc.size() - 1})
          CHECK(acc.data()[i] == std::ldexp(1.0f, exponent - 15));
      }
  });
}

TEST_CASE("bf16 sums with subnormal operands") {
  for_each_target([] {
    for (const int y : {-20, 100}) {
      CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
              Product<bf16> p(m, n, k, form, [&](Random& r) { return of_exponent(r, y, 20); });
              Random r(m);
              p.each_x([&](bf16& v) { v = of_exponent(r, -133, 8); });
              return p;
            }) == 0);
      CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
              Product<bf16> p(m, n, k, form, [&](Random& r) { return of_exponent(r, y, 20); });
              Random r(m);
              p.each_y([&](bf16& v) { v = of_exponent(r, -133, 8); });
              return p;
            }) == 0);
    }
  });
}

TEST_CASE("a few small values among others, zeros, and sums that cancel") {
  for_each_target([] {
    const auto seldom = [](Random& r) {
      const std::uint32_t what = r.next() % 600;
      if (what == 0) return of_exponent(r, -133, 8);
      if (what == 1) return of_exponent(r, -115, 10);
      if (what < 20) return static_cast<bf16>(what % 2 == 0 ? 0.0f : -0.0f);
      return of_exponent(r, 0, 1);  // of one size: sums come near zero, and to it
    };
    CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
            return Product<bf16>(m, n, k, form, seldom);
          }) == 0);
  });
}

TEST_CASE("sums that are there already may be small, subnormal or -0") {
  for_each_target([] {
    for (const int first : {-149, -130, -105}) {
      CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
              Product<bf16> p(m, n, k, form, [](Random& r) { return of_exponent(r, -62, 20); });
              Random r(m + n);
              // Half of the columns of y are zero: their sums stay as they are.
              p.each_y([&](bf16& v) { v = r.next() % 2 == 0 ? bf16(-0.0f) : v; });
              for (Index i = 0; i < m; ++i)
                for (Index j = 0; j < n; ++j) {
                  const float v = static_cast<float>(1 + r.next() % 0xFFFFFF) / 0x1000000;
                  p.at(p.acc, i, j, p.acc_row, 0) =
                      r.next() % 3 == 0 ? -0.0f : std::ldexp(v, first);
                }
              return p;
            }) == 0);
    }
    // All terms are -0, as is the sum; also where k is odd and something has to be added.
    for (const Index k : {1, 2, 3, 34, 35})
      for (const Index m : {1, 9}) {
        Tensor<bf16, 2> x({m, k}, bf16(-0.0f)), y({k, 40}, bf16(2));
        Tensor<float, 2> acc({m, 40}, -0.0f);
        dot_add<bf16>(x.ref(), y.ref(), acc.ref());
        bool kept = true;
        for (Index i = 0; i < acc.size(); ++i)
          kept = kept && acc.data()[i] == 0 && std::signbit(acc.data()[i]);
        CHECK(kept);
      }
  });
}

TEST_CASE("bf16 products overflow, and NaN and infinity reach their elements and no other") {
  for_each_target([] {
    CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
            return Product<bf16>(m, n, k, form, [](Random& r) { return of_exponent(r, 55, 12); });
          }) == 0);
    CHECK(wrong_in_all_shapes([&](Index m, Index n, Index k, const DotOptions& form) {
            Product<bf16> p(m, n, k, form, [](Random& r) { return of_exponent(r, 0, 4); });
            p.at(p.x, 0, 0, p.x_row, 1) = bf16(kInf);
            p.at(p.x, form.trans_x ? k - 1 : m - 1, form.trans_x ? m - 1 : k - 1, p.x_row, 1) =
                bf16(std::numeric_limits<float>::quiet_NaN());
            p.at(p.y, 0, 0, p.y_row, 1) = bf16(-kInf);
            return p;
          }) == 0);
  });
}

TEST_CASE("bf16 sums are the same however k is cut") {
  for_each_target([] {
    for (const DotOptions& form : kForms)
      for (const Index m : {4, 12}) {
        // Of either kind from piece to piece.
        Product<bf16> p(m, 50, 40, form, [](Random& r) {
          return of_exponent(r, r.next() % 40 == 0 ? -110 : -8, 16);
        });
        const auto expected = p.expected(false);
        for (Index cut = 1; cut < p.k; cut += 3) {
          Product<bf16> q = p;
          for (const auto& [from, to] : {std::pair(Index{0}, cut), std::pair(cut, p.k)})
            dot_add<bf16>(
                q.x_ref().block(form.trans_x ? Shape<2>{from, 0} : Shape<2>{0, from},
                                form.trans_x ? Shape<2>{to - from, m} : Shape<2>{m, to - from}),
                q.y_ref().block(form.trans_y ? Shape<2>{0, from} : Shape<2>{from, 0},
                                form.trans_y ? Shape<2>{p.n, to - from} : Shape<2>{to - from, p.n}),
                q.acc_ref(), form);
          CHECK(differing(q.acc, expected) == 0);
        }
      }
  });
}

}  // namespace
}  // namespace kref
