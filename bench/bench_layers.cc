// SPDX-License-Identifier: Apache-2.0
// The parallel MLP layer on eight devices beside the same layer on one, whose kernels have all
// threads. Names are layer/PASS/STRATEGY/SIZES/WHO; bench/table.py prints times as ratios. Operands
// live on the mesh and results stay there, as between layers; results are checked before the
// timing.
#include <benchmark/benchmark.h>

#include <map>
#include <random>
#include <string>

#include "sharding/layer.h"
#include "sharding/sharded.h"

namespace kref::bench {
namespace {

struct Sizes {
  const char* name;
  Index batch, model, hidden;  // B, D, F
};
constexpr Sizes kSizes[] = {{"16x32x64", 16, 32, 64}, {"512x1024x4096", 512, 1024, 4096}};

// Eight devices as each strategy uses them.
struct Division {
  LayerStrategy strategy;
  const char* mesh;
};
constexpr Division kDivisions[] = {{LayerStrategy::kDp, "X=8,Y=1"},
                                   {LayerStrategy::kFsdp, "X=8,Y=1"},
                                   {LayerStrategy::kTp, "X=1,Y=8"},
                                   {LayerStrategy::kFsdpTp, "X=4,Y=2"}};

// Quarters, few and small: sums of thousands of products of them are exact in f32 whatever their
// order, so that results compare with ==.
Array quarters(const std::vector<Index>& shape, unsigned seed) {
  Array out = Array::unwritten(DType::kF32, shape);
  std::minstd_rand random(seed);
  for (float& v : out.mutable_elements<float>()) {
    v = static_cast<float>(static_cast<int>(random() >> 8 & 7) - 3) / 4;
  }
  return out;
}

struct Layer {
  Array x, w_in, w_out, ct;
  explicit Layer(const Sizes& s)
      : x(quarters({s.batch, s.model}, 1)),
        w_in(quarters({s.model, s.hidden}, 2)),
        w_out(quarters({s.hidden, s.model}, 3)),
        ct(quarters({s.batch, s.model}, 4)) {}
};

bool same(const Array& a, const Array& b) {
  const auto x = a.elements<float>(), y = b.elements<float>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// A layer on a mesh: operands placed once.
struct Placed {
  Mesh mesh;
  LayerOptions options;
  Sharded x, w_in, w_out, ct;

  Placed(const Layer& l, const Mesh& on, LayerStrategy strategy)
      : mesh(on),
        options{.plan = {.strategy = strategy}, .activation = Activation::kRelu},
        x(shard(mesh, l.x, layer_specs(options.plan).x)),
        w_in(shard(mesh, l.w_in, layer_specs(options.plan).w_in)),
        w_out(shard(mesh, l.w_out, layer_specs(options.plan).w_out)),
        ct(shard(mesh, l.ct, layer_specs(options.plan).x)) {}

  Sharded forward() const { return mlp_sharded(mesh, {x, w_in, w_out}, options); }
  LayerShardedCotangents backward() const {
    return mlp_vjp_sharded(mesh, {x, w_in, w_out}, ct, options);
  }
};

void time_forward(benchmark::State& state, const Sizes& s, const Mesh& mesh,
                  LayerStrategy strategy) {
  const Layer layer(s);
  const Placed placed(layer, mesh, strategy),
      alone(layer, Mesh::parse("X=1,Y=1"), LayerStrategy::kNone);
  if (!same(unshard(placed.forward()), unshard(alone.forward()))) {
    return state.SkipWithError("the layer is wrong");
  }
  for (auto _ : state) benchmark::DoNotOptimize(placed.forward());
  state.counters["calls"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

void time_backward(benchmark::State& state, const Sizes& s, const Mesh& mesh,
                   LayerStrategy strategy) {
  const Layer layer(s);
  const Placed placed(layer, mesh, strategy),
      alone(layer, Mesh::parse("X=1,Y=1"), LayerStrategy::kNone);
  const LayerShardedCotangents found = placed.backward(), expected = alone.backward();
  if (!same(unshard(found.x), unshard(expected.x)) ||
      !same(unshard(found.w_in), unshard(expected.w_in)) ||
      !same(unshard(found.w_out), unshard(expected.w_out))) {
    return state.SkipWithError("the cotangents are wrong");
  }
  for (auto _ : state) benchmark::DoNotOptimize(placed.backward());
  state.counters["calls"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace kref::bench

int main(int argc, char** argv) {
  using namespace kref;
  using namespace kref::bench;
  for (const Sizes& s : kSizes) {
    for (const Division& d : kDivisions) {
      const std::string tail = std::string(name_of(d.strategy)) + "/" + s.name + "/";
      const auto add = [&](const std::string& name, const char* mesh, LayerStrategy strategy,
                           auto* time) {
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&s, mesh, strategy, time](benchmark::State& state) {
                                       time(state, s, Mesh::parse(mesh), strategy);
                                     })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      };
      add("layer/forward/" + tail + "kref", d.mesh, d.strategy, time_forward);
      add("layer/forward/" + tail + "alone", "X=1,Y=1", LayerStrategy::kNone, time_forward);
      add("layer/backward/" + tail + "kref", d.mesh, d.strategy, time_backward);
      add("layer/backward/" + tail + "alone", "X=1,Y=1", LayerStrategy::kNone, time_backward);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
