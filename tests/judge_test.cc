// SPDX-License-Identifier: Apache-2.0
// The judge's rules, on outputs made by hand. Patterns on real runs: mutants_test.cc.
#include "golden/judge.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace kref {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
Array array(std::vector<Index> shape, const std::vector<double>& values) {
  Array a(dtype_of<T>, shape);
  REQUIRE(a.size() == static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) a.mutable_elements<T>()[i] = T(values[i]);
  return a;
}

// A row of elements, each with the same bound.
Expectation expect(const std::vector<double>& values, double bound) {
  Expectation e;
  e.output += "z";
  e.value = values;
  e.likely.assign(values.size(), bound);
  e.worst.assign(values.size(), 4 * bound);
  return e;
}

// Does the judge accept `actual` where `expected` is due?
template <class T>
bool right(double expected, double actual, double bound,
           std::uint8_t overflow = Expectation::kNoOverflow) {
  Expectation e = expect({expected}, bound);
  e.overflow = {overflow};
  const Verdict v = judge(e, array<T>({1}, {actual}));
  CHECK(v.elements == 1);
  CHECK(v.ok() == !(v.worst.ratio > 1));
  return v.ok();
}

TEST_CASE("an element is wrong when it is off by more than its bound") {
  CHECK(right<float>(1, 1.5, 0.5));
  CHECK_FALSE(right<float>(1, 1.5000001, 0.5));
  CHECK_FALSE(right<float>(1, 0.4999999, 0.5));
  CHECK(right<float>(0.0, -0.0, 0));
  CHECK(right<float>(-0.0, 0.0, 1e-30));
  CHECK_FALSE(right<float>(0, 1e-30, 0));
  CHECK_FALSE(right<double>(1, 1e300, 1e-300));  // the ratio overflows, the verdict does not
  CHECK_FALSE(right<double>(-1.7e308, 1.7e308, 1e300));

  const Expectation e = expect({1, 2, 3}, 0.25);
  CHECK(judge(e, array<float>({3}, {1, 2.5, 3})).wrong == 1);
  CHECK(judge(e, array<float>({3}, {1, 2.5, 3}), BoundKind::kWorst).wrong == 0);
}

TEST_CASE("integers compare exactly") {
  Expectation e;
  e.output += "z";
  e.value = {2147483647.0, -2147483648.0, 7};
  CHECK(judge(e, array<std::int32_t>({3}, {2147483647.0, -2147483648.0, 7})).ok());
  const Verdict v = judge(e, array<std::int32_t>({3}, {2147483646.0, -2147483648.0, 90}));
  CHECK(v.wrong == 2);
  CHECK(v.worst.element == 2);  // both ratios are infinite: the larger distance counts
  CHECK(v.worst.ratio == kInf);
  CHECK(v.worst.bound == 0);
}

TEST_CASE("what is not finite matches its own kind only") {
  CHECK(right<float>(kNan, kNan, 0));
  CHECK(right<float>(kInf, kInf, 0));
  CHECK(right<float>(-kInf, -kInf, 0));
  CHECK_FALSE(right<float>(kInf, -kInf, 0));
  CHECK_FALSE(right<float>(kInf, kNan, 0));
  CHECK_FALSE(right<float>(kNan, kInf, 0));
  CHECK_FALSE(right<float>(kNan, 0, 1e38));
  CHECK_FALSE(right<float>(1, kNan, 1e38));
  CHECK_FALSE(right<float>(1, kInf, 1));
  CHECK_FALSE(right<float>(kInf, 3.4028234e38, 1));
  CHECK_FALSE(right<double>(1, kInf, 1));
  CHECK(right<double>(kInf, kInf, 1));
  CHECK_FALSE(right<f8_e4m3>(1, kNan, 0.1));
  CHECK(right<f8_e4m3>(kInf, kNan, 0));  // no infinity in e4m3fn
  CHECK(right<f8_e5m2>(kInf, kInf, 0));
}

