// SPDX-License-Identifier: Apache-2.0
// matmul beside hand-written loops round the same tile verb (the price of the DSL) and beside other
// libraries. Names are TYPE/SHAPE/THREADS/WHO; bench/table.py prints them as ratios. Every product
// is checked before it is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "bench/cases.h"
#include "bench/inputs.h"
#include "bench/peak.h"
#include "bench/peers.h"
#include "dsl/grid.h"
#include "dsl/threads.h"
#include "kernels/dot.h"
#include "kernels/matmul.h"
#include "kernels/tile_ops.h"

namespace kref::bench {
namespace {

// One x and enough y's that a repetition does not find its y in the last-level cache.
template <class T, class Z>
struct Operands {
  static constexpr std::size_t kPoolBytes = std::size_t{256} << 20;
  Tensor<T, 2> x;
  std::vector<Tensor<T, 2>> ys;
  Tensor<Z, 2> z;
  Operands(const MatmulCase& c, bool rotate) : x(random_matrix<T>(c.m, c.k, 1)), z({c.m, c.n}) {
    const std::size_t bytes = static_cast<std::size_t>(c.k * c.n) * sizeof(T);
    const std::size_t count = rotate ? std::max<std::size_t>(2, kPoolBytes / bytes) : 1;
    ys.push_back(random_matrix<T>(c.k, c.n, 2));
    while (ys.size() < count) ys.push_back(ys.front());
  }
};

// The operands of the case in hand only: the pools are large.
template <class T, class Z>
Operands<T, Z>& operands(const MatmulCase& c, bool rotate) {
  static std::unique_ptr<Operands<T, Z>> current;
  static const MatmulCase* held = nullptr;
  if (held != &c) {
    current.reset();
    current = std::make_unique<Operands<T, Z>>(c, rotate);
    held = &c;
  }
  return *current;
}

// `check`: whether the product is held against its inputs first; once it was, no longer.
template <class T, class Z, class F>
void time_product(benchmark::State& state, const MatmulCase& c, bool rotate, int threads,
                  bool& check, const F& product) {
  set_threads(threads);
  Operands<T, Z>& o = operands<T, Z>(c, rotate);
  o.z.fill(Z{});
  product(o.x, o.ys[0], o.z);
  if (check && !(product_error(o.x, o.ys[0], o.z) <= 1)) {
    state.SkipWithError("the product is wrong");
    return;
  }
  check = false;
  std::size_t turn = 0;
  for (auto _ : state) {
    product(o.x, o.ys[turn], o.z);
    benchmark::DoNotOptimize(o.z.data());
    benchmark::ClobberMemory();
    turn = (turn + 1) % o.ys.size();
  }
  state.counters["flops"] =
      benchmark::Counter(c.flops(), benchmark::Counter::kIsIterationInvariantRate);
}

// What a user would write without the DSL: loops over the same tiles round the verbs of matmul's
// grid, which start each tile with dot instead of clearing it.
template <class T, class Z>
void raw_loops(const Tensor<T, 2>& x, const Tensor<T, 2>& y, Tensor<Z, 2>& z, const MatmulTile& t,
               int threads) {
  const Index m = x.extent(0), n = y.extent(1), k = x.extent(1);
  const Index rows = cdiv(m, t.m), columns = cdiv(n, t.n);
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (Index tile = 0; tile < rows * columns; ++tile) {
      const Index i = tile / columns * t.m, j = tile % columns * t.n;
      const Index mi = std::min(t.m, m - i), nj = std::min(t.n, n - j);
      const Ref<Z, 2> out = z.ref().block({i, j}, {mi, nj});
      for (Index l = 0; l < k; l += t.k) {
        const Index kl = std::min(t.k, k - l);
        const Ref<const T, 2> xt = x.ref().block({i, l}, {mi, kl});
        const Ref<const T, 2> yt = y.ref().block({l, j}, {kl, nj});
        if (l == 0) {
          dot<T>(xt, yt, out);
        } else {
          dot_add<T>(xt, yt, out);
        }
      }
    }
  }
}

template <class T, class Z>
void add_case(const char* type, const MatmulCase& c, bool rotate,
              const std::vector<Peer<T, Z>>& peers) {
  for (const int threads : {1, 2}) {
    const std::string prefix =
        std::string(type) + "/" + c.name + "/" + std::to_string(threads) + "T/";
    const auto add = [&](const std::string& who, bool exact, auto product) {
      // Checked once, not in each repetition: the check takes as long as some of the products.
      benchmark::RegisterBenchmark((prefix + who).c_str(), [&c, rotate, threads, check = exact,
                                                            product](
                                                               benchmark::State& state) mutable {
        time_product<T, Z>(state, c, rotate, threads, check, product);
      })->UseRealTime();
    };
    add("kref", true, [](const Tensor<T, 2>& x, const Tensor<T, 2>& y, Tensor<Z, 2>& z) {
      matmul(ArrayRef(x.ref()), ArrayRef(y.ref()), MutableArrayRef(z.ref()));
    });
    const MatmulTile tile = default_matmul_tile(dtype_of<T>, c.m, c.n, c.k);
    add("raw", true,
        [tile, threads](const Tensor<T, 2>& x, const Tensor<T, 2>& y, Tensor<Z, 2>& z) {
          raw_loops(x, y, z, tile, threads);
        });
    for (const Peer<T, Z>& peer : peers) {
      add(peer.name, peer.exact,
          [peer, threads](const Tensor<T, 2>& x, const Tensor<T, 2>& y, Tensor<Z, 2>& z) {
            peer.run({x.data(), y.data(), z.data(), x.extent(0), y.extent(1), x.extent(1)},
                     threads);
          });
    }
  }
}

template <class T, class Z>
void add_type(const char* type, const std::vector<Peer<T, Z>>& peers) {
  for (const MatmulCase& c : kCubes) add_case<T, Z>(type, c, false, peers);
  for (const MatmulCase& c : kSkinny) add_case<T, Z>(type, c, true, peers);
}

// The machine's limits, one thread each.
void peak_f32(benchmark::State& state) {
  double done = 0;
  for (auto _ : state) done += fma_rounds(100000);
  state.counters["flops"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
}
void peak_int8(benchmark::State& state) {
  double done = 0;
  for (auto _ : state) done += exact_int8_rounds(100000);
  state.counters["flops"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
}

// The price of a grid step: three operands, a body that touches each and does nothing.
void empty_steps(benchmark::State& state) {
  set_threads(1);
  constexpr Index kSide = 32;
  Tensor<float, 2> x({kSide, kSide}, 1.0f), y({kSide, kSide}, 1.0f), z({kSide, kSide});
  Index steps = 0;
  for (auto _ : state) {
    Grid grid("empty");
    const Axis i = grid.parallel("i", kSide);
    const Axis j = grid.parallel("j", kSide);
    const Axis k = grid.sequential("k", kSide);
    const auto xb = grid.in("x", x.ref(), {.block = {1, 1}, .index = {i, k}});
    const auto yb = grid.in("y", y.ref(), {.block = {1, 1}, .index = {k, j}});
    const auto zb = grid.out("z", z.ref(), {.block = {1, 1}, .index = {i, j}});
    grid.run([&](const Step& s) {
      benchmark::DoNotOptimize(s.valid(xb).data());
      benchmark::DoNotOptimize(s.valid(yb).data());
      if (s.last(k)) s.valid(zb)(0, 0) = 1.0f;
    });
    steps += kSide * kSide * kSide;
  }
  state.counters["steps"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsRate);
}

// The DSL against raw loops at tiles of 128.
void add_price() {
  static constexpr MatmulCase kCase = {"1024x1024x1024", 1024, 1024, 1024};
  static constexpr MatmulTile kTile = {128, 128, 128};
  using F32 = const Tensor<float, 2>&;
  benchmark::RegisterBenchmark("price/128-tiles/1T/kref", [check = true](
                                                              benchmark::State& state) mutable {
    time_product<float, float>(
        state, kCase, false, 1, check, [](F32 x, F32 y, Tensor<float, 2>& z) {
          matmul(ArrayRef(x.ref()), ArrayRef(y.ref()), MutableArrayRef(z.ref()), {.tile = kTile});
        });
  })->UseRealTime();
  benchmark::RegisterBenchmark("price/128-tiles/1T/raw", [check = true](
                                                             benchmark::State& state) mutable {
    time_product<float, float>(
        state, kCase, false, 1, check,
        [](F32 x, F32 y, Tensor<float, 2>& z) { raw_loops(x, y, z, kTile, 1); });
  })->UseRealTime();
  benchmark::RegisterBenchmark("price/step/1T/kref", empty_steps)->UseRealTime();
  benchmark::RegisterBenchmark("peak/f32/1T", peak_f32)->UseRealTime();
  benchmark::RegisterBenchmark("peak/int8/1T", peak_int8)->UseRealTime();
}

}  // namespace
}  // namespace kref::bench

int main(int argc, char** argv) {
  using namespace kref::bench;
  benchmark::AddCustomContext("simd_target", simd_target());
  add_price();
  add_type<float, float>("f32", f32_peers());
  add_type<kref::bf16, float>("bf16", bf16_peers());
  add_type<std::int8_t, std::int32_t>("int8", int8_peers());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
