// SPDX-License-Identifier: Apache-2.0
// Tables, buffer counts, outputs that are revisited, cores.
#include <map>

#include "kernels/kernels.h"
#include "tests/pallas_program.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

template <class T>
void gather_by(std::initializer_list<int> places, Index blocks) {
  CAPTURE(name_of(dtype_of<T>));
  const auto x = counted<float, 2>({2 * blocks, 4});
  Tensor<T, 1> table({static_cast<Index>(places.size())});
  Index n = 0;
  for (const int place : places) table(n++) = static_cast<T>(static_cast<float>(place));
  for (const Way way : kWays) {
    Tensor<float, 2> z({2 * n, 4});
    Grid grid("gather");
    const auto s = grid.prefetch("s", table);
    const Axis i = grid.parallel("i", n);
    const auto from = [=](const Step& step) {
      return Shape<2>{static_cast<Index>(static_cast<float>(step[s](step.index(i)))), 0};
    };
    const auto xb = grid.in("x", x, {.block = {2, 4}, .index = from});
    const auto zb = grid.out("z", z, {.block = {2, 4}, .index = {i, 0}});
    const Trace trace = execute(grid, way, [&](const Step& step) { copy(step[xb], step[zb]); });
    CHECK(trace["s"].fetches == 1);
    CHECK(trace["s"].bytes == n * static_cast<Index>(sizeof(T)));
    n = 0;
    for (const int place : places) {
      for (Index r = 0; r < 2; ++r) CHECK(z(2 * n + r, 3) == x(2 * place + r, 3));
      ++n;
    }
  }
}

TEST_CASE("pallas 18: a table names the blocks; narrow, f32 and bf16 tables") {
  gather_by<I32>({4, 3, 2, 5, 3, 5, 2, 7}, 8);
  gather_by<std::int16_t>({4, 1025, 2, 0}, 1026);
  gather_by<std::int8_t>({4, 3, 127, 5}, 128);
  gather_by<bf16>({4, 256, 2, 64}, 257);
  gather_by<float>({1025, 0, 3}, 1026);
}

TEST_CASE("pallas 19, 41: several tables, for maps and bodies, with scratch and a dynamic grid") {
  const auto x = counted<float, 2>({8, 4});
  Tensor<I32, 1> s1({8}), s2({8});
  Tensor<I32, 0> scale(Shape<0>{}, 3);
  for (Index i = 0; i < 8; ++i)
    s1(i) = static_cast<I32>(i * 3 % 8), s2(i) = static_cast<I32>(7 - i);
  for (const Way way : kWays) {
    Tensor<float, 2> z({8, 4});
    Grid grid("two_tables");
    const auto t1 = grid.prefetch("s1", s1), t2 = grid.prefetch("s2", s2);
    const auto by = grid.prefetch("scale", scale);
    const Axis i = grid.parallel("i", s1.extent(0));
    const auto xb = grid.in("x", x, {.block = {1, 4}, .index = [=](const Step& s) {
                                       return Shape<2>{s[t1](s.index(i)), 0};
                                     }});
    const auto zb = grid.out("z", z, {.block = {1, 4}, .index = [=](const Step& s) {
                                        return Shape<2>{s[t2](s.index(i)), 0};
                                      }});
    const auto row = grid.scratch<float>("row", {1, 4});
    execute(grid, way, [&](const Step& s) {
      mul(s[xb], static_cast<float>(s[by]()), s[row]);
      copy(s[row], s[zb]);
    });
    for (Index i8 = 0; i8 < 8; ++i8) CHECK(z(7 - i8, 2) == 3 * x(s1(i8), 2));
  }
}