TEST_CASE("overflow of the output's type") {
  // f16: largest 65504, its neighbour would be 65536, half way 65520.
  CHECK(right<f16>(70000, kInf, 32));
  CHECK_FALSE(right<f16>(70000, 65504, 32));
  CHECK_FALSE(right<f16>(70000, -kInf, 32));
  CHECK(right<f16>(65520, kInf, 16));
  CHECK(right<f16>(65520, 65504, 16));
  CHECK_FALSE(right<f16>(65519, kInf, 16));
  CHECK_FALSE(right<f16>(65504, kInf, 16));
  CHECK(right<f16>(65519, kInf, 18));  // the bound straddles the threshold
  CHECK(right<f16>(-65521, -kInf, 16));
  // bf16: largest 2^128 - 2^120, half way to 2^128: 2^128 - 2^119.
  const double half = 0x1p119;
  CHECK(right<bf16>(0x1p128 - half, kInf, half));
  CHECK(right<bf16>(0x1p128 - half, 0x1p128 - 2 * half, half));
  CHECK_FALSE(right<bf16>(0x1p128 - 1.01 * half, kInf, half));
  CHECK_FALSE(right<bf16>(0x1p128, 0x1p128 - 2 * half, half));
  // f32, as wide as its accumulator.
  CHECK(right<float>(0x1p129, kInf, 1));
  CHECK_FALSE(right<float>(0x1p127, kInf, 0x1p100));
  // e4m3fn: largest 448, then NaN.
  CHECK(right<f8_e4m3>(1000, kNan, 32));
  CHECK(right<f8_e4m3>(-464, kNan, 16));
  CHECK(right<f8_e4m3>(464, 448, 16));
  CHECK_FALSE(right<f8_e4m3>(463, kNan, 16));
  CHECK_FALSE(right<f8_e4m3>(1000, 448, 32));  // saturated
  // e5m2: largest 57344, half way 61440.
  CHECK(right<f8_e5m2>(61440, kInf, 4096));
  CHECK_FALSE(right<f8_e5m2>(61000, kInf, 4096));
}

TEST_CASE("overflow of partial sums is allowed where the expectation says so") {
  CHECK(right<float>(1, kInf, 1, Expectation::kPlusInfinity));
  CHECK_FALSE(right<float>(1, -kInf, 1, Expectation::kPlusInfinity));
  CHECK_FALSE(right<float>(1, kNan, 1, Expectation::kPlusInfinity));
  CHECK(right<float>(1, -kInf, 1,
                     Expectation::kMinusInfinity | Expectation::kPlusInfinity | Expectation::kNaN));
  CHECK(right<float>(1, kNan, 1,
                     Expectation::kMinusInfinity | Expectation::kPlusInfinity | Expectation::kNaN));
  CHECK_FALSE(right<float>(
      1, 3, 1, Expectation::kMinusInfinity | Expectation::kPlusInfinity | Expectation::kNaN));
}

TEST_CASE("an empty output is right, a scalar is one tile") {
  Expectation e = expect({}, 1);
  const Verdict v = judge(e, array<float>({3, 0, 5}, {}));
  CHECK(v.ok());
  CHECK(v.elements == 0);
  CHECK(v.worst.element == -1);
  CHECK(report(v) == "z F32[3,0,5]: 0 elements right\n");
  const Verdict scalar = judge(expect({4}, 1), array<float>({}, {8}));
  CHECK(scalar.wrong == 1);
  CHECK(scalar.tiles == 1);
  CHECK(scalar.wrong_tiles == 1);
  CHECK(scalar.worst.tile.empty());
  CHECK_THROWS_WITH_AS(judge(expect({1, 2}, 1), array<float>({1}, {1})),
                       "judge: output z has 1 elements, expected 2", Error);
}

// z [2, 5, 7] in tiles of 1 x 2 x 3, no two elements alike.
struct Sheet {
  Expectation e;
  std::vector<double> z;
  static constexpr Index kRows = 5, kColumns = 7;

  Sheet() {
    for (int i = 0; i < 2 * kRows * kColumns; ++i) z.push_back(100 * std::sin(1.0 + i));
    for (double& v : z) v = static_cast<float>(v);
    e = expect(z, 1e-4);
    e.blocks = {{"b0", "i", "j"}, {1, 2, 3}, "k=0..3"};
    e.owner.device = [](Index i) { return i < kRows * kColumns ? "(X=0)" : "(X=1)"; };
  }
  double& at(Index b, Index i, Index j) {
    return z[static_cast<std::size_t>((b * kRows + i) * kColumns + j)];
  }
  Verdict verdict() const { return judge(e, array<float>({2, kRows, kColumns}, z)); }
};

TEST_CASE("the worst element is traced to its tile, step and device") {
  Sheet s;
  CHECK(s.verdict().ok());
  s.at(1, 4, 6) += 0.25;
  s.at(0, 0, 1) += 0.125;
  const Verdict v = s.verdict();
  CHECK(v.wrong == 2);
  CHECK(v.tiles == 2 * 3 * 3);
  CHECK(v.wrong_tiles == 2);
  CHECK(v.worst.index == std::vector<Index>{1, 4, 6});
  CHECK(v.worst.tile == std::vector<Index>{1, 2, 2});
  CHECK(v.worst.step == "b0=1, i=2, j=2, k=0..3");
  CHECK(v.worst.device == "(X=1)");
  CHECK(v.worst.ratio == doctest::Approx(2500).epsilon(1e-3));
  REQUIRE(v.first_wrong_tiles.size() == 2);
  CHECK(v.first_wrong_tiles[0].tile == std::vector<Index>{0, 0, 0});
  CHECK(v.first_wrong_tiles[0].elements == 6);
  CHECK(v.first_wrong_tiles[1].elements == 1);  // cut at both edges
  CHECK(v.first_wrong_tiles[1].device == "(X=1)");
  CHECK(v.pattern == "unknown");
  const std::string text = report(v);
  CHECK(text.find("2 of 70 elements wrong (2.86 %), in 2 of 18 tiles") != std::string::npos);
  CHECK(text.find("grid step  b0=1, i=2, j=2, k=0..3") != std::string::npos);
  CHECK(text.find("(b0=1, i=2, j=2)  1 of 1 wrong (100 %)  device (X=1)") != std::string::npos);
}

