// SPDX-License-Identifier: Apache-2.0
#include "dsl/grid.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "dsl/threads.h"

namespace kref {
namespace {

TEST_CASE("add, edge blocks, the table of operands") {
  Tensor<float, 1> x({10}), y({10}), z({10});
  for (Index i = 0; i < 10; ++i) x(i) = static_cast<float>(i), y(i) = static_cast<float>(100 * i);
  Grid grid("add");
  const Axis i = grid.parallel("i", 3);
  const auto xb = grid.in("x", x, {.block = {4}, .index = {i}});
  const auto yb = grid.in("y", y, {.block = {4}, .index = {i}});
  const auto zb = grid.out("z", z, {.block = {4}, .index = {i}});
  const auto body = [&](const Step& s) {
    const Ref<float, 1> out = s[zb];
    for (Index e = 0; e < 4; ++e) out(e) = s[xb](e) + s[yb](e);
  };
  const Trace trace = grid.run(body);
  for (Index e = 0; e < 10; ++e) CHECK(z(e) == static_cast<float>(101 * e));
  CHECK(trace.steps == 3);
  CHECK(trace["x"].fetches == 3);
  CHECK(trace["x"].bytes == 40);
  CHECK(trace["z"].write_backs == 3);
  z.fill(0);
  grid.check(body);
  for (Index e = 0; e < 10; ++e) CHECK(z(e) == static_cast<float>(101 * e));
  CHECK(grid.describe() ==
        "grid 'add': 3 steps, axes i=3 parallel\n"
        "  operand kind type array block index blocks bytes a block\n"
        "  x       in   F32  [10]  (4)   (i)        3            16\n"
        "  y       in   F32  [10]  (4)   (i)        3            16\n"
        "  z       out  F32  [10]  (4)   (i)        3            16\n");
}

// Whole numbers: every order of the sums gives the same.
Tensor<float, 2> numbers(Index m, Index n, Index seed) {
  Tensor<float, 2> x({m, n});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<float>((e * 7 + seed) % 11 - 5);
  return x;
}

TEST_CASE("matmul: edge blocks on all sides, accumulator in scratch, any number of threads") {
  const Index m = 23, n = 19, depth = 37;
  const Tensor<float, 2> x = numbers(m, depth, 1);  // (m, depth)
  const Tensor<float, 2> y = numbers(depth, n, 2);  // (depth, n)
  for (const int count : {1, 2, 3, 8}) {
    for (const bool check : {false, true}) {
      set_threads(count);
      Tensor<float, 2> z({m, n});
      Grid grid("matmul");
      const Axis i = grid.parallel("i", cdiv(m, 8));
      const Axis j = grid.parallel("j", cdiv(n, 6));
      const Axis k = grid.sequential("k", cdiv(depth, 10));
      const auto xb = grid.in("x", x, {.block = {8, 10}, .index = {i, k}});
      const auto yb = grid.in("y", y, {.block = {10, 6}, .index = {k, j}});
      const auto zb = grid.out("z", z, {.block = {8, 6}, .index = {i, j}});
      const auto acc = grid.scratch<float>("acc", {8, 6});
      const auto body = [&](const Step& s) {
        const Ref<float, 2> sum = s[acc];
        if (s.first(k)) {
          for (Index e = 0; e < sum.size(); ++e) sum.data()[e] = 0;
        }
        const auto a = s.valid(xb), b = s.valid(yb);
        for (Index r = 0; r < a.extent(0); ++r) {
          for (Index c = 0; c < b.extent(1); ++c) {
            for (Index t = 0; t < a.extent(1); ++t) sum(r, c) += a(r, t) * b(t, c);
          }
        }
        if (!s.last(k)) return;
        for (Index r = 0; r < 8; ++r) {
          for (Index c = 0; c < 6; ++c) s[zb](r, c) = sum(r, c);
        }
      };
      const Trace trace = check ? grid.check(body) : grid.run(body);
      CHECK(trace.steps == 3 * 4 * 4);
      CHECK(trace["x"].fetches == 3 * 4 * 4);
      CHECK(trace["z"].write_backs == 3 * 4);
      CHECK(trace["z"].bytes == m * n * 4);
      bool equal = true;
      for (Index r = 0; r < m; ++r) {
        for (Index c = 0; c < n; ++c) {
          float sum = 0;
          for (Index t = 0; t < depth; ++t) sum += x(r, t) * y(t, c);
          equal = equal && z(r, c) == sum;
        }
      }
      CHECK(equal);
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace kref
