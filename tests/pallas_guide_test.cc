// SPDX-License-Identifier: Apache-2.0
// Three kernels of the Pallas TPU guide that are not among the recorded programs, ported with what
// the README says: a fused softmax, a block-sparse matmul, a pipelined reduction.
#include "kernels/kernels.h"
#include "tests/pallas_program.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("a fused softmax of rows, whose last block is ragged") {
  Tensor<float, 2> x({37, 200});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<float>((e * 37) % 101) / 16 - 3;
  for (const Way way : kWays) {
    Tensor<float, 2> z({37, 200});
    Grid grid("softmax");
    const Axis i = grid.parallel("i", cdiv(37, 8));
    const auto xb = grid.in("x", x, {.block = {8, 200}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {8, 200}, .index = {i, 0}});
    const auto row = grid.scratch<float>("row", {8, 1});
    execute(grid, way, [&](const Step& s) {
      row_max(s[xb], s[row]);
      sub(s[xb], s[row], s[zb]);
      exp(s[zb], s[zb]);
      row_sum(s[zb], s[row]);
      div(s[zb], s[row], s[zb]);
    });
    for (Index r = 0; r < 37; ++r) {
      double top = -1e300, sum = 0;
      for (Index c = 0; c < 200; ++c) top = std::max(top, static_cast<double>(x(r, c)));
      for (Index c = 0; c < 200; ++c) sum += std::exp(static_cast<double>(x(r, c)) - top);
      for (Index c = 0; c < 200; ++c) {
        const double e = std::exp(static_cast<double>(x(r, c)) - top) / sum;
        // exp to 1 unit, its argument to half, a sum of 200 terms in 16 lanes, a quotient.
        const double bound = (8 + 16 + 4) * unit_roundoff(DType::kF32) * (e + 1e-30);
        CHECK(std::abs(static_cast<double>(z(r, c)) - e) <= bound);
      }
    }
  }
}

// The guide's sparse @ dense: x is a list of its nonzero blocks in order of rows, whose places two
// tables name; rows without one keep the zeros that z is aliased to.
TEST_CASE("a block-sparse matmul, blocks by tables, the accumulator started where a row begins") {
  constexpr Index kBlock = 8, kRows = 6, kColumns = 5, kNonzero = 9;
  const std::array<I32, kNonzero> rows = {0, 0, 0, 2, 3, 3, 5, 5, 5},
                                  columns = {0, 2, 4, 1, 0, 3, 1, 2, 3};
  Tensor<float, 3> x({kNonzero, kBlock, kBlock});
  Tensor<float, 2> y({kColumns * kBlock, 16});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<float>(e % 7 - 3);
  for (Index e = 0; e < y.size(); ++e) y.data()[e] = static_cast<float>(e % 5 - 2);
  Tensor<float, 2> expected({kRows * kBlock, 16}, 0.0f);
  for (Index t = 0; t < kNonzero; ++t) {
    const auto at = static_cast<std::size_t>(t);
    for (Index r = 0; r < kBlock; ++r) {
      for (Index c = 0; c < 16; ++c) {
        for (Index k = 0; k < kBlock; ++k) {
          expected(rows[at] * kBlock + r, c) += x(t, r, k) * y(columns[at] * kBlock + k, c);
        }
      }
    }
  }
  for (const Way way : kWays) {
    Tensor<float, 2> z({kRows * kBlock, 16}, 0.0f);
    Grid grid("sparse");
    const auto row = grid.prefetch("rows", Ref<const I32, 1>(rows.data(), {kNonzero}));
    const auto column = grid.prefetch("columns", Ref<const I32, 1>(columns.data(), {kNonzero}));
    const Axis j = grid.parallel("j", 2), t = grid.sequential("t", kNonzero);
    const auto to = [=](const Step& s) { return Shape<2>{s[row](s.index(t)), s.index(j)}; };
    const auto from = [=](const Step& s) { return Shape<2>{s[column](s.index(t)), s.index(j)}; };
    const auto xb = grid.in("x", x, {.block = {squeezed, kBlock, kBlock}, .index = {t, 0, 0}});
    const auto yb = grid.in("y", y, {.block = {kBlock, 8}, .index = from});
    grid.in("zeros", z, {.block = {kBlock, 8}, .index = to});
    const auto zb = grid.out("z", z, {.block = {kBlock, 8}, .index = to});
    const auto acc = grid.scratch<float>("acc", {kBlock, 8});
    execute(grid, way, [&](const Step& s) {
      const Index n = s.index(t);
      if (s.first(t) || s[row](n) != s[row](n - 1)) fill(s[acc], 0.0f);
      dot_add(matrix(s[xb]), s[yb], s[acc]);
      if (s.last(t) || s[row](n) != s[row](n + 1)) copy(s[acc], s[zb]);
    });
    for (Index e = 0; e < z.size(); ++e) CHECK(z.data()[e] == expected.data()[e]);
  }
}

// x.sum(axis=0) of the guide: the reduced axis runs last, its windows in two buffers.
TEST_CASE("a pipelined reduction over the first axis") {
  Tensor<float, 3> x({8, 48, 200});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<float>(e % 19 - 9);
  for (const Way way : kWays) {
    Tensor<float, 2> z({48, 200});
    Grid grid("sum");
    const Axis i = grid.parallel("i", cdiv(48, 16)), j = grid.parallel("j", cdiv(200, 128)),
               k = grid.sequential("k", 8);
    const auto xb = grid.in("x", x, {.block = {squeezed, 16, 128}, .index = {k, i, j}});
    const auto zb = grid.out("z", z, {.block = {16, 128}, .index = {i, j}});
    const Trace trace = execute(grid, way, [&](const Step& s) {
      if (s.first(k)) fill(s[zb], 0.0f);
      add(s[zb], matrix(s[xb]), s[zb]);
    });
    CHECK(trace["x"].fetches == 48);
    CHECK(trace["z"].write_backs == 6);
    CHECK(grid.tpu_report().empty());
    CHECK(grid.cost().vmem_bytes == 4 * 16 * 128 * 4);
    for (Index e = 0; e < z.size(); ++e) {
      float sum = 0;
      for (Index n = 0; n < 8; ++n) sum += x.data()[n * z.size() + e];
      CHECK(z.data()[e] == sum);
    }
  }
}

}  // namespace
}  // namespace kref
