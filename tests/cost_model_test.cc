// SPDX-License-Identifier: Apache-2.0
// Priced products and layers, against arithmetic by hand.
#include "sharding/cost_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "kernels/attention_work.h"
#include "sharding/planning.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using doctest::Approx;

// The book's collective matmul: A [1024, 2048] P(X, Y), W [2048, 8192] P(None, Y) on X = 2, Y = 4.
struct BookMatmul {
  Cost naive, ring;
};
BookMatmul book_matmul(const Chip& chip, DType dtype) {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const MatmulShape shape{.m = 1024, .n = 8192, .k = 2048};
  const MatmulPlacement placed =
      place_matmul(mesh, shape, {"X", "Y"}, {none, "Y"}, {{"X", "Y"}, {}});
  const MeshLinks links = lay_out(chip, mesh);
  BookMatmul out;
  const MatmulPrice price{.dtype = dtype, .out_dtype = dtype};
  out.naive = price_matmul(placed, links, price);
  out.ring = out.naive;
  MatmulCost part = local_product(placed, price);
  part.k /= 4, part.adds = true;
  send_round(out.ring, "Y", false, part, links);
  return out;
}

TEST_CASE("the book's collective matmul by first principles on v5e") {
  const BookMatmul bf16 = book_matmul(find_chip("v5e"), DType::kBF16);
  REQUIRE(bf16.naive.steps.size() == 2);
  CHECK(bf16.naive.steps[0].seconds() == Approx(35.0e-6).epsilon(2e-3));
  CHECK(bf16.naive.steps[1].seconds() == Approx(21.8e-6).epsilon(2e-3));
  CHECK(bf16.naive.expected() == Approx(56.8e-6).epsilon(2e-3));
  // Three hops of 11.65 us, of which no chunk is as long, and the last chunk: 8.4 us, of HBM.
  CHECK(bf16.ring.expected() == Approx(43.4e-6).epsilon(2e-3));
  CHECK(bf16.ring.lower() == Approx(35.0e-6).epsilon(2e-3));
  CHECK(bf16.naive.bound_by() == "links of Y");
}

TEST_CASE("one rate fitted on the measured 224 us predicts 311 and 244 within 10 %") {
  // Four bytes an element, as the book's integers have; the rate is what 2 * 512 * 2048 * 2048
  // operations in 224 us come to.
  Chip chip = find_chip("v5e");
  chip.bf16_rate = 2.0 * 512 * 2048 * 2048 / 224e-6;
  const BookMatmul fitted = book_matmul(chip, DType::kF32);
  CHECK(fitted.naive.compute_seconds() == Approx(224e-6).epsilon(1e-3));
  CHECK(fitted.naive.expected() == Approx(311e-6).epsilon(0.1));
  CHECK(fitted.ring.expected() == Approx(244e-6).epsilon(0.1));
  // The structure: gather and product one after the other; the larger of the two.
  CHECK(fitted.naive.expected() == fitted.naive.upper());
  CHECK(fitted.ring.expected() < 1.06 * fitted.naive.compute_seconds());
}

// A LLaMA-70B-like layer on v5p 4x4x4, 2^19 tokens.
constexpr LayerSize kLayer{.b = 524288, .d = 8192, .f = 28672};
Cost llama(LayerStrategy strategy, const char* mesh, bool backward = true) {
  const Chip v5p = find_chip("v5p");
  return price_layer({.strategy = strategy}, kLayer,
                     lay_out(v5p, Mesh::parse(mesh), parse_slice(v5p, "4x4x4")),
                     {.backward = backward});
}