TEST_CASE("pallas 21: an output that comes back to its blocks, with Revisit::kAny") {
  const auto x = counted<float, 2>({12, 12});
  for (const bool callable : {false, true}) {
    for (const Way way : kWays) {
      Tensor<float, 2> z({4, 12});
      Grid grid("any");
      const Axis i = grid.sequential("i", 3), j = grid.sequential("j", 3);
      const auto column = [=](const Step& s) { return Shape<2>{0, s.index(j)}; };
      const auto xb = grid.in("x", x, {.block = {4, 4}, .index = {i, j}});
      const auto zb = grid.out("z", z,
                               {.block = {4, 4},
                                .index = callable ? IndexMap<2>(column) : IndexMap<2>(0, j),
                                .pipeline_mode = {.count = 1, .revisit = Revisit::kAny}});
      const Trace trace = execute(grid, way, [&](const Step& s) {
        if (s.first(i)) fill(s[zb], 0.0f);
        add(s[zb], s[xb], s[zb]);
      });
      CHECK(trace["z"].write_backs == 9);
      CHECK(trace["z"].fetches == 6);
      int wrong = 0;
      for (Index r = 0; r < 4; ++r) {
        for (Index c = 0; c < 12; ++c) {
          wrong += z(r, c) != x(r, c) + x(r + 4, c) + x(r + 8, c) ? 1 : 0;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Revisit::kAny is for one point of the parallel axes, and for declared outputs") {
  Tensor<float, 1> z({4}, 0.0f);
  const auto message = [&](Buffered mode, bool shared) {
    Grid g("g");
    const Axis i = g.parallel("i", 2);
    g.sequential("k", 2);
    return refusal([&] {
      g.out("z", z,
            {.block = {2},
             .index = [=](const Step& s) { return Shape<1>{shared ? 0 : s.index(i)}; },
             .pipeline_mode = mode});
      g.run([](const Step&) {});
    });
  };
  CHECK(message({1, Revisit::kAny}, false) == "(not refused)");
  CHECK(message({1, Revisit::kAny}, true) ==
        "grid 'g': output 'z': block (0) of step 2 (i=1, k=0) was visited at other coordinates of "
        "the parallel axes, in step 0 (i=0, k=0), where Revisit::kAny does not lead");
  CHECK(message({2, Revisit::kAny}, false).find("Revisit::kAny with two buffers") !=
        std::string::npos);
  CHECK(message({3, Revisit::kImmediate}, false) ==
        "grid 'g': output 'z': Buffered(3): only single (1) and double (2) buffering are "
        "supported");
}

TEST_CASE("pallas 48, 49: two buffers where a block moves, one where it cannot, or as declared") {
  Tensor<float, 2> x({32, 128}, 1.0f), y({32, 128}, 2.0f), z({32, 128});
  const Index block = 8 * 128 * 4;
  for (int bx = 1; bx <= 2; ++bx) {
    for (int by = 1; by <= 2; ++by) {
      Grid grid("vadd");
      const Axis i = grid.parallel("i", 4);
      const auto spec = [&](int count) {
        return BlockSpec<2>{.block = {8, 128}, .index = {i, 0}, .pipeline_mode = {.count = count}};
      };
      const auto xb = grid.in("x", x, spec(bx)), yb = grid.in("y", y, spec(by));
      const auto zb = grid.out("z", z, spec(0));
      CHECK(grid.cost().vmem_bytes == block * (2 + bx + by));
      const auto body = [&](const Step& s) { add(s[xb], s[yb], s[zb]); };
      grid.check(body, {.vmem_bytes = block * (2 + bx + by)});
      CHECK(refusal([&] {
              grid.check(body, {.vmem_bytes = block * (2 + bx + by) - 1});
            }).starts_with("grid 'vadd': windows and scratch need "));
    }
  }
  for (const bool moves : {false, true}) {
    Grid grid("single");
    const Axis i = grid.parallel("i", 4), j = grid.parallel("j", 1);
    grid.in("x", x, {.block = {8, 128}, .index = {moves ? AxisExpr(i) : AxisExpr(j), 0}});
    CHECK(grid.cost().vmem_bytes == block * (moves ? 2 : 1));
  }
}

TEST_CASE("pallas 35: parallel coordinates in a seeded order, shared out among cores in chunks") {
  for (Index cores = 1; cores <= 6; ++cores) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Tensor<I32, 2> z({4, 4});
      Grid grid("cores");
      const Axis i = grid.parallel("i", 4), j = grid.sequential("j", 4);
      const auto zb = grid.out("z", z, {.block = {1, 1}, .index = {i, j}});
      const Trace trace = grid.check(
          [&](const Step& s) { s[zb](0, 0) = static_cast<I32>(4 * s.index(i) + s.index(j)); },
          {.seed = seed, .cores = cores});
      REQUIRE(trace.order.size() == 16);
      std::map<Index, Index> rows_of;  // of a core
      bool moved = false;
      for (std::size_t n = 0; n < 16; ++n) {
        const auto [core, step] = trace.order[n];
        CHECK(step % 4 == static_cast<Index>(n % 4));  // each row ascends, on one core
        CHECK(core == trace.order[n / 4 * 4].core);
        CHECK(step / 4 == trace.order[n / 4 * 4].step / 4);
        if (n % 4 == 0) ++rows_of[core];
        moved = moved || step != static_cast<Index>(n);
      }
      CHECK(moved);
      const Index chunk = cdiv(4, cores), used = cdiv(4, chunk);  // 3 cores as 2, 5 and 6 as 4
      CHECK(static_cast<Index>(rows_of.size()) == used);
      for (const auto& [core, rows] : rows_of) {
        CHECK(core < used);
        CHECK(rows == chunk);
      }
      for (Index e = 0; e < 16; ++e) CHECK(z.data()[e] == e);
    }
  }
}

}  // namespace
}  // namespace kref
