// SPDX-License-Identifier: Apache-2.0
// Blocks that start at any element: Pallas' programs about them, and windows of every size, offset
// and padding against plain loops.
#include "kernels/kernels.h"
#include "tests/pallas_program.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("element_stencil, element_padding: windows that overlap, windows over padding") {
  const PallasProgram stencil("element_stencil"), padding("element_padding");
  for (const Way way : kWays) {
    const auto x = stencil.in<float, 1>("x");
    auto z = stencil.out<float, 1>("z");
    Grid grid("element_stencil");
    const Axis i = grid.parallel("i", 4);
    const auto xb = grid.in("x", x, {.block = {Element(10)}, .index = {i * 8}});
    const auto zb = grid.out("z", z, {.block = {8}, .index = {i}});
    execute(grid, way, [&](const Step& s) {
      mul_add(s[xb].block({1}, {8}), -2.0f, s[xb].block({0}, {8}), s[zb]);
      add(s[zb], s[xb].block({2}, {8}), s[zb]);
    });
    stencil.expect("z", z);
  }
  for (const Way way : kRunOnly) {
    const auto x = padding.in<float, 1>("x");
    auto z = padding.out<float, 1>("z");
    Grid grid("element_padding");
    const auto xb = grid.in("x", x, {.block = {Element(8, {1, 3})}, .index = {0}});
    const auto zb = grid.out("z", z, {.block = {8}, .index = {0}});
    execute(grid, way, [&](const Step& s) {
      CHECK(s.extents(xb)[0] == 4);
      CHECK(s.margins(xb)[0] == 1);
      copy(s[xb], s[zb]);
    });
    padding.expect("z", z);
  }
}

