// SPDX-License-Identifier: Apache-2.0
// Behaviours that Pallas' own tests hold, about axes, whole arrays and bodies; numbered as in the
// semantics.
#include "kernels/kernels.h"
#include "tests/filled_blocks.h"
#include "tests/pallas_program.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("pallas 37, 38: named axes in the order of their declaration, sizes in maps and bodies") {
  for (const Way way : kWays) {
    Tensor<I32, 2> z({2, 4});
    Grid grid("names");
    const Axis foo = grid.parallel("foo", 2), bar = grid.parallel("bar", 4);
    const auto zb = grid.out("z", z, {.block = {1, 1}, .index = {foo, bar}});
    execute(grid, way, [&](const Step& s) {
      s[zb](0, 0) = static_cast<I32>(10 * s.index(foo) + s.index(bar));
    });
    for (Index r = 0; r < 2; ++r) {
      for (Index c = 0; c < 4; ++c) CHECK(z(r, c) == 10 * r + c);
    }

    Tensor<I32, 2> turned({4, 2});
    Grid order("order");
    const Axis j = order.parallel("j", 4), i = order.parallel("i", 2);
    const auto tb = order.out("z", turned, {.block = {1, 1}, .index = {j, i}});
    execute(order, way, [&](const Step& s) { s[tb](0, 0) = static_cast<I32>(s.number()); });
    for (Index e = 0; e < 8; ++e) CHECK(turned.data()[e] == e);

    const auto x = counted<float, 1>({8});
    Tensor<float, 1> y({8}), sizes({4});
    Grid num("num_programs");
    const Axis n = num.parallel("n", 8);
    const auto second = [=](const Step&) { return Shape<1>{1 + 8 - n.size}; };
    const auto xb = num.in("x", x, {.block = {1}, .index = second});
    const auto yb = num.out("y", y, {.block = {1}, .index = {n}});
    execute(num, way, [&](const Step& s) { copy(s[xb], s[yb]); });
    CHECK(all(y, 1.0f));

    Grid four("four");
    const Axis m = four.parallel("m", 4);
    const auto sb = four.out("sizes", sizes, {.block = {1}, .index = {m}});
    execute(four, way, [&](const Step& s) { s[sb](0) = static_cast<float>(m.size); });
    CHECK(all(sizes, 4.0f));
  }
}

TEST_CASE("pallas 39, 62: loops in a body, with the step's index, steps, carries and remainders") {
  for (const Way way : kWays) {
    Tensor<float, 1> z({512});
    Grid grid("loop");
    const Axis p = grid.parallel("p", 2);
    const auto zb = grid.out("z", z, {.block = {256}, .index = {p}});
    execute(grid, way, [&](const Step& s) {
      fill(s[zb], 0.0f);
      for (Index i = 0; i < 4; ++i) add(s[zb], static_cast<float>(s.index(p) + i), s[zb]);
    });
    for (Index e = 0; e < 512; ++e) CHECK(z(e) == (e < 256 ? 6 : 10));
  }
  for (Index start = 0; start < 4; ++start) {
    for (Index stop = 0; stop < 7; ++stop) {
      for (Index step = 1; step < 4; ++step) {
        Tensor<I32, 1> z({1});
        Grid grid("range");
        const auto zb = grid.out("z", z);
        grid.check([&](const Step& s) {
          I32 carry = 32;
          for (Index i = start; i < stop; i += step) carry += static_cast<I32>(i);
          s[zb](0) = carry;
        });
        const Index trips = std::max<Index>(0, cdiv(std::max<Index>(0, stop - start), step));
        CHECK(z(0) == 32 + trips * start + step * trips * (trips - 1) / 2);
      }
    }
  }
}

