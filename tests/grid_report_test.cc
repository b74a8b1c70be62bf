// SPDX-License-Identifier: Apache-2.0
// What a TPU has against a grid, and what a grid costs.
#include "kernels/kernels.h"
#include "tests/pallas_program.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

// "" or the rules that a TPU has against blocks of that shape, joined.
template <std::size_t R>
std::string objections(const Shape<R>& array, const BlockSpec<R>& spec, DType type,
                       const char* chip = "v5e") {
  return with_dtype(type, [&]<class T>() {
    std::array<Index, R> strides{};  // a broadcast: nothing is read
    if constexpr (R > 0) strides[R - 1] = 1;
    static const T memory[8192]{};
    Grid g("g");
    g.sequential("i", 1);
    g.in("x", Ref<const T, R>(memory, array, strides), spec);
    std::string rules;
    for (const TpuWarning& w : g.tpu_report(chip)) {
      CHECK(w.text.starts_with("grid 'g': input 'x': "));
      rules += (rules.empty() ? "" : " ") + w.rule;
    }
    return rules;
  });
}

TEST_CASE("pallas 47: the table of legal block shapes") {
  const auto rank1 = [](Index array, Index block, DType type = DType::kF32) {
    return objections<1>({array}, {.block = {block}, .index = {0}}, type);
  };
  const auto i16 = DType::kI16, i8 = DType::kI8;
  for (const auto& [array, block] :
       {std::pair<Index, Index>{2, 2}, {128, 128}, {1024, 128}, {2048, 256}, {4096, 2048}}) {
    CHECK(rank1(array, block) == "");
  }
  for (const auto& [array, block] : {std::pair<Index, Index>{256, 256}, {1024, 256}, {2048, 512}}) {
    CHECK(rank1(array, block, i16) == "");
  }
  for (const auto& [array, block] : {std::pair<Index, Index>{512, 512}, {1024, 512}, {2048, 512}}) {
    CHECK(rank1(array, block, i8) == "");
  }
  for (const auto& [array, block] : {std::pair<Index, Index>{128, 64}, {3072, 384}, {2304, 1152}}) {
    CHECK(rank1(array, block) == "rank 1");
  }
  for (const auto& [array, block] :
       {std::pair<Index, Index>{256, 128}, {3072, 768}, {2560, 1280}}) {
    CHECK(rank1(array, block, i16) == "rank 1");
  }
  for (const auto& [array, block] : {std::pair<Index, Index>{512, 256}, {3072, 1536}}) {
    CHECK(rank1(array, block, i8) == "rank 1");
  }
  CHECK(objections<0>({}, {.block = {}, .index = {}}, DType::kF32) == "rank");
  CHECK(objections<1>({1024}, {.block = {128}, .index = {0}}, DType::kF32, "v3") == "rank 1");
  CHECK(objections<1>({4096}, {.block = {2048}, .index = {0}}, DType::kF32, "8t") == "");
  CHECK(objections<1>({6144}, {.block = {3072}, .index = {0}}, DType::kF32, "8t") == "rank 1");

  const auto rank2 = [](Index m, Index n, Index bm, Index bn) {
    return objections<2>({m, n}, {.block = {bm, bn}, .index = {0, 0}}, DType::kF32);
  };
  for (const auto& [m, n, bm, bn] : {Shape<4>{2, 2, 2, 2},
                                     {3, 3, 3, 3},
                                     {16, 128, 8, 128},
                                     {16, 64, 8, 64},
                                     {9, 128, 9, 128},
                                     {8, 129, 8, 129},
                                     {9, 129, 8, 129},
                                     {9, 129, 9, 129},
                                     {5, 128, 8, 128}}) {
    CHECK(rank2(m, n, bm, bn) == "");
  }
  for (const auto& [m, n, bm, bn] : {Shape<4>{4, 2, 2, 2},
                                     {16, 128, 4, 128},
                                     {16, 128, 2, 128},
                                     {16, 128, 8, 64},
                                     {9, 128, 9, 64},
                                     {18, 128, 9, 128},
                                     {1, 128, 4, 128},
                                     {2, 128, 4, 128},
                                     {3, 128, 4, 128}}) {
    CHECK(rank2(m, n, bm, bn) == "tile");
  }
  const auto rank3 = [](Index a, Index m, Index n, BlockDim b, Index bm, Index bn) {
    return objections<3>({a, m, n}, {.block = {b, bm, bn}, .index = {0, 0, 0}}, DType::kF32);
  };
  CHECK(rank3(6, 2, 2, 2, 2, 2) == "");
  CHECK(rank3(6, 2, 2, 3, 2, 2) == "");
  CHECK(rank3(6, 16, 128, 2, 8, 128) == "");
  CHECK(rank3(6, 16, 128, 3, 8, 128) == "");
  CHECK(rank3(6, 16, 128, squeezed, 8, 128) == "");
  // Squeezed counts as 1; Elements stand alone, and nothing is padded in front.
  CHECK(objections<2>({4, 128}, {.block = {squeezed, 128}, .index = {0, 0}}, DType::kF32) ==
        "tile");
  CHECK(objections<2>({32, 128}, {.block = {Element(8), 128}, .index = {0, 0}}, DType::kF32) ==
        "element");
  CHECK(objections<2>({32, 128}, {.block = {Element(8, {8, 0}), Element(128)}, .index = {0, 0}},
                      DType::kF32) == "padding");
}