TEST_CASE("a layer's price is that of the book's tables, by hand") {
  const double b = 524288, d = 8192, f = 28672, c = 4.59e14, w = 1.8e11;
  const double compute = 12 * b * d * f / (64 * c);
  const Cost dp = llama(LayerStrategy::kDp, "X=64");
  CHECK(dp.compute_seconds() == Approx(compute));
  CHECK(dp.moved_seconds() == Approx(8 * d * f / (3 * w)));
  CHECK(dp.expected() == Approx(compute));
  CHECK(dp.upper() == Approx(compute + 8 * d * f / (3 * w)));
  const Cost fsdp = llama(LayerStrategy::kFsdp, "X=64");
  CHECK(fsdp.moved_seconds() == Approx(12 * d * f / (3 * w)));
  // X over two axes of links, Y over one; the backward pass gathers In again: 6BD / X.
  const Cost both = llama(LayerStrategy::kFsdpTp, "X=16,Y=4");
  CHECK(both.axis_seconds().at("X") == Approx(12 * d * f / (4 * 2 * w)));
  CHECK(both.axis_seconds().at("Y") == Approx(10 * b * d / (16 * w)));
  // On the critical path: all of Y's but for that gather.
  CHECK(both.expected() == Approx(compute + 8 * b * d / (16 * w)));
  const Cost tp = llama(LayerStrategy::kTp, "Y=64");
  CHECK(tp.moved_seconds() == Approx(10 * b * d / (3 * w)));
  CHECK(tp.bound_by() == "links of Y");
  // Forward alone.
  CHECK(llama(LayerStrategy::kDp, "X=64", false).moved_seconds() == 0);
  CHECK(llama(LayerStrategy::kFsdp, "X=64", false).moved_seconds() == Approx(4 * d * f / (3 * w)));
}

TEST_CASE("a layer's bytes are those of the planning functions") {
  const struct {
    LayerStrategy strategy;
    const char* mesh;
    double x, y;
  } rows[] = {{LayerStrategy::kDp, "X=64", 64, 1},
              {LayerStrategy::kFsdp, "X=64", 64, 1},
              {LayerStrategy::kTp, "Y=64", 1, 64},
              {LayerStrategy::kFsdpTp, "X=16,Y=4", 16, 4}};
  for (const auto& row : rows) {
    CAPTURE(row.mesh);
    const LayerBytes bytes = layer_bytes(row.strategy, 524288, 8192, 28672, row.x, row.y);
    double moved = 0, weights = 0;
    for (const CostStep& step : llama(row.strategy, row.mesh).steps) {
      if (!step.moves) continue;
      const double n = step.axes[0] == "X" ? row.x : row.y;
      moved += step.sent_bytes * n / (n - 1);
      weights += 1;
    }
    CHECK(moved == Approx(bytes.forward + bytes.backward));
    CHECK(weights > 0);
  }
}

TEST_CASE("a layer's collectives, forward and backward") {
  const auto count = [](const Cost& cost) {
    int n = 0;
    for (const CostStep& step : cost.steps) n += step.moves ? 1 : 0;
    return n;
  };
  CHECK(count(llama(LayerStrategy::kFsdpTp, "X=16,Y=4", false)) == 4);
  CHECK(count(llama(LayerStrategy::kFsdpTp, "X=16,Y=4")) == 11);
  CHECK(count(llama(LayerStrategy::kDp, "X=64")) == 2);
  CHECK(count(llama(LayerStrategy::kTp, "Y=64")) == 5);
}

TEST_CASE("memory of a layer on one device") {
  const LayerSize size{.b = 64, .d = 16, .f = 32};
  const Mesh mesh = Mesh::parse("X=4,Y=2");
  const LayerMemory dp = layer_memory({.strategy = LayerStrategy::kDp}, size, Mesh::parse("X=4"));
  CHECK(dp.state == 2 * 16 * 32 * 10);
  CHECK(dp.kept == (16 * 16 + 2 * 16 * 32) * 2);
  CHECK(dp.gathered == 0);
  const LayerMemory served =
      layer_memory({.strategy = LayerStrategy::kDp}, size, Mesh::parse("X=4"), DType::kBF16, false);
  CHECK(served.state == 2 * 16 * 32 * 2);
  CHECK(served.kept == dp.kept);
  const LayerMemory both =
      layer_memory({.strategy = LayerStrategy::kFsdpTp, .gate = true}, size, mesh);
  CHECK(both.state == 3 * (4 * 16) * 10);
  CHECK(both.kept == (16 * 8 + 3 * 16 * 16) * 2);
  CHECK(both.gathered == 16 * 16 * 2);
  CHECK(refusal([&] {
          layer_memory({.strategy = LayerStrategy::kTp}, {.b = 64, .d = 15, .f = 32}, mesh);
        }).find("divisible") != std::string::npos);
}

