// SPDX-License-Identifier: Apache-2.0
// vmap of a grid: a batch axis in front that index maps and bodies do not see.
#include "kernels/kernels.h"
#include "tests/pallas_program.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("vmap_affine: one operand batched at axis 1, one not, program_id without the batch") {
  const PallasProgram program("vmap_affine");
  const auto x = program.in<float, 2>("x");
  const auto w = program.in<float, 1>("w");
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");
    Grid grid("vmap_affine");
    const Batch b = grid.vmap("b", 3);
    const Axis i = grid.parallel("i", 3);
    const auto xb = grid.in("x", b(x, 1), {.block = {4}, .index = {i}});
    const auto wb = grid.in("w", w, {.block = {4}, .index = {i}});
    const auto zb = grid.out("z", b(z), {.block = {4}, .index = {i}});
    const Trace trace = execute(grid, way, [&](const Step& s) {
      mul_add(s[xb], s[wb], static_cast<float>(100 * s.index(i) + 1000 * i.size), s[zb]);
    });
    program.expect("z", z);
    CHECK(trace.steps == 9);
  }
}

TEST_CASE("pallas 40: one to three nested vmaps write num_programs(0) of the grid itself") {
  const auto body = [](const Axis& i, auto zb) {
    return [=](const Step& s) { fill(s[zb], static_cast<I32>(i.size)); };
  };
  const auto all_eight = [](const auto& z) {
    for (Index e = 0; e < z.size(); ++e) CHECK(z.data()[e] == 8);
  };
  for (const Way way : kWays) {
    Tensor<I32, 2> one({2, 8});
    Tensor<I32, 3> two({3, 2, 8});
    Tensor<I32, 4> three({4, 3, 2, 8});
    {
      Grid grid("one");
      const Batch a = grid.vmap("a", 2);
      const Axis i = grid.parallel("i", 8);
      execute(grid, way, body(i, grid.out("z", a(one), {.block = {1}, .index = {i}})));
    }
    {
      Grid grid("two");
      const Batch a = grid.vmap("a", 3), b = grid.vmap("b", 2);
      const Axis i = grid.parallel("i", 8);
      execute(grid, way, body(i, grid.out("z", b(a(two)), {.block = {1}, .index = {i}})));
    }
    {
      Grid grid("three");
      const Batch a = grid.vmap("a", 4), b = grid.vmap("b", 3), c = grid.vmap("c", 2);
      const Axis i = grid.parallel("i", 8);
      execute(grid, way, body(i, grid.out("z", c(b(a(three))), {.block = {1}, .index = {i}})));
    }
    all_eight(one);
    all_eight(two);
    all_eight(three);
  }
}