TEST_CASE("the TPU's report: no grid, memory of a named chip; check hands it on as warnings") {
  Tensor<float, 2> x({16, 128}, 0.0f);
  Tensor<I32, 1> table({8192}, 0);
  Grid g("g");
  g.prefetch("table", table);
  g.in("x", x, {.block = {8, 128}, .index = {0, 0}});
  g.scratch<float>("acc", {8192, 1024});
  const auto rules = [](const std::vector<TpuWarning>& warnings) {
    std::string out;
    for (const TpuWarning& w : warnings) out += w.rule + "; ";
    return out;
  };
  CHECK(rules(g.tpu_report("v5e")) == "no grid; ");
  CHECK(rules(g.tpu_report("v2")) == "no grid; vmem; smem; ");
  CHECK(g.tpu_report("v2")[2].text ==
        "grid 'g': tables need 32768 bytes of SMEM, expected at most 16384, the SMEM of a "
        "TensorCore of v2");
  CHECK(rules(g.check([](const Step&) {}).warnings) == "no grid; ");
  CHECK(refusal([&] { g.tpu_report("v9"); }).starts_with("grid 'g': chip 'v9' is not known"));
}

TEST_CASE("pallas 94: exp(x + y) of ten: 10 flops, 10 transcendentals, 120 bytes") {
  const auto x = counted<float, 1>({10}), y = counted<float, 1>({10});
  Tensor<float, 1> z({10}, 7.0f);
  Grid grid("exp_add");
  const auto xb = grid.in("x", x), yb = grid.in("y", y);
  const auto zb = grid.out("z", z);
  const GridCost cost = grid.cost([&](const Step& s) {
    add(s[xb], s[yb], s[zb]);
    exp(s[zb], s[zb]);
  });
  CHECK(cost.flops == 10);
  CHECK(cost.transcendentals == 10);
  CHECK(cost.bytes == 120);
  CHECK(cost.steps == 1);
  CHECK(cost.index_operations == 15);
  CHECK(z(0) == 7.0f);  // the arrays are as they were
}

TEST_CASE("cost of a tiled matmul, and of a batch of it") {
  const auto x = counted<float, 3>({3, 32, 48});
  const auto y = counted<float, 2>({48, 40});
  for (const bool batched : {false, true}) {
    Tensor<float, 3> z({3, 32, 40});
    const Index b = batched ? 3 : 1;
    Grid grid("matmul");
    const Batch batch = grid.vmap("b", b);
    const Axis i = grid.parallel("i", 2), j = grid.parallel("j", 5), k = grid.sequential("k", 3);
    const Ref<const float, 3> xs(x.data(), {b, 32, 48});
    const Ref<float, 3> zs(z.data(), {b, 32, 40});
    const auto xb = grid.in("x", batch(xs), {.block = {16, 16}, .index = {i, k}});
    const auto yb = grid.in("y", y, {.block = {16, 8}, .index = {k, j}});
    const auto zb = grid.out("z", batch(zs), {.block = {16, 8}, .index = {i, j}});
    const auto acc = grid.scratch<float>("acc", {16, 8});
    const auto body = [&](const Step& s) {
      if (s.first(k)) fill(s[acc], 0.0f);
      dot_add(s[xb], s[yb], s[acc]);
      if (s.last(k)) copy(s[acc], s[zb]);
    };
    const GridCost cost = grid.cost(body);
    CHECK(cost.steps == 30 * b);
    CHECK(cost.flops == 2 * 32 * 48 * 40 * b);
    CHECK(cost.transcendentals == 0);
    CHECK(cost.bytes == 4 * b * (30 * 16 * 16 + 30 * 16 * 8 + 32 * 40));
    CHECK(cost.product_flops == cost.flops);
    CHECK(cost.index_operations == 30 * b * (13 + 9 + 13 + 4));
    CHECK(cost.block_bytes == 4 * b * (30 * (16 * 16 + 16 * 8 + 2 * 16 * 8) + 32 * 40));
    // What moves is what a run counts; the padding of tiles makes 128 lanes of 8.
    const Trace trace = grid.run(body);
    Index moved = 0;
    for (const OperandTrace& o : trace.operands) moved += o.bytes;
    CHECK(cost.bytes == moved);
    CHECK(cost.vmem_bytes == 4 * 16 * 128 * (2 + 2 + 2 + 1));
  }
}

TEST_CASE("pallas 94: softmax attention counts as pl.estimate_cost does") {
  Tensor<float, 2> q({64, 16}, 1.0f), k({128, 16}, 1.0f), v({128, 4}, 1.0f), o({64, 4});
  Grid grid("attention");
  const auto qb = grid.in("q", q), kb = grid.in("k", k), vb = grid.in("v", v);
  const auto ob = grid.out("o", o);
  const auto p = grid.scratch<float>("p", {64, 128}), top = grid.scratch<float>("top", {64, 1});
  const GridCost cost = grid.cost([&](const Step& s) {
    dot(s[qb], s[kb], s[p], {.trans_y = true});
    row_max(s[p], s[top]);  // reductions are no flops there either
    maximum(s[top], -std::numeric_limits<float>::infinity(), s[top]);
    sub(s[p], s[top], s[p]);
    exp(s[p], s[p]);
    row_sum(s[p], s[top]);
    div(s[p], s[top], s[p]);
    dot(s[p], s[vb], s[ob]);
  });
  CHECK(cost.flops == 2 * 64 * 128 * 16 + 2 * 64 * 128 * 4 + 2 * 8192 + 64);
  CHECK(cost.product_flops == 2 * 64 * 128 * 16 + 2 * 64 * 128 * 4);
  CHECK(cost.transcendentals == 8192);
}

}  // namespace
}  // namespace kref