TEST_CASE("a grid's tiles cost fetches, VMEM and the scalar unit") {
  const Chip v5e = find_chip("v5e");
  MatmulCost cost{.m = 1024, .n = 2048, .k = 4096};
  const Roofline whole = matmul_roofline(v5e, cost);
  CHECK(whole.flops == 2.0 * 1024 * 2048 * 4096);
  CHECK(whole.hbm_bytes == 2 * (1024.0 * 4096 + 4096 * 2048 + 1024 * 2048));
  CHECK(whole.steps == 0);
  cost.tile_m = 256, cost.tile_n = 512, cost.tile_k = 1024;
  const Roofline tiled = matmul_roofline(v5e, cost);
  // x once for each of four blocks of columns, y once for each of four blocks of rows.
  CHECK(tiled.hbm_bytes == 2 * (4 * 1024.0 * 4096 + 4 * 4096.0 * 2048 + 1024 * 2048));
  CHECK(tiled.steps == 4 * 4 * 4);
  CHECK(tiled.index_operations == 64 * 30);
  CHECK(tiled.scalar == Approx(64 * 30 / 1.5e9));
  CHECK(tiled.vmem > 0);
  CHECK(tiled.upper() > tiled.lower());
  cost.tile_m = cost.tile_n = cost.tile_k = 1;
  CHECK(std::string(
            matmul_roofline(v5e, {.m = 64, .n = 64, .k = 64, .tile_m = 1, .tile_n = 1, .tile_k = 1})
                .bound_by()) == "scalar");
  CHECK(std::string(matmul_roofline(v5e, {.m = 8, .n = 4096, .k = 4096}).bound_by()) == "hbm");
  CHECK(std::string(whole.bound_by()) == "compute");
}

TEST_CASE("visible pairs of rows and keys are those counted one by one") {
  constexpr Index kFar = std::numeric_limits<Index>::max();
  const std::optional<Index> sides[] = {{}, 0, 1, 3, kFar};
  const auto sees = [](const AttentionOptions& options, Index position, Index key) {
    const Window& window = options.window;
    const Index back = position - key;  // how far the key lies behind
    if (options.causal != Causal::kNone && back < 0) return false;
    return (!window.left || back <= *window.left) && (!window.right || -back <= *window.right);
  };
  for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
    for (int window = 0; window < 25; ++window) {
      AttentionOptions options{.scale = 1.0, .causal = causal};
      options.window = {sides[window / 5], sides[window % 5]};
      for (int size = 0; size < 7 * 7 * 4; ++size) {
        const Index queries = size % 7, keys = size / 7 % 7;
        const Index rows = queries - std::min<Index>(queries, size / 49 % 2 * 2);
        const Index valid = keys - std::min<Index>(keys, size / 98 * 3);
        const Index moved = causal == Causal::kBottomRight ? keys - queries : 0;
        Index counted = 0;
        for (Index i = 0; i < rows; ++i) {
          for (Index key = 0; key < valid; ++key) counted += sees(options, i + moved, key) ? 1 : 0;
        }
        CAPTURE(window);
        CAPTURE(size);
        CHECK(visible_pairs(options, queries, keys, rows, valid) == static_cast<double>(counted));
      }
    }
  }
  CHECK(decode_keys({.left = 3, .right = {}}, 3) == 3);
  CHECK(decode_keys({.left = 3, .right = {}}, 5) == 4);
  CHECK(decode_keys({.left = {}, .right = 0}, 5) == 5);
  CHECK(decode_keys({.left = kFar, .right = {}}, 5) == 5);
}

}  // namespace
}  // namespace kref
