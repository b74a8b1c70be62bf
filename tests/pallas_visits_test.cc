// SPDX-License-Identifier: Apache-2.0
// Behaviours that Pallas' own tests hold, about visits of blocks and what is kept from step to
// step; numbered as in the semantics.
#include "kernels/kernels.h"
#include "tests/filled_blocks.h"
#include "tests/pallas_program.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("pallas 4: a run of equal indices is one visit; coming back names output and step") {
  for (const Way way : kWays) {
    Tensor<float, 2> a({4, 2}), z({2, 2}, 0.0f);
    Grid fine("fine");
    const Axis i = fine.sequential("i", 4), j = fine.sequential("j", 4);
    const auto ab = fine.out("a", a, {.block = {1, 1}, .index = {i, j / 2}});
    execute(fine, way, [&](const Step& s) {
      if (s.index(j) % 2 == 0) s[ab](0, 0) = 0;
      s[ab](0, 0) += static_cast<float>(s.index(j));
    });
    for (Index r = 0; r < 4; ++r) CHECK((a(r, 0) == 1 && a(r, 1) == 5));

    Grid back("back");
    const Axis k = back.sequential("i", 4), l = back.sequential("j", 4);
    back.out("z", z, {.block = {1, 1}, .index = {l / 2, k % 2}});
    CHECK(refusal([&] { execute(back, way, [](const Step&) {}); }) ==
          "grid 'back': output 'z': block (0,0) of step 8 (i=2, j=0) was left before: it was "
          "visited in steps 0 through 1, and an output block is visited in consecutive steps");
  }
}

TEST_CASE("pallas 5, 6, 7: accumulators over grids whose sizes are data, and scratch") {
  const Index n = 4;
  for (const Way way : kWays) {
    Tensor<float, 2> z({8, 128});
    Grid grid("overflow");
    const Axis axes[] = {grid.sequential("i", 2 * n), grid.sequential("j", n + 1),
                         grid.sequential("k", 3)};
    const auto zb = grid.out("z", z);
    const Trace trace = execute(grid, way, [&](const Step& s) {
      if (s.first(axes[0]) && s.first(axes[1]) && s.first(axes[2])) fill(s[zb], 0.0f);
      add(s[zb], 1.0f, s[zb]);
    });
    CHECK(all(z, 120.0f));
    CHECK(trace["z"].write_backs == 1);

    Tensor<float, 2> eight({8, 128});
    Grid one("dynamic");
    const Axis i = one.sequential("i", 2 * n);
    const auto eb = one.out("z", eight);
    execute(one, way, [&](const Step& s) {
      if (s.first(i)) fill(s[eb], 0.0f);
      add(s[eb], 1.0f, s[eb]);
    });
    CHECK(all(eight, 8.0f));

    const auto x = counted<float, 2>({8, 128});
    Tensor<float, 2> y({8, 128});
    Grid kept("scratch");
    const Axis t = kept.sequential("t", 3);
    const auto xb = kept.in("x", x);
    const auto yb = kept.out("y", y);
    const auto sum = kept.scratch<float>("sum", {8, 128});
    execute(kept, way, [&](const Step& s) {
      if (s.first(t)) copy(s[xb], s[sum]);
      add(s[sum], 1.0f, s[sum]);
      if (s.last(t)) copy(s[sum], s[yb]);
    });
    for (Index e = 0; e < y.size(); ++e) CHECK(y.data()[e] == x.data()[e] + 3);
  }
}

TEST_CASE("pallas 11: blocks (2, 512, 256) of (7, 768, 640): padding never leaks") {
  const auto x = counted<float, 3>({7, 768, 640});
  Tensor<float, 3> y({7, 768, 640});
  Grid grid("uneven");
  const Axis i = grid.parallel("i", 4), j = grid.parallel("j", 2), k = grid.parallel("k", 3);
  const auto xb = grid.in("x", x, {.block = {2, 512, 256}, .index = {i, j, k}});
  const auto yb = grid.out("y", y, {.block = {2, 512, 256}, .index = {i, j, k}});
  grid.run([&](const Step& s) { add(s[xb], 1.0f, s[yb]); });
  Index wrong = 0;
  for (Index e = 0; e < x.size(); ++e) wrong += y.data()[e] != x.data()[e] + 1 ? 1 : 0;
  CHECK(wrong == 0);
}

