// SPDX-License-Identifier: Apache-2.0
// Threads: no result depends on them, exceptions come out whole, nothing hangs.
#include <doctest/doctest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "dsl/grid.h"
#include "dsl/threads.h"
#include "tests/refusal.h"

namespace kref {
namespace {

struct Threads {
  explicit Threads(int count) { set_threads(count); }
  ~Threads() { set_threads(0); }
};

constexpr int kCounts[] = {1, 2, 3, 8};

TEST_CASE("set_threads sets, 0 restores") {
  const int usual = threads();
  CHECK(usual >= 1);
  set_threads(5);
  CHECK(threads() == 5);
  set_threads(0);
  CHECK(threads() == usual);
}

TEST_CASE("the trace is that of one core in order, whatever the threads do") {
  Tensor<float, 2> x({12, 10}, 1.0f), y({4, 10}, 2.0f), z({12, 10}, 0.0f);
  for (const int count : kCounts) {
    const Threads scope(count);
    Grid grid("g");
    const Axis i = grid.parallel("i", 6), j = grid.parallel("j", 5), k = grid.sequential("k", 3);
    const auto xb = grid.in("x", x, {.block = {2, 2}, .index = {i, j}});
    const auto yb = grid.in("y", y, {.block = {4, 10}, .index = {0, 0}});
    const auto tb = grid.in("t", x, {.block = {2, 10}, .index = [=](const Step& s) {
                                       return Shape<2>{s.index(i) / 2, 0};
                                     }});
    const auto zb = grid.out("z", z, {.block = {2, 2}, .index = {i, j}});
    const Trace trace = grid.run([&](const Step& s) {
      if (s.first(k)) s[zb](0, 0) = s[xb](0, 0) + s[yb](3, 9) + s[tb](1, 9);
    });
    CHECK(trace.steps == 90);
    CHECK(trace["x"].fetches == 30);
    CHECK(trace["x"].bytes == 12 * 10 * 4);
    CHECK(trace["y"].fetches == 1);
    CHECK(trace["y"].bytes == 4 * 10 * 4);
    CHECK(trace["t"].fetches == 3);
    CHECK(trace["z"].write_backs == 30);
    CHECK(trace["z"].fetches == 0);
    CHECK(trace.operands.size() == 4);
  }
}

TEST_CASE("of several exceptions the one of the lowest step comes out, on any thread") {
  Tensor<float, 1> z({64}, 0.0f);
  for (const int count : kCounts) {
    const Threads scope(count);
    for (int round = 0; round < 20; ++round) {
      Grid grid("g");
      const Axis i = grid.parallel("i", 64), k = grid.sequential("k", 4);
      const auto zb = grid.out("z", z, {.block = {1}, .index = {i}});
      const auto body = [&](const Step& s) {
        s[zb](0) = 1.0f;
        if (s.index(k) == 2 && s.index(i) >= 9 && s.index(i) % 3 == 0) {
          throw std::runtime_error(std::to_string(s.number()));
        }
      };
      CHECK_THROWS_WITH_AS(grid.run(body), "38", std::runtime_error);
      CHECK_THROWS_WITH_AS(grid.check(body), "38", std::runtime_error);
      // The grid is none the worse for it.
      CHECK(grid.run([&](const Step& s) { s[zb](0) = 2.0f; }).steps == 256);
      CHECK(z(63) == 2.0f);
    }
  }
}

TEST_CASE("an exception of any type passes through") {
  Grid grid("g");
  grid.parallel("i", 8);
  CHECK_THROWS_AS(grid.run([](const Step&) { throw 7; }), int);
}

TEST_CASE("an Error that leaves a body names grid and step, once; what is derived from it stays") {
  struct Special : Error {
    using Error::Error;
  };
  Grid outer("outer"), inner("inner");
  const Axis i = outer.parallel("i", 3);
  inner.sequential("k", 2);
  const auto bad = [](const Step&) { throw Error("add: y does not fit"); };
  const auto special = [](const Step&) { throw Special("as it is"); };
  const auto nested = [&](const Step& s) {
    if (s.last(i)) inner.run(bad);
  };
  for (const bool strict : {false, true}) {
    const auto run = [&](Grid& g, auto& body) { strict ? g.check(body) : g.run(body); };
    CHECK_THROWS_WITH_AS(run(inner, bad), "grid 'inner': step 0 (k=0): add: y does not fit", Error);
    CHECK_THROWS_WITH_AS(run(inner, special), "as it is", Special);
    CHECK_THROWS_WITH_AS(
        run(outer, nested),
        "grid 'outer': step 2 (i=2): grid 'inner': step 0 (k=0): add: y does not fit", Error);
  }
}

TEST_CASE("steps before the failing one have run, on every thread") {
  for (const int count : kCounts) {
    const Threads scope(count);
    std::atomic<Index> before{0};
    Grid grid("g");
    const Axis i = grid.parallel("i", 200);
    CHECK_THROWS_AS(grid.run([&](const Step& s) {
      if (s.index(i) < 150) before += 1;
      if (s.index(i) >= 150) throw Error("late");
    }),
                    Error);
    CHECK(before == 150);
  }
}

TEST_CASE("a table that shares a block: the same message on any number of threads") {
  Tensor<float, 1> z({40}, 0.0f);
  for (const int count : kCounts) {
    const Threads scope(count);
    Grid grid("g");
    const Axis i = grid.parallel("i", 40);
    const auto zb = grid.out("z", z, {.block = {1}, .index = [=](const Step& s) {
                                        return Shape<1>{s.index(i) == 33 ? 5 : s.index(i)};
                                      }});
    const std::string message = refusal([&] { grid.run([&](const Step& s) { s[zb](0) = 1; }); });
    CHECK(message.find("output 'z': block (5) of step 33 (i=33) was left before: it was visited in "
                       "step 5 (i=5)") != std::string::npos);
  }
}

TEST_CASE("two visits of one block never run side by side, whichever thread comes first") {
  // Sixteen chunks a thread make chunks of two points, so that one thread takes 4 and 5 and another
  // 32 and 33. The one waits before 5 until the other is past 32; 5 and 33 name the same block.
  const Threads scope(2);
  for (const bool update : {false, true}) {
    Tensor<float, 1> z({64}, 0.0f);
    std::atomic<bool> there{false};
    std::atomic<int> inside{0}, together{0};
    std::atomic<Index> last{-1};
    Grid grid("g");
    const Axis i = grid.parallel("i", 64);
    const auto index = [=](const Step& s) { return Shape<1>{s.index(i) == 33 ? 5 : s.index(i)}; };
    const BlockSpec<1> spec{.block = {1}, .index = index};
    const auto zb = update ? Out<float, 1>{} : grid.out("z", z, spec);
    const auto ub = update ? grid.in_out("z", z, spec) : InOut<float, 1>{};
    const std::string message = refusal([&] {
      grid.run([&](const Step& s) {
        const Index at = s.index(i);
        for (Index seen = last; seen < at && !last.compare_exchange_weak(seen, at);) {
        }
        const auto wait = [](const auto& until) {
          const auto start = std::chrono::steady_clock::now();
          while (!until() && std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
          }
        };
        if (at == 32) there = true;
        if (at == 4) wait([&] { return there.load(); });
        const Ref<float, 1> block = update ? s[ub] : s[zb];
        if (at == 5 || at == 33) {
          together += ++inside == 2 ? 1 : 0;
          wait([&] { return inside == 2; });
        }
        block(0) = 1;
      });
    });
    CHECK(message.find("'z': block (5) of step 33 (i=33) was left before: it was visited in step 5 "
                       "(i=5)") != std::string::npos);
    CHECK(together == 0);
    CHECK(last <= 32);  // neither the step at fault nor one after it has run
    CHECK(last == 32);
  }
}

TEST_CASE("an index map that does not depend on the step alone is refused, not raced") {
  for (const int count : kCounts) {
    const Threads scope(count);
    Tensor<float, 1> z({64}, 0.0f);
    std::atomic<int> calls{0};
    Grid grid("g");
    const Axis i = grid.parallel("i", 64);
    const auto zb = grid.out("z", z, {.block = {1}, .index = [&, i](const Step& s) {
                                        return Shape<1>{calls++ < 64 ? s.index(i) : 0};
                                      }});
    const std::string message = refusal([&] { grid.run([&](const Step& s) { s[zb](0) = 1; }); });
    CHECK(
        message.starts_with("grid 'g': output 'z': the index map gives block (0) to step 1 (i=1)"));
  }
}

TEST_CASE("a grid within a body, and a grid within a parallel region") {
  const Threads scope(4);
  Tensor<std::int32_t, 2> z({6, 8});
  Grid outer("outer");
  const Axis i = outer.parallel("i", 6);
  const auto zb = outer.out("z", z, {.block = {1, 8}, .index = {i, 0}});
  outer.run([&](const Step& s) {
    const Ref<std::int32_t, 2> row = s[zb];
    Grid inner("inner");
    const Axis j = inner.parallel("j", 4);
    const auto rb = inner.out("row", row, {.block = {1, 2}, .index = {0, j}});
    inner.run([&](const Step& t) {
      for (Index e = 0; e < 2; ++e) {
        t[rb](0, e) = static_cast<std::int32_t>(100 * s.index(i) + 2 * t.index(j) + e);
      }
    });
  });
  for (Index r = 0; r < 6; ++r) {
    for (Index c = 0; c < 8; ++c) CHECK(z(r, c) == 100 * r + c);
  }

  std::atomic<int> foreign{0};
#pragma omp parallel num_threads(3)
  {
    const int here = omp_get_thread_num();
    Grid grid("g");
    grid.parallel("i", 50);
    grid.run([&](const Step&) { foreign += omp_get_thread_num() == here ? 0 : 1; });
  }
  CHECK(foreign == 0);
}

TEST_CASE("scratch is each thread's own") {
  for (const int count : kCounts) {
    const Threads scope(count);
    Tensor<std::int32_t, 1> z({300});
    Grid grid("g");
    const Axis i = grid.parallel("i", 300), k = grid.sequential("k", 5);
    const auto zb = grid.out("z", z, {.block = {1}, .index = {i}});
    const auto sum = grid.scratch<std::int32_t>("sum", {1});
    grid.run([&](const Step& s) {
      if (s.first(k)) s[sum](0) = static_cast<std::int32_t>(s.index(i));
      s[sum](0) += static_cast<std::int32_t>(s.index(k));
      if (s.last(k)) s[zb](0) = s[sum](0);
    });
    bool equal = true;
    for (Index e = 0; e < 300; ++e) equal = equal && z(e) == e + 10;
    CHECK(equal);
  }
}

}  // namespace
}  // namespace kref
