// SPDX-License-Identifier: Apache-2.0
// A tutorial: kernels known from the Pallas documentation, written for kref one after the other.
// Each is compared with what JAX's interpreter computed for the same inputs.
#include <algorithm>

#include "kernels/kernels.h"
#include "tests/pallas_program.h"

namespace kref {
namespace {

// ---- 1. A grid, blocks, a body ------------------------------------------------------------------

// z = x + y, a block of 32 a step. In Pallas:
//   block = pl.BlockSpec((32,), lambda i: (i,))
//   pl.pallas_call(body, grid=(4,), in_specs=[block] * 2, out_specs=block, out_shape=...)(x, y)
// The step gives the blocks: s[xb] is x_ref[...]. Verbs like add work on whole blocks.
TEST_CASE("add") {
  const PallasProgram program("add_1d");
  const auto x = program.in<float, 1>("x"), y = program.in<float, 1>("y");  // (128)
  for (const Way way : kWays) {
    auto z = program.out<float, 1>("z");  // (128)
    Grid grid("add");
    const Axis i = grid.parallel("i", 4);
    const auto xb = grid.in("x", x, {.block = {32}, .index = {i}});
    const auto yb = grid.in("y", y, {.block = {32}, .index = {i}});
    const auto zb = grid.out("z", z, {.block = {32}, .index = {i}});
    execute(grid, way, [&](const Step& s) { add(s[xb], s[yb], s[zb]); });
    program.expect("z", z);
  }
}

// ---- 2. Edges -----------------------------------------------------------------------------------

// 13 x 21 in blocks of 4 x 8: cdiv says how many blocks cover a dimension. The last ones stick out.
// s[xb] is a whole block all the same; outside the array it holds poison, and what is written there
// is dropped.
TEST_CASE("add one to an array that blocks do not divide") {
  const PallasProgram program("edge_both");
  const auto x = program.in<std::int32_t, 2>("x");  // (13, 21)
  for (const Way way : kWays) {
    auto z = program.out<std::int32_t, 2>("z");  // (13, 21)
    Grid grid("add_one");
    const Axis i = grid.parallel("i", cdiv(x.extent(0), 4));
    const Axis j = grid.parallel("j", cdiv(x.extent(1), 8));
    const auto xb = grid.in("x", x, {.block = {4, 8}, .index = {i, j}});
    const auto zb = grid.out("z", z, {.block = {4, 8}, .index = {i, j}});
    const auto one = grid.scratch<std::int32_t>("one", {4, 8});
    execute(grid, way, [&](const Step& s) {
      fill(s[one], 1);
      add(s[xb], s[one], s[zb]);
    });
    program.expect("z", z);
  }
}

// A sum must not run into the poison. s.valid(xb) is the part of the block inside the array: no
// mask is needed, and no block is copied.
TEST_CASE("sums of rows whose last block is ragged") {
  const PallasProgram program("row_sums");
  const auto x = program.in<float, 2>("x");  // (8, 20)
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");  // (8, 1)
    Grid grid("row_sums");
    const Axis i = grid.parallel("i", 2);
    const Axis k = grid.sequential("k", cdiv(20, 8));
    const auto xb = grid.in("x", x, {.block = {4, 8}, .index = {i, k}});
    const auto zb = grid.out("z", z, {.block = {4, 1}, .index = {i, 0}});
    const auto part = grid.scratch<float>("part", {4, 1});
    execute(grid, way, [&](const Step& s) {
      if (s.first(k)) fill(s[zb], 0.0f);
      for (Index r = 0; r < 4; ++r) {
        s[part](r, 0) = 0;
        for (Index c = 0; c < s.extents(xb)[1]; ++c) s[part](r, 0) += s[xb](r, c);
      }
      add(s[zb], s[part], s[zb]);
    });
    program.expect("z", z);
  }
}

// ---- 3. Matmul ----------------------------------------------------------------------------------

// The accumulator is scratch: it has no index, hence it stays. z does not mention k, hence k must
// be sequential; the grid would refuse anything else.
TEST_CASE("matmul") {
  const PallasProgram program("matmul_f32");
  const auto x = program.in<float, 2>("x");  // (32, 48)
  const auto y = program.in<float, 2>("y");  // (48, 40)
  Tensor<float, 2> first;
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");  // (32, 40)
    Grid grid("matmul");
    const Axis i = grid.parallel("i", 2);
    const Axis j = grid.parallel("j", 5);
    const Axis k = grid.sequential("k", 3);
    const auto xb = grid.in("x", x, {.block = {16, 16}, .index = {i, k}});
    const auto yb = grid.in("y", y, {.block = {16, 8}, .index = {k, j}});
    const auto zb = grid.out("z", z, {.block = {16, 8}, .index = {i, j}});
    const auto acc = grid.scratch<float>("acc", {16, 8});
    const Trace trace = execute(grid, way, [&](const Step& s) {
      if (s.first(k)) fill(s[acc], 0.0f);
      dot_add(s.valid(xb), s.valid(yb), s[acc]);
      if (s.last(k)) copy(s[acc], s[zb]);
    });
    CHECK(trace["x"].fetches == 2 * 5 * 3);
    CHECK(trace["z"].write_backs == 2 * 5);

    // The interpreter sums in another order: either is off by at most 48 roundings of the sum of
    // absolute products.
    program.expect_within("z", z, [&](Index e) {
      double sum = 0;
      for (Index t = 0; t < 48; ++t) sum += std::abs(double{x(e / 40, t)} * double{y(t, e % 40)});
      return 2 * 48 * unit_roundoff(DType::kF32) * sum;
    });
    // Here, every way gives the same bits.
    if (first.size() != z.size()) first = z;
    CHECK(std::memcmp(first.data(), z.data(), 32 * 40 * sizeof(float)) == 0);
  }
}

