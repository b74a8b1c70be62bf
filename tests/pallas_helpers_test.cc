// SPDX-License-Identifier: Apache-2.0
// Pallas programs of vector helpers, views and masks, line by line, compared bit for bit with what
// JAX's interpreters gave.
#include "kernels/kernels.h"
#include "tests/pallas_program.h"

namespace kref {
namespace {

using I32 = std::int32_t;
using I8 = std::int8_t;
using U8 = std::uint8_t;

TEST_CASE("roll, behaviour 88: along lanes and rows, with a shift known in the step only") {
  const PallasProgram program("roll");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto a = program.out<float, 2>("a"), b = program.out<float, 2>("b"),
         c = program.out<float, 2>("c");
    Grid grid("roll");
    const Axis i = grid.parallel("i", 3);
    const BlockSpec<2> block{.block = {4, 8}, .index = {i, 0}};
    const auto xb = grid.in("x", x, block);
    const auto ab = grid.out("a", a, block), bb = grid.out("b", b, block),
               cb = grid.out("c", c, block);
    execute(grid, way, [&](const Step& s) {
      roll(s[xb], 3, 1, s[ab]);
      roll(s[xb], 2, 0, s[bb]);
      roll(s[xb], s.index(i) + 1, 1, s[cb]);
    });
    program.expect("a", a);
    program.expect("b", b);
    program.expect("c", c);
  }
}

TEST_CASE("casts: f32 to i32, f16, bf16 and bool; i32 to i8 and f32") {
  const PallasProgram program("casts");
  const auto x = program.in<float, 1>("x");
  const auto n = program.in<I32, 1>("n");
  for (const Way way : kWays) {
    auto i = program.out<I32, 1>("i");
    auto h = program.out<f16, 1>("h");
    auto b = program.out<bf16, 1>("b");
    auto p = program.out<bool, 1>("p");
    auto c = program.out<I8, 1>("c");
    auto f = program.out<float, 1>("f");
    Grid grid("casts");
    const Axis step = grid.parallel("step", 2);
    const BlockSpec<1> block{.block = {8}, .index = {step}};
    const auto xb = grid.in("x", x, block);
    const auto nb = grid.in("n", n, block);
    const auto ib = grid.out("i", i, block);
    const auto hb = grid.out("h", h, block);
    const auto bb = grid.out("b", b, block);
    const auto pb = grid.out("p", p, block);
    const auto cb = grid.out("c", c, block);
    const auto fb = grid.out("f", f, block);
    execute(grid, way, [&](const Step& s) {
      cast(s[xb], s[ib]);
      cast(s[xb], s[hb]);
      cast(s[xb], s[bb]);
      cast(s[xb], s[pb]);
      cast(s[nb], s[cb]);
      cast(s[nb], s[fb]);
    });
    program.expect("i", i);
    program.expect("h", h);
    program.expect("b", b);
    program.expect("p", p);
    program.expect("c", c);
    program.expect("f", f);
  }
}

TEST_CASE("narrow_types: bool, i8, u8 and f16; sums that wrap") {
  const PallasProgram program("narrow_types");
  const auto p = program.in<bool, 2>("p");
  const auto a = program.in<I8, 2>("a"), b = program.in<I8, 2>("b");
  const auto u = program.in<U8, 2>("u");
  const auto h = program.in<f16, 2>("h");
  for (const Way way : kWays) {
    auto select_out = program.out<I8, 2>("s"), w = program.out<I8, 2>("w");
    auto v = program.out<U8, 2>("v");
    auto n = program.out<bool, 2>("n");
    auto g = program.out<f16, 2>("g");
    Grid grid("narrow_types");
    const Axis i = grid.parallel("i", 2);
    const BlockSpec<2> block{.block = {2, 32}, .index = {i, 0}};
    const auto pb = grid.in("p", p, block);
    const auto ab = grid.in("a", a, block), bb = grid.in("b", b, block);
    const auto ub = grid.in("u", u, block);
    const auto hb = grid.in("h", h, block);
    const auto sb = grid.out("s", select_out, block), wb = grid.out("w", w, block);
    const auto vb = grid.out("v", v, block);
    const auto nb = grid.out("n", n, block);
    const auto gb = grid.out("g", g, block);
    execute(grid, way, [&](const Step& s) {
      select(s[pb], s[ab], s[bb], s[sb]);
      add(s[ab], s[bb], s[wb]);
      add(s[ub], U8{200}, s[vb]);
      bitwise_not(s[pb], s[nb]);
      mul(s[hb], s[hb], s[gb]);
    });
    program.expect("s", select_out);
    program.expect("w", w);
    program.expect("v", v);
    program.expect("n", n);
    program.expect("g", g);
  }
}

TEST_CASE("loop_rows: row views at a start that the loop computes") {
  const PallasProgram program("loop_rows");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("loop_rows");
    const Axis i = grid.parallel("i", 2);
    const auto xb = grid.in("x", x, {.block = {6, 8}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {6, 8}, .index = {i, 0}});
    execute(grid, way, [&](const Step& s) {
      for (Index r = 0; r < 6; ++r) {
        mul(s[xb].at(ds(r, 1)), static_cast<float>(r + 1), s[zb].at(ds(5 - r, 1)));
      }
    });
    program.expect("z", z);
  }
}