TEST_CASE("pallas 14: Element windows overlap; out block i = x[8i:8i+8] + x[8i+8:8i+16]") {
  Tensor<float, 2> x({128, 128});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<float>(e % 1021);
  for (const Way way : kWays) {
    Tensor<float, 2> z({120, 128});
    Grid grid("element_indexing");
    const Axis i = grid.parallel("i", 15);
    const auto xb = grid.in("x", x, {.block = {Element(16), Element(128)}, .index = {i * 8, 0}});
    const auto zb = grid.out("z", z, {.block = {8, 128}, .index = {i, 0}});
    execute(grid, way, [&](const Step& s) {
      add(s[xb].block({0, 0}, {8, 128}), s[xb].block({8, 0}, {8, 128}), s[zb]);
    });
    int wrong = 0;
    for (Index r = 0; r < 120; ++r) {
      for (Index c = 0; c < 128; ++c) wrong += z(r, c) != x(r, c) + x(r + 8, c) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("pallas 15: Element outputs, the last of which is cut off by its padding") {
  for (const Index rows : {16, 14}) {
    for (const Way way : kWays) {
      Tensor<I32, 2> z({rows, 128});
      Grid grid("element");
      const Axis i = grid.parallel("i", 2);
      const auto zb = grid.out(
          "z", z, {.block = {Element(8, {0, 16 - rows}), Element(128)}, .index = {i * 8, 0}});
      execute(grid, way, [&](const Step& s) { fill(s[zb], static_cast<I32>(s.index(i))); });
      int wrong = 0;
      for (Index r = 0; r < rows; ++r) {
        for (Index c = 0; c < 128; ++c) wrong += z(r, c) != (r < 8 ? 0 : 1) ? 1 : 0;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("pallas 16: low padding shifts the origin; high padding may be left alone") {
  Tensor<float, 1> x({3}, 42.0f), z({6}, 0.0f);
  Grid grid("padding_is_nan");
  const auto xb = grid.in("x", x, {.block = {Element(6, {1, 2})}, .index = {0}});
  const auto zb = grid.out("z", z);
  grid.run([&](const Step& s) { copy(s[xb], s[zb]); });
  for (Index e = 0; e < 6; ++e) {
    if (e >= 1 && e <= 3) CHECK(z(e) == 42.0f);
    if (e < 1 || e > 3) CHECK(std::isnan(z(e)));
  }

  const auto y = counted<I32, 1>({8});
  Tensor<I32, 1> same({8});
  Grid high("high_padding");
  const auto yb = high.in("y", y, {.block = {Element(16, {0, 8})}, .index = {0}});
  const auto sb = high.out("same", same);
  high.check([&](const Step& s) { copy(s[yb].block({0}, {8}), s[sb]); });
  for (Index e = 0; e < 8; ++e) CHECK(same(e) == e);
}

TEST_CASE("Element windows of every size, padding and offset, beside squeezed and plain blocks") {
  int windows = 0, written = 0;
  for (Index n = 1; n <= 5; ++n) {
    for (Index low = 0; low <= 3; ++low) {
      for (Index high = 0; high <= 2; ++high) {
        for (Index size = 1; size <= n + low + high; ++size) {
          const auto x = counted<I32, 1>({n});
          const Index starts = n + low + high - size + 1;
          for (const Way way : kRunOnly) {
            // Dimension 1 is squeezed, dimension 2 the windows, dimension 3 plain blocks of 2 of 3.
            Tensor<I32, 4> z({starts, 2, size, 3});
            Tensor<I32, 3> y({2, n, 3});
            for (Index e = 0; e < y.size(); ++e) y.data()[e] = static_cast<I32>(e);
            Grid grid("windows");
            const Axis i = grid.parallel("i", starts), j = grid.parallel("j", 2),
                       k = grid.parallel("k", 2);
            const auto yb = grid.in(
                "y", y, {.block = {squeezed, Element(size, {low, high}), 2}, .index = {j, i, k}});
            const auto zb =
                grid.out("z", z, {.block = {squeezed, squeezed, size, 2}, .index = {i, j, 0, k}});
            execute(grid, way, [&](const Step& s) {
              copy(matrix(s[yb]), matrix(s[zb]));
              // The part inside is what valid() shows, and where it says.
              const auto inside = s.valid(yb);
              const Index margin = s.margins(yb)[1];
              for (Index e = 0; e < inside.extent(1); ++e) {
                CHECK(inside(0, e, 0) == matrix(s[yb])(margin + e, 0));
              }
            });
            int wrong = 0;
            for (Index a = 0; a < starts; ++a) {
              for (Index b = 0; b < 2; ++b) {
                for (Index e = 0; e < size; ++e) {
                  for (Index c = 0; c < 3; ++c) {
                    const Index at = a - low + e;
                    const I32 expected = at < 0 || at >= n ? poison<I32>() : y(b, at, c);
                    wrong += z(a, b, e, c) != expected ? 1 : 0;
                  }
                }
              }
            }
            CHECK(wrong == 0);
            windows += static_cast<int>(starts);
          }
          // Outputs: windows side by side, from the first padding on.
          const Index steps = (n + low + high) / size;
          for (const Way way : kRunOnly) {
            Tensor<I32, 1> out({n}, -1);
            Grid grid("writes");
            const Axis i = grid.parallel("i", steps);
            const auto ob =
                grid.out("out", out, {.block = {Element(size, {low, high})}, .index = {i * size}});
            execute(grid, way, [&](const Step& s) {
              for (Index e = 0; e < size; ++e) {
                s[ob](e) = static_cast<I32>(100 + s.index(i) * size + e);
              }
            });
            for (Index e = 0; e < n; ++e) {
              CHECK(out(e) == (e + low < steps * size ? 100 + e + low : -1));
            }
            written += static_cast<int>(steps);
          }
        }
      }
    }
  }
  CHECK(windows > 1000);
  CHECK(written > 500);
}

TEST_CASE("an Element output: what it shares, leaves out or leaves unwritten is named") {
  const auto windows = [](Index size, Index stride, Index steps, Index written) {
    Tensor<I32, 1> z({8});
    Grid grid("g");
    const Axis i = grid.sequential("i", steps);
    const auto zb = grid.out("z", z, {.block = {Element(size)}, .index = {i * stride}});
    return refusal([&] {
      grid.check([&](const Step& s) {
        for (Index e = 0; e < written; ++e) s[zb](e) = 1;
      });
    });
  };
  CHECK(windows(4, 4, 2, 4) == "(not refused)");
  CHECK(windows(4, 2, 3, 4) ==
        "grid 'g': output 'z': block (2) of step 1 (i=1) shares elements with the window of step 0 "
        "(i=0), and an element of an output is written by one visit alone");
  CHECK(windows(3, 3, 2, 3) ==
        "grid 'g': output 'z': cell (6) is visited by no step, it is undefined");
  CHECK(windows(4, 4, 2, 3)
            .starts_with(
                "grid 'g': output 'z': element (3), visited from step 0 (i=0), is never written"));
  CHECK(windows(4, 3, 3, 4) ==
        "grid 'g': output 'z': block (6) of step 2 (i=2) is out of range: dimension 0 has windows "
        "that start at 0:5, elements 6:10, extent 8");
}

TEST_CASE("the blocks of an element_window_past_end are refused, not clamped") {
  const auto x = counted<I32, 1>({8});
  Grid grid("g");
  const Axis i = grid.parallel("i", 4);
  grid.in("x", x, {.block = {Element(4)}, .index = {i * 2}});
  CHECK(refusal([&] { grid.run([](const Step&) {}); }) ==
        "grid 'g': input 'x': block (6) of step 3 (i=3) is out of range: dimension 0 has windows "
        "that start at 0:5, elements 6:10, extent 8");
}

}  // namespace
}  // namespace kref
