// SPDX-License-Identifier: Apache-2.0
// What may overflow in a row of attention excuses what overflows with it, and nothing else.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "golden/attention_op.h"
#include "golden/judge.h"

namespace kref {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

Array array(std::vector<Index> shape, const std::vector<double>& values) {
  Array a(DType::kF32, shape);
  REQUIRE(a.size() == static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    a.mutable_elements<float>()[i] = static_cast<float>(values[i]);
  }
  return a;
}

// One row of one head: q [D], k [S, D], v [S, 2].
struct Row {
  Run run;
  std::vector<Expectation> expected;

  Row(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
      double soft_cap = 0) {
    const auto depth = static_cast<Index>(q.size());
    const auto keys = static_cast<Index>(v.size()) / 2;
    run.origin = "test", run.op = "attention";
    run.set["scale"] = 1.0;
    if (soft_cap > 0) run.set["soft_cap"] = soft_cap;
    run.in["q"] = array({1, 1, 1, depth}, q);
    run.in["k"] = array({1, 1, keys, depth}, k);
    run.in["v"] = array({1, 1, keys, 2}, v);
    run.out["o"] = array({1, 1, 1, 2}, {0, 0});
    run.out["lse"] = array({1, 1, 1}, {0});
    expected = attention_operation().expect(run);
    REQUIRE(expected.size() == 2);
    for (const Expectation& e : expected) {
      for (const double b : e.likely) CHECK(std::isfinite(b));
      for (const double b : e.worst) CHECK(std::isfinite(b));
    }
  }
  double o(std::size_t e) const { return expected[0].value[e]; }
  double lse() const { return expected[1].value[0]; }
  // Is `value` right as element e of o, or as lse, all else being right?
  bool takes(std::size_t e, double value) const {
    std::vector<double> row{o(0), o(1)};
    row[e] = value;
    return judge(expected[0], array({1, 1, 1, 2}, row)).ok();
  }
  bool takes_lse(double value) const { return judge(expected[1], array({1, 1, 1}, {value})).ok(); }
};

TEST_CASE("a large value excuses its own column, on its own side") {
  const Row row({0}, {0, 0}, {3e38, 1, 3e38, 3});
  CHECK(row.o(0) == doctest::Approx(3e38));
  CHECK(row.takes(0, 3e38));
  CHECK(row.takes(0, kInf));
  CHECK_FALSE(row.takes(0, -kInf));
  CHECK_FALSE(row.takes(0, kNan));
  CHECK_FALSE(row.takes(0, 2.9e38));
  CHECK_FALSE(row.takes(1, kInf));
  CHECK_FALSE(row.takes(1, kNan));
  CHECK(row.takes_lse(std::log(2.0)));
  CHECK_FALSE(row.takes_lse(kInf));
  CHECK_FALSE(row.takes_lse(kNan));
  // Within the range, nothing is excused.
  const Row small({0}, {0, 0}, {1e38, 1, 1e38, 3});
  CHECK_FALSE(small.takes(0, kInf));
  // Both sides: NaN too.
  const Row both({0}, {0, 0, 0, 0}, {3e38, 1, 3e38, 1, -3e38, 1, -3e38, 1});
  CHECK(both.takes(0, kNan));
  CHECK(both.takes(0, -kInf));
  CHECK_FALSE(both.takes(1, kNan));
}

TEST_CASE("values of keys without weight may overflow before a larger maximum takes it away") {
  const Row row({1}, {-200, -200, 0}, {3e38, 1, 3e38, 2, 5, 3});
  CHECK(row.o(0) == doctest::Approx(5));
  CHECK(row.takes(0, kInf));
  CHECK(row.takes(0, kNan));  // inf exp(-200)
  CHECK_FALSE(row.takes(0, -kInf));
  CHECK_FALSE(row.takes(1, kNan));
  CHECK_FALSE(row.takes_lse(kNan));
}

TEST_CASE("an infinite value meets a weight that vanishes in f32") {
  const Row row({1}, {-200, 0}, {kInf, 1, 5, 3});
  CHECK(row.o(0) == kInf);
  CHECK(row.takes(0, kInf));
  CHECK(row.takes(0, kNan));
  CHECK_FALSE(row.takes(0, -kInf));
  CHECK_FALSE(row.takes(0, 5));
  CHECK_FALSE(row.takes(1, kNan));
  // Not one that is far from vanishing.
  const Row near({1}, {-2, 0}, {kInf, 1, 5, 3});
  CHECK(near.takes(0, kInf));
  CHECK_FALSE(near.takes(0, kNan));
}

TEST_CASE("a score that may overflow takes the row with it") {
  const Row row({1e20, 1e20}, {1e20, -1e20, 0, 0}, {1, 2, 3, 4});
  CHECK(row.lse() == doctest::Approx(std::log(2.0)));
  for (const std::size_t e : {std::size_t{0}, std::size_t{1}}) {
    CHECK(row.takes(e, kNan));
    CHECK_FALSE(row.takes(e, kInf));
    CHECK_FALSE(row.takes(e, -kInf));
  }
  CHECK(row.takes_lse(kNan));
  CHECK(row.takes_lse(kInf));
  const Row capped({1e20, 1e20}, {1e20, -1e20, 0, 0}, {1, 2, 3, 4}, 30);
  CHECK(capped.takes_lse(kNan));
  CHECK_FALSE(capped.takes_lse(kInf));
}

}  // namespace
}  // namespace kref
