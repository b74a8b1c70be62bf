// SPDX-License-Identifier: Apache-2.0
// A grid as declared, priced by what it says of itself, against the formula of its tiles.
#include <doctest/doctest.h>

#include "dsl/grid.h"
#include "kernels/kernels.h"
#include "sharding/launch.h"
#include "sharding/roofline.h"
#include "sharding/run_log.h"

namespace kref {
namespace {

using doctest::Approx;

TEST_CASE("a matmul grid counts and takes what the formula of its tiles says, on every chip") {
  struct Case {
    Index m, n, k, tm, tn, tk;
  };
  for (const Case& c : {Case{256, 128, 512, 64, 64, 128}, Case{64, 64, 64, 64, 64, 64},
                        Case{128, 256, 64, 32, 64, 64}, Case{64, 96, 128, 64, 96, 32}}) {
    const Tensor<bf16, 2> x({c.m, c.k}, bf16(1.0f)), y({c.k, c.n}, bf16(1.0f));
    Tensor<bf16, 2> z({c.m, c.n});
    Grid grid("matmul");
    const Axis i = grid.parallel("i", c.m / c.tm), j = grid.parallel("j", c.n / c.tn),
               k = grid.sequential("k", c.k / c.tk);
    const auto xb = grid.in("x", x, {.block = {c.tm, c.tk}, .index = {i, k}});
    const auto yb = grid.in("y", y, {.block = {c.tk, c.tn}, .index = {k, j}});
    const auto zb = grid.out("z", z, {.block = {c.tm, c.tn}, .index = {i, j}});
    const auto acc = grid.scratch<float>("acc", {c.tm, c.tn});
    const GridCost cost = grid.cost([&](const Step& s) {
      if (s.first(k)) fill(s[acc], 0.0f);
      dot_add(s[xb], s[yb], s[acc]);
      if (s.last(k)) cast(s[acc], s[zb]);
    });
    MatmulCost formula;
    formula.m = static_cast<double>(c.m), formula.n = static_cast<double>(c.n);
    formula.k = static_cast<double>(c.k), formula.tile_m = static_cast<double>(c.tm);
    formula.tile_n = static_cast<double>(c.tn), formula.tile_k = static_cast<double>(c.tk);
    for (const Chip& chip : chips()) {
      CAPTURE(chip.name);
      const Roofline counted = grid_roofline(chip, cost), said = matmul_roofline(chip, formula);
      CHECK(counted.flops == said.flops);
      CHECK(counted.hbm_bytes == said.hbm_bytes);
      CHECK(counted.steps == said.steps);
      CHECK(counted.index_operations == said.index_operations);
      CHECK(counted.compute == Approx(said.compute));
      CHECK(counted.scalar == Approx(said.scalar));
      // The formula leaves out that z is stored once.
      const double stored = 2.0 * static_cast<double>(c.m * c.n) / chip.vmem_rate;
      CHECK(counted.vmem == Approx(said.vmem + stored));
      CHECK(std::string(counted.bound_by()) == said.bound_by());
    }
  }
}

TEST_CASE("what is no product is priced by the vector units") {
  const Chip chip = find_chip("v5e");
  Tensor<float, 2> x({64, 128}, 1.0f), z({64, 128});
  Grid grid("exp");
  const Axis i = grid.parallel("i", 8);
  const auto xb = grid.in("x", x, {.block = {8, 128}, .index = {i, 0}});
  const auto zb = grid.out("z", z, {.block = {8, 128}, .index = {i, 0}});
  const GridCost cost = grid.cost([&](const Step& s) {
    add(s[xb], 1.0f, s[zb]);
    exp(s[zb], s[zb]);
  });
  const Roofline r = grid_roofline(chip, cost);
  CHECK(r.flops == 8192);
  CHECK(r.compute == Approx(2 * 8192 / vector_rate(chip)));
  CHECK(r.hbm == Approx(2 * 4 * 8192 / chip.hbm_rate));
  CHECK(grid_roofline(chip, GridCost{}).upper() == 0);
}

TEST_CASE("a grid of a body's own is told by charge alone, however it is gone through") {
  const Tensor<float, 2> x({8, 8}, 1.0f);
  RunLog log;
  launch(Mesh::parse("X=2"),
         [&](Device& device) {
           Tensor<float, 2> z({8, 8});
           for (int how = 0; how < 3; ++how) {
             Grid grid("own");
             const Axis i = grid.parallel("i", 2);
             const auto xb = grid.in("x", x, {.block = {4, 8}, .index = {i, 0}});
             const auto yb = grid.in("y", x);
             const auto zb = grid.out("z", z, {.block = {4, 8}, .index = {i, 0}});
             const auto body = [&](const Step& s) { dot(s[xb], s[yb], s[zb]); };
             if (how == 0) grid.run(body);
             if (how == 1) grid.check(body);
             if (how == 2) charge(device, "own", GridWork{grid.cost(body)});
           }
         },
         {.log = &log});
  for (const DeviceLog& device : log.devices) {
    REQUIRE(device.events().size() == 1);
    CHECK(device.events()[0].what == "own");
    const auto& work = std::get<GridWork>(*device.events()[0].work);
    CHECK(work.cost.product_flops == 2 * 8 * 8 * 8);
  }
}

}  // namespace
}  // namespace kref
