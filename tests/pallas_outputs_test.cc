// SPDX-License-Identifier: Apache-2.0
// Pallas programs about revisited outputs, scratch and aliases, compared bit for bit with what
// JAX's interpreters gave.
#include <algorithm>

#include "kernels/kernels.h"
#include "tests/pallas_program.h"

namespace kref {
namespace {

using I32 = std::int32_t;

float sum_of(Ref<const float, 2> x) {
  float sum = 0;
  for (Index r = 0; r < x.extent(0); ++r) {
    for (Index c = 0; c < x.extent(1); ++c) sum += x(r, c);
  }
  return sum;
}

TEST_CASE("column_sums: the reduced axis runs last") {
  const PallasProgram program("column_sums");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("column_sums");
    const Axis j = grid.parallel("j", 2), i = grid.sequential("i", 3);
    const auto xb = grid.in("x", x, {.block = {4, 4}, .index = {i, j}});
    const auto zb = grid.out("z", z, {.block = {1, 4}, .index = {0, j}});
    execute(grid, way, [&](const Step& s) {
      if (s.first(i)) fill(s[zb], 0.0f);
      for (Index r = 0; r < 4; ++r) add(s[zb], s[xb].block({r, 0}, {1, 4}), s[zb]);
    });
    program.expect("z", z);
  }
}

TEST_CASE("mean_first_last: a constant output block over a grid of three axes") {
  const PallasProgram program("mean_first_last");
  const auto x = program.in<float, 3>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("mean_first_last");
    const Axis i = grid.sequential("i", 2), j = grid.sequential("j", 2),
               k = grid.sequential("k", 4);
    const auto xb = grid.in("x", x, {.block = {2, 2, 2}, .index = {i, j, k}});
    const auto zb = grid.out("z", z, {.block = {1, 1}, .index = {0, 0}});
    const Trace trace = execute(grid, way, [&](const Step& s) {
      if (s.first(i) && s.first(j) && s.first(k)) fill(s[zb], 0.0f);
      const Ref<const float, 3> b = s[xb];
      for (Index p = 0; p < 2; ++p) {
        for (Index q = 0; q < 2; ++q) s[zb](0, 0) += b(p, q, 0) + b(p, q, 1);
      }
      if (s.last(i) && s.last(j) && s.last(k)) s[zb](0, 0) /= 8.0f * 2 * 2 * 4;
    });
    CHECK(trace["z"].write_backs == 1);
    program.expect("z", z);
  }
}

TEST_CASE("many_outputs: three outputs with different blocks, one revisited") {
  const PallasProgram program("many_outputs");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z"), top = program.out<float, 2>("top"),
         total = program.out<float, 2>("total");
    Grid grid("many_outputs");
    const Axis i = grid.sequential("i", 3), j = grid.sequential("j", 2);
    const auto xb = grid.in("x", x, {.block = {4, 8}, .index = {i, j}});
    const auto zb = grid.out("z", z, {.block = {4, 8}, .index = {i, j}});
    const auto tb = grid.out("top", top, {.block = {4, 1}, .index = {j, i}});
    const auto sb = grid.out("total", total, {.block = {1, 1}, .index = {0, 0}});
    execute(grid, way, [&](const Step& s) {
      if (s.first(i) && s.first(j)) fill(s[sb], 0.0f);
      add(s[xb], s[xb], s[zb]);
      for (Index r = 0; r < 4; ++r) {
        const float* row = &s[xb](r, 0);
        s[tb](r, 0) = *std::max_element(row, row + 8);
      }
      s[sb](0, 0) += sum_of(s[xb]);
    });
    program.expect("z", z);
    program.expect("top", top);
    program.expect("total", total);
  }
}

TEST_CASE("cumsum_rows: scratch carries a row from step to step") {
  const PallasProgram program("cumsum_rows");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("cumsum_rows");
    const Axis i = grid.sequential("i", 3);
    const auto xb = grid.in("x", x, {.block = {4, 8}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {4, 8}, .index = {i, 0}});
    const auto carry = grid.scratch<float>("carry", {1, 8});
    execute(grid, way, [&](const Step& s) {
      if (s.first(i)) fill(s[carry], 0.0f);
      for (Index r = 0; r < 4; ++r) {
        add(s[carry], s[xb].block({r, 0}, {1, 8}), s[carry]);
        copy(s[carry], s[zb].block({r, 0}, {1, 8}));
      }
    });
    program.expect("z", z);
  }
}

TEST_CASE("unwritten_window: what no step writes is poison, and check says so") {
  const PallasProgram program("unwritten_window");
  const auto x = program.in<float, 1>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 1>("z");
    Grid grid("unwritten_window");
    const Axis i = grid.parallel("i", 4);
    const auto xb = grid.in("x", x, {.block = {4}, .index = {i}});
    const auto zb = grid.out("z", z, {.block = {4}, .index = {i}});
    const auto body = [&](const Step& s) {
      if (s.index(i) % 2 == 0) copy(s[xb], s[zb]);
    };
    if (way == Way::kCheck) {
      CHECK_THROWS_WITH_AS(execute(grid, way, body),
                           "grid 'unwritten_window': output 'z': element (4) of block (1), visited "
                           "from step 1 (i=1), is never written: an output's block starts as "
                           "poison; in_out is the operand that starts with the array's contents (7 "
                           "more differ)",
                           Error);
    } else {
      execute(grid, way, body);
    }
    program.expect("z", z);
  }
}

TEST_CASE("alias_unvisited: blocks that no step visits keep the input") {
  const PallasProgram program("alias_unvisited");
  const auto blocks = program.in<I32, 1>("blocks");
  for (const Way way : kWays) {
    auto z = program.in<float, 1>("x");
    Grid grid("alias_unvisited");
    const auto table = grid.prefetch("blocks", blocks);
    const Axis i = grid.parallel("i", 2);
    const auto index = [=](const Step& s) { return Shape<1>{s[table](s.index(i))}; };
    const auto xb = grid.in("x", z, {.block = {4}, .index = index});
    const auto zb = grid.out("z", z, {.block = {4}, .index = index});
    execute(grid, way, [&](const Step& s) {
      for (Index e = 0; e < 4; ++e) s[zb](e) = s[xb](e) + 100;
    });
    program.expect("z", z);
  }
}

TEST_CASE("alias_transposed: later steps read what earlier ones stored") {
  const PallasProgram program("alias_transposed");
  for (const Way way : kWays) {
    auto z = program.in<float, 2>("x");
    Grid grid("alias_transposed");
    const Axis i = grid.sequential("i", 4), j = grid.sequential("j", 4);
    const auto xb = grid.in("x", z, {.block = {1, 1}, .index = {i, j}});
    const auto zb = grid.out("z", z, {.block = {1, 1}, .index = {j, i}});
    execute(grid, way,
            [&](const Step& s) { s[zb](0, 0) = s[xb](0, 0) + static_cast<float>(s.number()); });
    program.expect("z", z);
  }
}

TEST_CASE("alias_partial_block: the unwritten half of a visited block is poison") {
  const PallasProgram program("alias_partial_block");
  for (const Way way : kRunOnly) {
    auto z = program.in<float, 1>("x");
    Grid grid("alias_partial_block");
    const Axis i = grid.parallel("i", 2);
    const auto xb = grid.in("x", z, {.block = {4}, .index = {i}});
    const auto zb = grid.out("z", z, {.block = {4}, .index = {i}});
    execute(grid, way, [&](const Step& s) {
      for (Index e = 0; e < 2; ++e) s[zb](e) = s[xb](e) + 100;
    });
    program.expect("z", z);
  }
}

}  // namespace
}  // namespace kref