// ---- 4. Softmax ---------------------------------------------------------------------------------

// Rows over ragged column blocks, in one pass: running maximum and sum, rescaled when the maximum
// grows. The last step turns them into the logarithm of the sum.
TEST_CASE("statistics of softmax, online") {
  const PallasProgram program("online_softmax_stats");
  const auto x = program.in<float, 2>("x");  // (12, 40)
  for (const Way way : kWays) {
    auto top = program.out<float, 2>("top"), lse = program.out<float, 2>("lse");  // (12, 1)
    Grid grid("online_softmax_stats");
    const Axis i = grid.parallel("i", 3);
    const Axis k = grid.sequential("k", cdiv(40, 16));
    const auto xb = grid.in("x", x, {.block = {4, 16}, .index = {i, k}});
    const auto tb = grid.out("top", top, {.block = {4, 1}, .index = {i, 0}});
    const auto lb = grid.out("lse", lse, {.block = {4, 1}, .index = {i, 0}});
    const auto row_max = grid.scratch<float>("row_max", {4});
    const auto row_sum = grid.scratch<float>("row_sum", {4});
    execute(grid, way, [&](const Step& s) {
      const Ref<float, 1> m = s[row_max], sum = s[row_sum];
      if (s.first(k)) {
        fill(m, -INFINITY);
        fill(sum, 0.0f);
      }
      const Ref<const float, 2> block = s.valid(xb);
      for (Index r = 0; r < 4; ++r) {
        float grown = m(r);
        for (Index c = 0; c < block.extent(1); ++c) grown = std::max(grown, block(r, c));
        sum(r) *= std::exp(m(r) - grown);
        for (Index c = 0; c < block.extent(1); ++c) sum(r) += std::exp(block(r, c) - grown);
        m(r) = grown;
      }
      if (!s.last(k)) return;
      for (Index r = 0; r < 4; ++r) {
        s[tb](r, 0) = m(r);
        s[lb](r, 0) = m(r) + std::log(sum(r));
      }
    });
    program.expect("top", top);
    // A sum of 40 terms with a few roundings each, its logarithm, one more addition.
    program.expect_within("lse", lse, [&](Index e) {
      return unit_roundoff(DType::kF32) * (2 * 50 + 4 * std::abs(double{lse.data()[e]}));
    });
  }
}