TEST_CASE("pallas 13: a block written in part is stored whole, poison included") {
  for (const Way way : kRunOnly) {
    Tensor<float, 2> f({16, 4}, 1.0f);
    Tensor<I32, 2> n({16, 4}, 1);
    Grid grid("poison");
    const Axis i = grid.parallel("i", 2);
    const auto fb = grid.out("f", f, {.block = {8, 4}, .index = {i, 0}});
    const auto nb = grid.out("n", n, {.block = {8, 4}, .index = {i, 0}});
    execute(grid, way, [&](const Step& s) {
      fill(s[fb].block({0, 0}, {4, 4}), 2.0f);
      fill(s[nb].block({0, 0}, {4, 4}), 2);
    });
    for (Index r = 0; r < 16; ++r) {
      CHECK((r % 8 < 4 ? f(r, 3) == 2 : std::isnan(f(r, 3))));
      CHECK(n(r, 3) == (r % 8 < 4 ? 2 : std::numeric_limits<I32>::min()));
    }
  }
}

TEST_CASE("pallas 22: gathers by lists that repeat and turn back, with one buffer or two") {
  const auto x = counted<float, 2>({8, 8});
  const std::array<I32, 10> lists[] = {{2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
                                       {0, 0, 2, 3, 3, 3, 1, 7, 6, 6},
                                       {7, 6, 5, 4, 3, 2, 1, 0, 1, 2}};
  for (const auto& list : lists) {
    Index changes = 1;
    for (std::size_t n = 1; n < 10; ++n) changes += list[n] != list[n - 1] ? 1 : 0;
    const Ref<const I32, 1> table(list.data(), {10});
    for (int buffers = 0; buffers <= 2; ++buffers) {
      for (const Way way : kWays) {
        Tensor<float, 2> z({10, 8});
        Grid grid("gather");
        const auto t = grid.prefetch("t", table);
        const Axis i = grid.sequential("i", 10);
        const auto xb = grid.in("x", x,
                                {.block = {1, 8},
                                 .index =
                                     [=](const Step& s) {
                                       return Shape<2>{s[t](s.index(i)), 0};
                                     },
                                 .pipeline_mode = {.count = buffers}});
        const auto zb = grid.out("z", z, {.block = {1, 8}, .index = {i, 0}});
        const Trace trace = execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
        for (Index n = 0; n < 10; ++n) CHECK(z(n, 7) == x(list[static_cast<std::size_t>(n)], 7));
        CHECK(trace["x"].fetches == changes);
      }
    }
  }
}

TEST_CASE("pallas 23: a scatter by [0,0,2,2,2,5,3,3]: the last of a run wins, the rest stays") {
  const auto x = counted<float, 2>({8, 8});
  const std::array<I32, 8> list = {0, 0, 2, 2, 2, 5, 3, 3};
  for (const Way way : kWays) {
    Tensor<float, 2> z({8, 8}, -1.0f);
    Grid grid("scatter");
    const auto t = grid.prefetch("t", Ref<const I32, 1>(list.data(), {8}));
    const Axis i = grid.sequential("i", 8);
    const auto to = [=](const Step& s) { return Shape<2>{s[t](s.index(i)), 0}; };
    const auto xb = grid.in("x", x, {.block = {1, 8}, .index = {i, 0}});
    grid.in("before", z, {.block = {1, 8}, .index = to});
    const auto zb = grid.out("z", z, {.block = {1, 8}, .index = to});
    execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
    const float from[] = {1, -1, 4, 7, -1, 5, -1, -1};
    for (Index r = 0; r < 8; ++r) {
      CHECK(z(r, 0) == (from[r] < 0 ? -1 : x(static_cast<Index>(from[r]), 0)));
    }
  }
}

}  // namespace
}  // namespace kref
