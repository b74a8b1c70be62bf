// SPDX-License-Identifier: Apache-2.0
// What `kref check` does with a matmul run once its file is read: the rules, the expectation in
// f64, the verdict. Names are check/TYPE/SHAPE/THREADS.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "bench/cases.h"
#include "bench/inputs.h"
#include "dsl/threads.h"
#include "golden/judge.h"
#include "golden/operation.h"
#include "kernels/matmul.h"

namespace kref::bench {
namespace {

Array array_of(const Tensor<float, 2>& t) {
  Array out(DType::kF32, t.extents());
  std::copy(t.data(), t.data() + t.size(), out.mutable_elements<float>().begin());
  return out;
}

Run matmul_run(const MatmulCase& c) {
  Run run;
  run.origin = "benchmark";
  run.op = "matmul";
  run.in["x"] = array_of(random_matrix<float>(c.m, c.k, 1));
  run.in["y"] = array_of(random_matrix<float>(c.k, c.n, 2));
  const Index shape[] = {c.m, c.n};
  Array z(DType::kF32, shape);
  matmul(run.in["x"], run.in["y"], z.mutable_ref());
  run.out["z"] = z;
  return run;
}

bool right(const Run& run) {
  const Operation& operation = find_operation(run.op);
  operation.validate(run, true);
  const std::vector<Expectation> expected = operation.expect(run);
  return std::all_of(expected.begin(), expected.end(),
                     [&](const Expectation& e) { return judge(e, run.out.at(e.output)).ok(); });
}

void check_run(benchmark::State& state, const MatmulCase& c, int threads) {
  set_threads(threads);
  Run run = matmul_run(c);
  bool ok = true;
  for (auto _ : state) ok = ok && right(run);
  if (!ok) state.SkipWithError("a right run is called wrong");
  state.counters["flops"] =
      benchmark::Counter(c.flops(), benchmark::Counter::kIsIterationInvariantRate);
  // One wrong element must not pass: what was timed is a judgement.
  Array z(DType::kF32, run.out["z"].shape());
  std::ranges::copy(run.out["z"].elements<float>(), z.mutable_elements<float>().begin());
  z.mutable_elements<float>()[static_cast<std::size_t>(z.size() / 2)] += 1;
  run.out["z"] = z;
  if (c.m <= kChecks[0].m && right(run)) state.SkipWithError("a wrong run is called right");
}

}  // namespace
}  // namespace kref::bench

int main(int argc, char** argv) {
  using namespace kref::bench;
  for (const MatmulCase& c : kChecks) {
    for (const int threads : {1, 2}) {
      const std::string name =
          std::string("check/f32/") + c.name + "/" + std::to_string(threads) + "T";
      benchmark::RegisterBenchmark(name.c_str(), [&c, threads](benchmark::State& state) {
        check_run(state, c, threads);
      })->UseRealTime();
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