TEST_CASE("softmax of rows") {
  Tensor<float, 2> x({10, 33});
  for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<float>(e * 37 % 101) / 16;
  for (const Way way : kWays) {
    Tensor<float, 2> z({10, 33});
    Grid grid("softmax");
    const Axis i = grid.parallel("i", cdiv(10, 4));
    const auto xb = grid.in("x", x, {.block = {4, 33}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {4, 33}, .index = {i, 0}});
    execute(grid, way, [&](const Step& s) {
      const Ref<const float, 2> in = s.valid(xb);
      const Ref<float, 2> out = s.valid(zb);
      for (Index r = 0; r < in.extent(0); ++r) {
        const float* row = &in(r, 0);
        const float top = *std::max_element(row, row + 33);
        float sum = 0;
        for (Index c = 0; c < 33; ++c) sum += out(r, c) = std::exp(in(r, c) - top);
        for (Index c = 0; c < 33; ++c) out(r, c) /= sum;
      }
    });
    for (Index r = 0; r < 10; ++r) {
      double sum = 0;
      for (Index c = 0; c < 33; ++c) sum += std::exp(double{x(r, c)} - double{x(r, 0)});
      for (Index c = 0; c < 33; ++c) {
        const double expected = std::exp(double{x(r, c)} - double{x(r, 0)}) / sum;
        CHECK(std::abs(double{z(r, c)} - expected) <= expected * 40 * unit_roundoff(DType::kF32));
      }
    }
  }
}

// ---- 5. Layer normalisation ---------------------------------------------------------------------

// gamma and beta have one block for all steps: their index is 0, so they are fetched once.
TEST_CASE("layer normalisation") {
  const PallasProgram program("layernorm_rows");
  const auto x = program.in<float, 2>("x");  // (10, 48)
  const auto gamma = program.in<float, 2>("gamma"), beta = program.in<float, 2>("beta");  // (1, 48)
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");  // (10, 48)
    Grid grid("layernorm");
    const Axis i = grid.parallel("i", cdiv(10, 4));
    const auto xb = grid.in("x", x, {.block = {4, 48}, .index = {i, 0}});
    const auto gb = grid.in("gamma", gamma);
    const auto bb = grid.in("beta", beta);
    const auto zb = grid.out("z", z, {.block = {4, 48}, .index = {i, 0}});
    const Trace trace = execute(grid, way, [&](const Step& s) {
      const Ref<const float, 2> in = s.valid(xb);
      for (Index r = 0; r < in.extent(0); ++r) {
        float mean = 0, variance = 0;
        for (Index c = 0; c < 48; ++c) mean += in(r, c) / 48;
        for (Index c = 0; c < 48; ++c) variance += (in(r, c) - mean) * (in(r, c) - mean) / 48;
        const float scale = 1 / std::sqrt(variance + 1e-5f);
        for (Index c = 0; c < 48; ++c) {
          s[zb](r, c) = (in(r, c) - mean) * scale * s[gb](0, c) + s[bb](0, c);
        }
      }
    });
    CHECK(trace["gamma"].fetches == 1);
    program.expect_within("z", z, [&](Index e) {
      return 120 * unit_roundoff(DType::kF32) *
             (std::abs(double{z.data()[e]}) + 2 * std::abs(double{gamma(0, e % 48)}) +
              std::abs(double{beta(0, e % 48)}));
    });
  }
}

// ---- 6. Tables ----------------------------------------------------------------------------------

// What Pallas reads from scalar prefetch in an index map, a callable of the step reads from a
// table.
TEST_CASE("gather of blocks by a table") {
  const PallasProgram program("gather_blocks");
  const auto table = program.in<std::int32_t, 1>("s");  // (8)
  const auto x = program.in<float, 2>("x");             // (16, 4)
  for (const Way way : kWays) {
    auto z = program.out<float, 2>("z");  // (16, 4)
    Grid grid("gather");
    const auto entries = grid.prefetch("s", table);
    const Axis i = grid.parallel("i", 8);
    const auto from = [=](const Step& s) { return Shape<2>{s[entries](s.index(i)), 0}; };
    const auto xb = grid.in("x", x, {.block = {2, 4}, .index = from});
    const auto zb = grid.out("z", z, {.block = {2, 4}, .index = {i, 0}});
    const Trace trace = execute(grid, way, [&](const Step& s) { copy(s[xb], s[zb]); });
    CHECK(trace["x"].fetches == 7);  // one block twice in a row
    program.expect("z", z);
  }
}

}  // namespace
}  // namespace kref