TEST_CASE("nested vmaps over any dimensions, in any order: every element comes from its place") {
  const auto x = counted<I32, 4>({3, 4, 2, 5});  // batches of 2 (dimension 2) and 3 (dimension 0)
  for (const Way way : kWays) {
    Tensor<I32, 4> z({2, 3, 4, 5});
    Grid grid("nested");
    const Batch a = grid.vmap("a", 2), b = grid.vmap("b", 3);
    const Axis i = grid.parallel("i", 2), j = grid.parallel("j", 2);
    const auto xb = grid.in("x", b(a(x, 2)), {.block = {2, 3}, .index = {i, j}});
    const auto zb = grid.out("z", b(a(z)), {.block = {2, 3}, .index = {i, j}});
    execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
    int wrong = 0;
    for (Index p = 0; p < 2; ++p) {
      for (Index q = 0; q < 3; ++q) {
        for (Index r = 0; r < 4; ++r) {
          for (Index c = 0; c < 5; ++c) wrong += z(p, q, r, c) != x(q, r, p, c) ? 1 : 0;
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("pallas 81: a table of its own for each of a batch") {
  const auto x = counted<float, 2>({8, 4});
  const auto tables = counted<I32, 2>({3, 4});
  for (const Way way : kWays) {
    Tensor<float, 3> z({3, 4, 4});
    Grid grid("tables");
    const Batch b = grid.vmap("b", 3);
    const Axis i = grid.parallel("i", 4);
    const auto t = grid.prefetch("t", b(tables));
    const auto row = [=](const Step& s) { return Shape<2>{s[t](s.index(i)) * 5 % 8, 0}; };
    const auto xb = grid.in("x", x, {.block = {1, 4}, .index = row});
    const auto zb = grid.out("z", b(z), {.block = {1, 4}, .index = {i, 0}});
    execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
    for (Index n = 0; n < 12; ++n) CHECK(z.data()[4 * n] == static_cast<float>(4 * (n * 5 % 8)));
  }
}

TEST_CASE("pallas 96: vmap with an aliased output that is read first, batched at another axis") {
  // o = x + o + 1, o starts as 1: in_out is the window that is fetched.
  const auto x = counted<float, 1>({6});
  for (const Way way : kWays) {
    Tensor<float, 2> o({2, 6}, 1.0f);  // the batch is dimension 1
    Grid grid("alias");
    const Batch b = grid.vmap("b", 6);
    const auto xb = grid.in("x", b(x), {.block = {}, .index = {}});
    const auto ob = grid.in_out("o", b(o, 1), {.block = {2}, .index = {0}});
    execute(grid, way, [&](const Step& s) {
      for (Index e = 0; e < 2; ++e) s[ob](e) += s[xb]() + 1;
    });
    for (Index e = 0; e < 12; ++e) CHECK(o.data()[e] == static_cast<float>(e % 6) + 2);
  }
}

TEST_CASE("what is the same for all of a batch is fetched once where its index stays") {
  const auto x = counted<float, 2>({4, 16}), w = counted<float, 2>({1, 16});
  Tensor<float, 2> z({4, 16});
  Grid grid("fetches");
  const Batch b = grid.vmap("b", 4);
  const auto xb = grid.in("x", b(x), {.block = {16}, .index = {0}});
  const auto wb = grid.in("w", w);
  const auto zb = grid.out("z", b(z), {.block = {16}, .index = {0}});
  const Trace trace = grid.run([&](const Step& s) {
    for (Index e = 0; e < 16; ++e) s[zb](e) = s[xb](e) + s[wb](0, e);
  });
  CHECK(trace["x"].fetches == 4);
  CHECK(trace["w"].fetches == 1);
  CHECK(trace["z"].write_backs == 4);
  CHECK(z(3, 5) == 53.0f + 5.0f);
}

TEST_CASE("a view outside of a block names the operand, whatever dimensions batches have") {
  const auto x = counted<float, 6>({2, 2, 3, 3, 1, 4});
  Tensor<float, 2> z({2, 2}, 0.0f);
  Grid grid("g");
  const Batch a = grid.vmap("a", 2), b = grid.vmap("b", 2), c = grid.vmap("c", 3),
              d = grid.vmap("d", 3);
  const auto xb = grid.in("x", d(c(b(a(x)))), {.block = {1, 4}, .index = {0, 0}});
  const auto zb = grid.scratch<float>("z", {2, 2});
  const auto asked = [&](const Step& s) {
    fill(s[zb], 0.0f);
    copy(s[xb].at(0, ds(1, 4)), s[zb].at(0, ds()));
  };
  CHECK(says(refusal([&] { grid.run(asked); }),
             "grid 'g': input 'x': step 0 (a=0, b=0, c=0, d=0): Ref::at: dimension 1: "));
}

TEST_CASE("a batch is refused where it does not fit") {
  Tensor<float, 2> x({3, 4}, 0.0f), z({3, 4}, 0.0f);
  Grid g("g");
  const Batch b = g.vmap("b", 3);
  CHECK(refusal([&] { b(x, 1); }) == "vmap 'b': dimension 1 of [3,4] has extent 4, expected 3");
  CHECK(refusal([&] { b(x, 2); }) ==
        "vmap 'b': dimension 2 of an array of rank 2, expected one of 0:2");
  CHECK(refusal([&] { b(x, -1); }) ==
        "vmap 'b': dimension -1 of an array of rank 2, expected one of 0:2");
  g.parallel("i", 2);
  CHECK(refusal([&] { g.vmap("c", 2); }) ==
        "grid 'g': vmap 'c' after axis 'i', expected before all axes");
  Grid other("other");
  const Batch foreign = other.vmap("b", 3);
  CHECK(refusal([&] { g.in("x", foreign(x), {.block = {4}, .index = {0}}); }) ==
        "grid 'g': input 'x': a batch belongs to another grid");
  Tensor<float, 2> square({3, 3}, 0.0f);
  CHECK(refusal([&] { g.in("x", b(b(square)), {.block = {}, .index = {}}); }) ==
        "grid 'g': input 'x': vmap 'b' takes two of its dimensions");
  g.out("z", z);
  CHECK(refusal([&] {
          g.run([](const Step&) {});
        }).starts_with("grid 'g': output 'z' ignores parallel axis 'b'"));
}

}  // namespace
}  // namespace kref
