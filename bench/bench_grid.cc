// SPDX-License-Identifier: Apache-2.0
// The programs of grid_programs.h: as grids (kref), as plain loops (raw), and under Grid::check.
// Names are grid/PROGRAM/THREADS/WHO; bench/table.py prints them beside plain jnp. Every result is
// checked before it is timed.
#include <benchmark/benchmark.h>

#include <functional>

#include "bench/grid_programs.h"
#include "dsl/threads.h"

namespace kref::bench {
namespace {

template <class Program>
void time_program(benchmark::State& state, int threads, const std::function<void(Program&)>& once) {
  set_threads(threads);
  Program program;
  once(program);
  if (!program.right()) return state.SkipWithError("wrong result");
  for (auto _ : state) once(program);
}

template <class Program>
void add_program(const std::string& name) {
  for (const int threads : {1, 2}) {
    const std::string group = "grid/" + name + "/" + std::to_string(threads) + "T/";
    const auto add = [&](const char* who, std::function<void(Program&)> once) {
      benchmark::RegisterBenchmark((group + who).c_str(), [=](benchmark::State& s) {
        time_program<Program>(s, threads, once);
      })->UseRealTime();
    };
    add("kref", [](Program& p) { p.grid(Who::kRun); });
    add("raw", [=](Program& p) { p.raw(threads); });
    add("check", [](Program& p) { p.grid(Who::kCheck); });
  }
}

}  // namespace
}  // namespace kref::bench

int main(int argc, char** argv) {
  using namespace kref::bench;
  add_program<Matmul>("matmul_512");
  add_program<Flash>("flash_1x4x512x64");
  add_program<Add>("add_1M");
  add_program<LayerNorm>("layer_norm_1024");
  add_program<Probe>("probe_4096");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