TEST_CASE("patterns on a small sheet") {
  Sheet s;
  const std::vector<double> z = s.z;
  const auto source = [&](Index b, Index i, Index j) {
    return z[static_cast<std::size_t>((b * Sheet::kRows + i) * Sheet::kColumns + j)];
  };
  std::string pattern;
  SUBCASE("tile of zeros") {
    for (Index j = 3; j < 6; ++j) s.at(0, 2, j) = s.at(0, 3, j) = 0;
    pattern = "tile missing: tile (b0=0, i=1, j=1) holds zeros";
  }
  SUBCASE("tile of poison") {
    for (Index j = 3; j < 6; ++j) s.at(0, 2, j) = s.at(0, 3, j) = kNan;
    pattern = "tile missing: tile (b0=0, i=1, j=1) holds poison";
  }
  SUBCASE("tiles swapped") {
    for (Index i = 0; i < 2; ++i) {
      for (Index j = 0; j < 3; ++j) {
        s.at(0, i, j) = source(1, 2 + i, 3 + j);
        s.at(1, 2 + i, 3 + j) = source(0, i, j);
      }
    }
    pattern = "tiles swapped: tiles (b0=0, i=0, j=0) and (b0=1, i=1, j=1)";
  }
  SUBCASE("one row holds the next") {
    for (Index j = 0; j < 7; ++j) s.at(1, 3, j) = source(1, 4, j);
    pattern = "rows shifted: row 3 holds row 4";
  }
  SUBCASE("one row turned") {
    for (Index j = 0; j < 7; ++j) s.at(1, 3, j) = source(1, 3, (j + 6) % 7);
    pattern = "rows shifted: row 3 is shifted by 1 to the right";
  }
  SUBCASE("all rows down by one, round the matrix") {
    for (Index b = 0; b < 2; ++b) {
      for (Index i = 0; i < 5; ++i) {
        for (Index j = 0; j < 7; ++j) s.at(b, i, j) = source(b, (i + 4) % 5, j);
      }
    }
    pattern = "rows shifted: row 0 holds row 4, and so on for 10 rows";
  }
  SUBCASE("written column by column") {
    for (Index p = 0; p < 35; ++p) s.at(1, p / 7, p % 7) = source(1, p % 5, p / 5);
    pattern = "transposed: rows and columns are written in each other's order";
  }
  SUBCASE("scaled") {
    for (double& v : s.z) v = static_cast<float>(0.75 * v);
    pattern = "scaled by c: c = 0.75";
  }
  SUBCASE("one row scaled") {
    for (Index j = 0; j < 7; ++j) s.at(1, 3, j) *= 1.25;
    pattern = "scaled by c: c = 1.25";
  }
  SUBCASE("negated") {
    for (double& v : s.z) v = -v;
    pattern = "sign: every wrong element has the opposite sign";
  }
  SUBCASE("one NaN") {
    s.at(1, 1, 1) = kNan;
    pattern = "non-finite: first at [1, 1, 1]: NaN";
  }
  SUBCASE("one element") {
    s.at(1, 1, 1) += 1;
    pattern = "unknown: one element";
  }
  SUBCASE("noise") {
    for (std::size_t i = 0; i < s.z.size(); ++i) s.z[i] += std::cos(static_cast<double>(i * i));
    pattern = "unknown: in rows 0..4, columns 0..6";
  }
  SUBCASE("zeros that are no tile") {
    s.at(1, 2, 2) = s.at(1, 2, 3) = s.at(1, 3, 2) = s.at(1, 3, 3) = 0;
    pattern = "unknown: zeros, in rows 2..3, columns 2..3";
  }
  SUBCASE("a hypothesis of the operation") {
    s.e.hypotheses.push_back({"last k block dropped",
                              [&](Index i, std::vector<double>& out) {
                                const double v = z[static_cast<std::size_t>(i)];
                                for (int k = 1; k < 4; ++k)
                                  out.push_back(v + std::cos(9.0 * k + v));
                              },
                              [](Index k) { return "k = " + std::to_string(k); },
                              {}});
    for (std::size_t i = 35; i < 70; ++i) s.z[i] = static_cast<float>(z[i] + std::cos(18 + z[i]));
    pattern = "last k block dropped: k = 1";
  }
  const Verdict v = s.verdict();
  CHECK_FALSE(v.ok());
  CHECK(v.pattern + ": " + v.detail == pattern);
}

}  // namespace
}  // namespace kref
