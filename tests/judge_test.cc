// SPDX-License-Identifier: Apache-2.0
// The judge's rules, on outputs made by hand. Patterns: judge_patterns_test.cc.
#include "golden/judge.h"

#include <doctest/doctest.h>

#include "tests/sheet.h"

namespace kref {
namespace {

// Does the judge accept `actual` where `expected` is due?
template <class T>
bool right(double expected, double actual, double bound,
           std::uint8_t overflow = Expectation::kNoOverflow) {
  Expectation e = expect({expected}, bound);
  e.overflow = {overflow};
  const Verdict v = judge(e, array<T>({1}, {actual}));
  CHECK(v.elements == 1);
  CHECK(v.ok() == (v.worst.ratio <= 1));
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

TEST_CASE("a bound that is no finite number bounds nothing") {
  for (const double bound : {kInf, kNan, -1.0, 0.0}) {
    CAPTURE(bound);
    CHECK(right<float>(1, 1, bound));
    CHECK_FALSE(right<float>(1, 1.0000001, bound));
    CHECK_FALSE(right<float>(1, 0, bound));
    CHECK_FALSE(right<double>(-1.7e308, 1.7e308, bound));
    CHECK_FALSE(right<float>(1, kInf, bound));
    CHECK_FALSE(right<float>(1, kNan, bound));
    CHECK_FALSE(right<f8_e4m3>(1, kNan, bound));
  }
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
  CHECK(v.worst.step == "b=1, i=2, j=2, k=0..3");
  CHECK(v.worst.device == "(X=1)");
  CHECK(v.worst.ratio == doctest::Approx(2500).epsilon(1e-3));
  REQUIRE(v.first_wrong_tiles.size() == 2);
  CHECK(v.first_wrong_tiles[0].tile == std::vector<Index>{0, 0, 0});
  CHECK(v.first_wrong_tiles[0].elements == 6);
  CHECK(v.first_wrong_tiles[1].elements == 1);  // cut at both edges
  CHECK(v.first_wrong_tiles[1].device == "(X=1)");
  CHECK(v.pattern == "unknown");
  const std::string text = report(v);
  CHECK(v.worst.bound == 1e-4);
  CHECK(v.worst.likely_bound == 1e-4);
  CHECK(v.worst.worst_bound == 4e-4);
  CHECK(text.find("bound      0.0001; the error is 2500 bounds") != std::string::npos);
  CHECK(text.find("worst case 0.0004") != std::string::npos);
  CHECK(text.find("2 of 70 elements wrong (2.86 %), in 2 of 18 tiles") != std::string::npos);
  CHECK(text.find("grid step  b=1, i=2, j=2, k=0..3") != std::string::npos);
  CHECK(text.find("(b=1, i=2, j=2)  1 of 1 wrong (100 %)  device (X=1)") != std::string::npos);
}

TEST_CASE("blocks of one device's grid: its own indices, cut at the edge of its part") {
  // z [2, 3, 6, 10] on X=2 (rows) and Y=2 (columns): parts of 3 x 5 in tiles of 2 x 4, and a
  // leading dimension that the devices of Z share out.
  Expectation e;
  e.output += "z";
  for (int i = 0; i < 2 * 3 * 6 * 10; ++i) e.value.push_back(10 * std::sin(1.0 + i));
  for (double& v : e.value) v = static_cast<float>(v);
  e.likely.assign(e.value.size(), 1e-4), e.worst = e.likely;
  e.blocks = {.axes = {"", "b", "i", "j"},
              .extents = {1, 1, 2, 4},
              .shards = {1, 3, 3, 5},
              .steps = "k=0..1"};
  e.owner.device = [](Index i) {
    return "(X=" + std::to_string(i / 10 % 6 / 3) + ", Y=" + std::to_string(i % 10 / 5) +
           ", Z=" + std::to_string(i / 180) + ")";
  };
  std::vector<double> z = e.value;
  const auto at = [&](Index u, Index b, Index i, Index j) -> double& {
    return z[static_cast<std::size_t>(((u * 3 + b) * 6 + i) * 10 + j)];
  };
  at(1, 2, 5, 9) += 1;  // the part's last element: a tile of one
  const auto verdict = [&] { return judge(e, array<float>({2, 3, 6, 10}, z)); };
  Verdict v = verdict();
  CHECK(v.tiles == 2 * 3 * 4 * 4);
  CHECK(v.tile_axes == std::vector<std::string>{"b", "i", "j"});
  CHECK(v.worst.tile == std::vector<Index>{2, 1, 1});
  CHECK(v.worst.step == "b=2, i=1, j=1, k=0..1");
  CHECK(v.worst.device == "(X=1, Y=1, Z=1)");
  REQUIRE(v.first_wrong_tiles.size() == 1);
  CHECK(v.first_wrong_tiles[0].elements == 1);
  z = e.value;
  for (Index i = 3; i < 5; ++i) {
    for (Index j = 0; j < 4; ++j) at(0, 1, i, j) = 0;
  }
  v = verdict();
  CHECK(v.wrong_tiles == 1);
  CHECK(v.first_wrong_tiles[0].elements == 8);
  CHECK(v.first_wrong_tiles[0].tile == std::vector<Index>{1, 0, 0});
  CHECK(v.first_wrong_tiles[0].device == "(X=1, Y=0, Z=0)");
  CHECK(v.pattern == "tile missing");
  CHECK(v.detail == "tile (b=1, i=0, j=0) of (X=1, Y=0, Z=0) holds zeros");
}

TEST_CASE("dimensions of one axis are one index") {
  Expectation e = expect(std::vector<double>(24, 1), 0.5);
  e.blocks = {.axes = {"b", "b", "i"}, .extents = {1, 1, 2}, .steps = ""};
  std::vector<double> z(24, 1);
  z[23] = 3;
  const Verdict v = judge(e, array<float>({2, 3, 4}, z));
  CHECK(v.worst.tile == std::vector<Index>{5, 1});
  CHECK(v.worst.step == "b=5, i=1");
  CHECK(v.tile_axes == std::vector<std::string>{"b", "i"});
}

}  // namespace
}  // namespace kref