TEST_CASE("strided_rows, behaviour 53: strided loads and stores") {
  const PallasProgram program("strided_rows");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("strided_rows");
    const Axis i = grid.parallel("i", 2);
    const auto xb = grid.in("x", x, {.block = {8, 4}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {8, 4}, .index = {i, 0}});
    execute(grid, way, [&](const Step& s) {
      fill(s[zb], 0.0f);
      copy(s[xb].at(ds(0, 4, 2)), s[zb].at(ds(1, 4, 2)));
      fill(s[zb].at(ds(0, 3, 3)), -1.0f);
    });
    program.expect("z", z);
  }
}

TEST_CASE("masked_store, behaviour 57: the lanes that a mask of iotas switches on") {
  const PallasProgram program("masked_store");
  const auto x = program.in<float, 2>("x"), y = program.in<float, 2>("y");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("masked_store");
    const Axis i = grid.parallel("i", 2);
    const BlockSpec<2> block{.block = {4, 8}, .index = {i, 0}};
    const auto xb = grid.in("x", x, block), yb = grid.in("y", y, block);
    const auto zb = grid.out("z", z, block);
    execute(grid, way, [&](const Step& s) {
      Tensor<I32, 2> row({4, 8}), odd({4, 8});
      Tensor<bool, 2> mask({4, 8});
      iota(0, row.ref());
      iota(1, odd.ref());
      add(row, odd, odd.ref());
      rem(odd, 2, odd.ref());
      equal(odd.ref(), 0, mask.ref());
      store(s[yb], s[zb]);
      store(s[xb], mask, s[zb]);
    });
    program.expect("z", z);
  }
}

TEST_CASE("iota_triangle: masks from iotas with the block's place in the array") {
  const PallasProgram program("iota_triangle");
  const auto x = program.in<float, 2>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("iota_triangle");
    const Axis i = grid.parallel("i", 4), j = grid.parallel("j", 2);
    const auto xb = grid.in("x", x, {.block = {4, 8}, .index = {i, j}});
    const auto zb = grid.out("z", z, {.block = {4, 8}, .index = {i, j}});
    execute(grid, way, [&](const Step& s) {
      Tensor<I32, 2> row({4, 8}), col({4, 8});
      Tensor<bool, 2> mask({4, 8});
      iota(0, row.ref(), 4 * s.index(i));
      iota(1, col.ref(), 8 * s.index(j));
      less_equal(col.ref(), row, mask.ref());
      select(mask, s[xb], 0.0f, s[zb]);
    });
    program.expect("z", z);
  }
}

}  // namespace
}  // namespace kref
