// SPDX-License-Identifier: Apache-2.0
// Guesses at patterns, on outputs made by hand. On real runs: mutants_test.cc.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/sheet.h"

namespace kref {
namespace {

TEST_CASE("patterns on a small sheet") {
  Sheet s;
  const std::vector<double> z = s.z;
  const auto source = [&](Index b, Index i, Index j) {
    return z[static_cast<std::size_t>((b * Sheet::kRows + i) * Sheet::kColumns + j)];
  };
  std::string pattern;
  SUBCASE("tile of zeros") {
    for (Index j = 3; j < 6; ++j) s.at(0, 2, j) = s.at(0, 3, j) = 0;
    pattern = "tile missing: tile (b=0, i=1, j=1) of (X=0) holds zeros";
  }
  SUBCASE("tile of poison") {
    for (Index j = 3; j < 6; ++j) s.at(0, 2, j) = s.at(0, 3, j) = kNan;
    pattern = "tile missing: tile (b=0, i=1, j=1) of (X=0) holds poison";
  }
  SUBCASE("tiles swapped") {
    for (Index i = 0; i < 2; ++i) {
      for (Index j = 0; j < 3; ++j) {
        s.at(0, i, j) = source(1, 2 + i, 3 + j);
        s.at(1, 2 + i, 3 + j) = source(0, i, j);
      }
    }
    pattern = "tiles swapped: tiles (b=0, i=0, j=0) of (X=0) and (b=1, i=1, j=1) of (X=1)";
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

TEST_CASE("zeros in tiles of one element are no evidence of a missing tile") {
  Sheet s;
  s.e.blocks.extents = {1, 1, 1};
  SUBCASE("three zeros") {
    s.at(0, 0, 0) = s.at(0, 3, 2) = s.at(1, 1, 5) = 0;
    const Verdict v = s.verdict();
    CHECK(v.wrong == 3);
    CHECK(v.pattern == "unknown");
  }
  SUBCASE("three NaN") {
    s.at(0, 0, 0) = s.at(0, 3, 2) = s.at(1, 1, 5) = kNan;
    CHECK(s.verdict().pattern == "unknown");
  }
  SUBCASE("nothing but zeros") {
    std::fill(s.z.begin(), s.z.end(), 0.0);
    CHECK(s.verdict().pattern == "tile missing");
  }
}

TEST_CASE("a hypothesis has to explain every element, not those that were looked at first") {
  for (const bool at_once : {false, true}) {
    for (const bool spoilt : {false, true}) {
      constexpr int kElements = 5000;
      std::vector<double> values, wrong;
      for (int i = 0; i < kElements; ++i) {
        values.push_back(static_cast<float>(100 * std::sin(1.0 + i)));
        wrong.push_back(static_cast<float>(values.back() + std::cos(1.7 * i * i)));
      }
      const std::vector<double> fault = wrong;
      if (spoilt) wrong[kElements - 1] = values[kElements - 1] + 0.25;
      Expectation e = expect(values, 1e-4);
      Hypothesis h;
      h.pattern += "last k block dropped";
      h.values = [&](Index i, std::vector<double>& out) {
        out.push_back(fault[static_cast<std::size_t>(i)] + 1);
        out.push_back(fault[static_cast<std::size_t>(i)]);
      };
      if (at_once) {
        h.all = [&](Index choice) {
          std::vector<double> out = fault;
          for (double& v : out) v += choice == 0 ? 1 : 0;
          return out;
        };
      }
      e.hypotheses.push_back(h);
      const Verdict v = judge(e, array<float>({kElements}, wrong));
      CHECK(v.wrong >= kElements - 1);
      CHECK(v.pattern == (spoilt ? "unknown" : "last k block dropped"));
    }
  }
}

}  // namespace
}  // namespace kref