TEST_CASE("pallas 42: a block of (128, 128) at an element that a table names") {
  const auto x = counted<float, 2>({512, 512});
  const std::array<I32, 2> start = {128, 256};
  for (const Way way : kWays) {
    Tensor<float, 2> z({128, 128});
    Grid grid("dynamic_slice");
    const auto t = grid.prefetch("start", Ref<const I32, 1>(start.data(), {2}));
    const auto at = [=](const Step& s) { return Shape<2>{s[t](0), s[t](1)}; };
    const auto xb = grid.in("x", x, {.block = {Element(128), Element(128)}, .index = at});
    const auto zb = grid.out("z", z);
    execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
    Index wrong = 0;
    for (Index r = 0; r < 128; ++r) {
      for (Index c = 0; c < 128; ++c) wrong += z(r, c) != x(128 + r, 256 + c) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("pallas 46: operands without blocks are whole; a grid may have no inputs or no outputs") {
  const auto x = counted<float, 2>({5, 7});
  for (const Way way : kWays) {
    Tensor<float, 2> z({5, 7});
    Grid grid("whole");
    grid.sequential("i", 2);
    const auto xb = grid.in("x", x);
    const auto zb = grid.out("z", z);
    const Trace trace = execute(grid, way, [&](const Step& s) {
      CHECK(s[xb].extents() == Shape<2>{5, 7});
      copy(s[xb], s[zb]);
    });
    CHECK(trace["x"].fetches == 1);
    for (Index e = 0; e < 35; ++e) CHECK(z.data()[e] == x.data()[e]);

    Grid nothing("no_outputs");
    nothing.parallel("i", 3);
    const auto nb = nothing.in("x", x);
    float sum = 0;
    execute(nothing, Way::kOneThread, [&](const Step& s) { sum += s[nb](4, 6); });
    CHECK(sum == 3 * 34);

    Tensor<I32, 1> made({6});
    Grid no_inputs("no_inputs");
    const Axis i = no_inputs.parallel("i", 3);
    const auto mb = no_inputs.out("z", made, {.block = {2}, .index = {i}});
    execute(no_inputs, way, [&](const Step& s) { fill(s[mb], 42); });
    CHECK(all(made, 42));
  }
}

TEST_CASE("pallas 80: a table of operations on a state that the output keeps") {
  const std::array<I32, 5> code = {0, 1, 1, 0, 1};  // 0: add 3, 1: double
  for (const Way way : kWays) {
    const auto x = counted<float, 2>({8, 128});
    Tensor<float, 2> z({8, 128});
    Grid grid("interpreter");
    const auto t = grid.prefetch("code", Ref<const I32, 1>(code.data(), {5}));
    const Axis i = grid.sequential("i", 5);
    const auto xb = grid.in("x", x);
    const auto zb = grid.out("z", z);
    execute(grid, way, [&](const Step& s) {
      if (s.first(i)) copy(s[xb], s[zb]);
      if (s[t](s.index(i)) == 0) add(s[zb], 3.0f, s[zb]);
      if (s[t](s.index(i)) == 1) mul(s[zb], 2.0f, s[zb]);
    });
    for (Index e = 0; e < z.size(); ++e) {
      CHECK(z.data()[e] == (((x.data()[e] + 3) * 2) * 2 + 3) * 2);
    }
  }
}

TEST_CASE("pallas 82: an element of a block is the row that a body reads next") {
  auto x = counted<I32, 2>({8, 128});
  x(0, 0) = 6;
  for (const Way way : kWays) {
    Tensor<I32, 2> z({1, 128});
    Grid grid("row");
    const auto xb = grid.in("x", x);
    const auto zb = grid.out("z", z);
    execute(grid, way, [&](const Step& s) {
      copy(s[xb].block({s[xb](0, 0), 0}, {1, 128}), s[zb]);
    });
    for (Index c = 0; c < 128; ++c) CHECK(z(0, c) == 6 * 128 + c);
    // A row that is none is refused when it is met.
    x(0, 0) = 8;
    CHECK(refusal([&] {
            execute(grid, Way::kOneThread, [&](const Step& s) {
              copy(s[xb].block({s[xb](0, 0), 0}, {1, 128}), s[zb]);
            });
          }) ==
          "grid 'row': input 'x': step 0: Ref::block: dimension 0: 8:9 does not lie inside the "
          "extent 8");
    x(0, 0) = 6;
  }
}

}  // namespace
}  // namespace kref
