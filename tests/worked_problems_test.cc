// SPDX-License-Identifier: Apache-2.0
// Every worked problem, with the number the book prints, the right one, and ours.
#include "tests/worked_problems.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>

namespace kref {
namespace {

double off(double a, double b) { return std::abs(a / b - 1); }

void check(const std::vector<Worked>& rows) {
  for (const Worked& row : rows) {
    const std::string id = row.id, what = row.what;
    CAPTURE(id);
    CAPTURE(what);
    CAPTURE(row.book);
    CAPTURE(row.right);
    CAPTURE(row.ours);
    CHECK(off(row.ours, row.right) <= row.tolerance);
    switch (row.printed) {
      case Printed::kAgrees:
        CHECK(off(row.book, row.right) <= 0.025);
        break;
      case Printed::kCoarse:
        CHECK(off(row.book, row.right) <= 0.25);
        break;
      case Printed::kErratum:
        CHECK(off(row.book, row.right) > 0.005);
        break;
      case Printed::kNoAnswer:
        CHECK(std::isnan(row.book));
        break;
    }
  }
}

TEST_CASE("worked problems 7.1: rooflines") { check(roofline_problems()); }
TEST_CASE("worked problems 7.2: chips") { check(chip_problems()); }
TEST_CASE("worked problems 7.3: sharding") { check(sharding_problems()); }
TEST_CASE("worked problems 7.4: sizes of transformers") { check(size_problems()); }
TEST_CASE("worked problems 7.5 and 7.6: training") { check(training_problems()); }
TEST_CASE("worked problems 7.7: inference") { check(inference_problems()); }
TEST_CASE("worked problems 7.8: serving") { check(serving_problems()); }
TEST_CASE("worked problems 7.9: GPUs") { check(gpu_problems()); }

TEST_CASE("worked problems: how many agree with the book") {
  std::vector<Worked> all;
  for (const auto& rows :
       {roofline_problems(), chip_problems(), sharding_problems(), size_problems(),
        training_problems(), inference_problems(), serving_problems(), gpu_problems()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  // A problem is what the worst of its numbers is.
  std::map<std::string, Printed> problems;
  const auto rank = [](Printed p) {
    return p == Printed::kErratum ? 3 : p == Printed::kCoarse ? 2 : p == Printed::kAgrees ? 1 : 0;
  };
  std::string errata;
  for (const Worked& row : all) {
    auto& worst = problems.emplace(row.id, row.printed).first->second;
    if (rank(row.printed) > rank(worst)) worst = row.printed;
    if (row.printed != Printed::kErratum) continue;
    char line[200];
    std::snprintf(line, sizeof line, "  %-6s %-58s book %.6g, right %.6g, ours %.6g\n", row.id,
                  row.what, row.book, row.right, row.ours);
    errata += line;
  }
  std::map<int, int> count;
  for (const auto& entry : problems) ++count[rank(entry.second)];
  std::printf(
      "%d of %zu worked problems agree with the book, %d are rounded in it, %d errata, %d "
      "have no answer there; %zu numbers\n%s",
      count[1], problems.size(), count[2], count[3], count[0], all.size(), errata.c_str());
  CHECK(problems.size() >= 85);
  CHECK(count[1] >= 45);
}

}  // namespace
}  // namespace kref
