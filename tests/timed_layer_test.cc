// SPDX-License-Identifier: Apache-2.0
// Virtual clocks of the parallel layer: the price of its list of steps is what its run takes; what
// runs in the background hides behind products, and changes no bit.
#include <doctest/doctest.h>

#include <cstring>

#include "dsl/work_meter.h"
#include "sharding/cost_model.h"
#include "sharding/layer.h"
#include "sharding/virtual_clock.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

const Mesh kMesh = Mesh::parse("X=2,Y=4");
constexpr LayerSize kSize = {.b = 64, .d = 32, .f = 96};

struct Layer {
  Array x, w_in, w_out, w_gate, ct;
};
Layer layer(const LayerSize& size, bool memory) {
  const auto make = [&](Index rows, Index columns, std::uint32_t seed) {
    if (memory) return mixed({rows, columns}, seed, DType::kBF16);
    return Array(DType::kBF16, std::vector<Index>{rows, columns}, nullptr, nullptr);
  };
  return {make(size.b, size.d, 1), make(size.d, size.f, 2), make(size.f, size.d, 3),
          make(size.d, size.f, 4), make(size.b, size.d, 5)};
}

struct Timed {
  LayerCotangents cts;
  TimedRun run;
};
// Forward and backward; all floats count as bf16, as price_layer has it.
Timed timed(const Layer& on, const LayerPlan& plan, const MeshLinks& links, bool overlap) {
  RunLog log;
  LayerOptions options{.plan = plan};
  options.overlap = overlap;
  options.launch.log = &log;
  LayerOperands operands{on.x, on.w_in, on.w_out};
  if (plan.gate) operands.w_gate = on.w_gate;
  Timed out;
  out.cts = mlp_vjp(kMesh, operands, on.ct, options);
  out.run = time_run(log, links, {.links = {}, .floats = DType::kBF16});
  return out;
}

bool same_bits(const Array& a, const Array& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

void check_equal(const std::map<std::string, double>& found,
                 const std::map<std::string, double>& expected) {
  CHECK(found.size() == expected.size());
  for (const auto& entry : expected) {
    CAPTURE(entry.first);
    REQUIRE(found.contains(entry.first));
    CHECK(found.at(entry.first) == doctest::Approx(entry.second).epsilon(1e-12));
  }
}

TEST_CASE("the run of a layer takes what its steps are priced at") {
  const MeshLinks links = lay_out(find_chip("v5e"), kMesh);
  const Layer on = layer(kSize, true);
  for (const LayerStrategy strategy : kLayerStrategies) {
    for (const bool gate : {false, true}) {
      for (const ModelForm form : {ModelForm::kColumns, ModelForm::kReplicated, ModelForm::kRows}) {
        CAPTURE(std::string(name_of(strategy)));
        CAPTURE(gate);
        const LayerPlan plan{.strategy = strategy, .gate = gate, .form = form};
        const Cost cost = price_layer(plan, kSize, links);
        const TimedRun run = timed(on, plan, links, false).run;
        CHECK(run.compute_seconds() == doctest::Approx(cost.compute_seconds()).epsilon(1e-12));
        check_equal(run.axis_seconds(), cost.axis_seconds());
        check_equal(run.axis_bytes(), cost.axis_bytes());
        // Nothing runs in the background: one after the other.
        CHECK(run.seconds() == doctest::Approx(cost.upper()).epsilon(1e-12));
        CHECK(run.seconds() > 0);
      }
    }
  }
}

TEST_CASE("what runs in the background changes no bit and hides behind products") {
  // Large enough that products take as long as the weights do, on shapes alone.
  constexpr LayerSize kLarge = {.b = 65536, .d = 4096, .f = 16384};
  const MeshLinks links = lay_out(find_chip("v5e"), kMesh);
  const Layer on = layer(kSize, true), large = layer(kLarge, false);
  for (const LayerStrategy strategy : kLayerStrategies) {
    for (const bool gate : {false, true}) {
      CAPTURE(std::string(name_of(strategy)));
      LayerPlan plan{.strategy = strategy, .gate = gate};
      const Timed one = timed(on, plan, links, false), two = timed(on, plan, links, true);
      CHECK(same_bits(one.cts.x, two.cts.x));
      CHECK(same_bits(one.cts.w_in, two.cts.w_in));
      CHECK(same_bits(one.cts.w_out, two.cts.w_out));
      if (gate) CHECK(same_bits(one.cts.w_gate, two.cts.w_gate));
      CHECK(one.run.transfers.size() == two.run.transfers.size());
      const ShapesOnly scope;
      const TimedRun apart = timed(large, plan, links, false).run,
                     overlapped = timed(large, plan, links, true).run;
      CHECK(apart.compute_seconds() ==
            doctest::Approx(overlapped.compute_seconds()).epsilon(1e-12));
      const bool background = strategy != LayerStrategy::kNone;
      CHECK((overlapped.seconds() < 0.999 * apart.seconds()) == background);
      const Cost cost = price_layer(plan, kLarge, links);
      CHECK(overlapped.seconds() >= cost.lower() * (1 - 1e-12));
      CHECK(overlapped.seconds() <= cost.upper() * (1 + 1e-12));
      // A layer alone: before its first product and behind its last one nothing hides.
      CHECK(overlapped.seconds() >= cost.expected() * (1 - 1e-12));
    }
  }
}

TEST_CASE("data parallel: the first sum travels while the next cotangent is multiplied") {
  constexpr LayerSize kLarge = {.b = 65536, .d = 4096, .f = 16384};
  const MeshLinks links = lay_out(find_chip("v5e"), kMesh);
  const ShapesOnly scope;
  const TimedRun run =
      timed(layer(kLarge, false), {.strategy = LayerStrategy::kDp}, links, true).run;
  // Two weights, in each column of the mesh.
  REQUIRE(run.transfers.size() == 2 * 4);
  const TimedTransfer& first = run.transfers[0];
  CHECK(first.axes == std::vector<std::string>{"X"});
  const bool hidden = std::any_of(run.work.begin(), run.work.end(), [&](const TimedWork& w) {
    return w.device == first.members[0] && w.begin >= first.begin && w.begin < first.end;
  });
  CHECK(hidden);
  CHECK(run.seconds() < run.compute_seconds() + run.axis_seconds().at("X"));
}

TEST_CASE("accumulated gradients are summed once, also in the background") {
  const Layer on = layer(kSize, true);
  const LayerPlan plan{.strategy = LayerStrategy::kDp};
  LayerOptions options{.plan = plan};
  options.microbatches = 4;
  std::vector<LayerMeter> meters;
  const LayerCotangents apart = mlp_vjp(kMesh, {on.x, on.w_in, on.w_out}, on.ct, options, &meters);
  const std::size_t count = meters[0].collectives.size();
  CHECK(count == 2);
  options.overlap = true;
  const LayerCotangents both = mlp_vjp(kMesh, {on.x, on.w_in, on.w_out}, on.ct, options, &meters);
  CHECK(meters[0].collectives.size() == count);
  CHECK(same_bits(apart.w_in, both.w_in));
  CHECK(same_bits(apart.w_out, both.w_out));
  CHECK(same_bits(apart.x, both.x));
}

}  // namespace
}  // namespace kref
