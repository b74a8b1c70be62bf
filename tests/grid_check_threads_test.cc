// SPDX-License-Identifier: Apache-2.0
// Grid::check on threads: what it says, counts and leaves in the arrays is what one thread does.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>

#include "dsl/grid.h"
#include "dsl/threads.h"
#include "tests/refusal.h"

namespace kref {
namespace {

constexpr Index kPoints = 24;  // of one parallel axis; enough for threads

// The message of a check on 1 thread, once others gave the same.
template <class Program>
std::string one_message(const Program& program) {
  std::string message;
  for (const int count : {1, 2, 3, 8}) {
    set_threads(count);
    for (int round = 0; round < 5; ++round) {
      const std::string found = refusal(program);
      if (message.empty()) message = found;
      CAPTURE(count);
      CHECK(found == message);
    }
  }
  set_threads(0);
  return message;
}

TEST_CASE(
    "check: elements that late points do not write are named alike on any number of threads") {
  const std::string message = one_message([] {
    Tensor<float, 1> z({3 * kPoints}, 0.0f);
    Grid g("g");
    const Axis i = g.parallel("i", kPoints);
    const auto zb = g.out("z", z, {.block = {3}, .index = {i}});
    g.check([&](const Step& s) {
      for (Index e = 0; e < (s.index(i) < 17 ? 3 : 2); ++e) s[zb](e) = 1.0f;
    });
  });
  CHECK(message ==
        "grid 'g': output 'z': element (53) of block (17), visited from step 17 (i=17), "
        "is never written: an output's block starts as poison; in_out is the operand "
        "that starts with the array's contents (6 more differ)");
}

TEST_CASE("check: scratch that late points carry along a parallel axis") {
  const std::string message = one_message([] {
    Tensor<std::int32_t, 1> z({kPoints}, 0);
    Grid g("g");
    const Axis i = g.parallel("i", kPoints), k = g.sequential("k", 3);
    const auto zb = g.out("z", z, {.block = {1}, .index = {i}});
    const auto sum = g.scratch<std::int32_t>("sum", {1});
    g.check([&](const Step& s) {
      if (s.first(k) && s.index(i) != 9) s[sum](0) = 0;
      s[sum](0) |= 1;
      if (s.last(k)) s[zb](0) = s[sum](0);
    });
  });
  CHECK(says(message, "output 'z': element (9) of block (9)"));
  CHECK(says(message, "depends on poison in 'sum'"));
}

TEST_CASE("check: a captured counter is a finding, and no race") {
  const std::string message = one_message([] {
    Tensor<std::int32_t, 1> z({kPoints}, 0);
    std::int32_t count = 0;
    Grid g("g");
    const Axis i = g.parallel("i", kPoints);
    const auto zb = g.out("z", z, {.block = {1}, .index = {i}});
    g.check([&](const Step& s) { s[zb](0) = count++; });
  });
  CHECK(says(message, "output 'z': element (0) of block (0)"));
  CHECK(says(message, "depends on the order of the parallel coordinates"));
  // What the point before left, of an operand that is read as well.
  const std::string last = one_message([] {
    Tensor<std::int32_t, 1> z({kPoints}, 7);
    std::int32_t before = 0;
    Grid g("g");
    const Axis i = g.parallel("i", kPoints);
    const auto zb = g.in_out("z", z, {.block = {1}, .index = {i}});
    g.check([&](const Step& s) {
      s[zb](0) += before;
      before = static_cast<std::int32_t>(s.index(i));
    });
  });
  CHECK(says(last, "depends on the order of the parallel coordinates"));
}

TEST_CASE("check: of exceptions under the second poison that of the first step in its order") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::string message = one_message([seed] {
      Tensor<float, 1> z({kPoints}, 0.0f);
      std::atomic<int> faults{0};
      Grid g("g");
      const Axis i = g.parallel("i", kPoints), k = g.sequential("k", 2);
      const auto zb = g.out("z", z, {.block = {1}, .index = {i}});
      const auto top = g.scratch<float>("top", {1});
      const auto body = [&](const Step& s) {
        s[zb](0) = 1.0f;
        if (s.index(i) < 2 || !s.first(k) || !(std::abs(s[top](0)) > 1e30f)) return;
        // Two threads throw, where there are as many.
        ++faults;
        const auto start = std::chrono::steady_clock::now();
        while (faults < 2 &&
               std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1)) {
        }
        throw Error("too large");
      };
      g.check(body, {.seed = seed});
    });
    CHECK(says(message, "too large"));
  }
}

TEST_CASE("check: the trace, the steps and the bits are those of a run, whatever the threads do") {
  Tensor<std::int32_t, 2> x({12, 10});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<std::int32_t>(e * e % 97);
  for (const int count : {1, 2, 3, 8}) {
    set_threads(count);
    Tensor<std::int32_t, 2> z({12, 10}, 3), sum({12, 10}, 5);
    std::atomic<Index> calls{0};
    Grid grid("g");
    const Axis i = grid.parallel("i", 6), j = grid.parallel("j", 5), k = grid.sequential("k", 3);
    const auto xb = grid.in("x", x, {.block = {2, 2}, .index = {i, j}});
    const auto tb = grid.in("t", x, {.block = {2, 10}, .index = [=](const Step& s) {
                                       return Shape<2>{s.index(i) / 2, 0};
                                     }});
    const auto zb = grid.out("z", z, {.block = {2, 2}, .index = {i, j}});
    const auto ub = grid.in_out("sum", sum, {.block = {2, 2}, .index = {i, j}});
    const auto acc = grid.scratch<std::int32_t>("acc", {2, 2});
    const Trace trace = grid.check([&](const Step& s) {
      ++calls;
      for (Index e = 0; e < 4; ++e) {
        const Shape<2> at{e / 2, e % 2};
        if (s.first(k)) s[acc][at] = s[tb](0, 3);
        s[acc][at] += s[xb][at];
        s[ub][at] += s[acc][at];
        if (s.last(k)) s[zb][at] = s[acc][at];
      }
    });
    CAPTURE(count);
    CHECK(calls >= 180);
    CHECK(trace.steps == 90);
    CHECK(trace["x"].fetches == 30);
    CHECK(trace["t"].fetches == 3);
    CHECK(trace["z"].write_backs == 30);
    CHECK(trace["z"].fetches == 0);
    CHECK(trace["sum"].fetches == 30);
    CHECK(trace["sum"].bytes == 2 * 12 * 10 * 4);
    for (Index r = 0; r < 12; ++r) {
      for (Index c = 0; c < 10; ++c) {
        const std::int32_t t = x(r / 2 / 2 * 2, 3), v = x(r, c);
        CHECK(z(r, c) == t + 3 * v);
        CHECK(sum(r, c) == 5 + 3 * t + 6 * v);
      }
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace kref
