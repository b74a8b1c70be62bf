// SPDX-License-Identifier: Apache-2.0
// The collectives on threads, beside one thread's memcpy of the same bytes. Names are
// COLLECTIVE/BYTES/DEVICES/WHO, BYTES the larger of operand and result of one device;
// bench/table.py prints them as ratios, beside Open MPI (mpi_collectives.cc). Results are checked
// before the timing.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/collective_cases.h"
#include "sharding/collective_calls.h"
#include "sharding/launch.h"
#include "sharding/ragged.h"
#include "sharding/shard_map.h"

namespace kref::bench {
namespace {

using Clock = std::chrono::steady_clock;

Mesh line_of(Index devices) { return Mesh({{"X", devices}}); }

// What device d holds: small integers, exact in every sum.
Array operand(Index device, const std::vector<Index>& shape) {
  Array out = Array::unwritten(DType::kF32, shape);
  std::span<float> values = out.mutable_elements<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((static_cast<Index>(i) * 7 + device * 13) % 101);
  }
  return out;
}
double value(Index device, Index i) { return static_cast<double>((i * 7 + device * 13) % 101); }

struct Collective {
  const char* name;
  // Shape of the operand where the larger side has `elements`.
  std::vector<Index> (*shape)(Index elements, Index n);
  Array (*run)(Device& device, const Array& x);
  // Element i of member `rank`'s result.
  double (*expected)(Index rank, Index i, Index elements, Index n);
};

std::vector<Index> all(Index elements, Index) { return {elements}; }
std::vector<Index> share(Index elements, Index n) { return {elements / n}; }
std::vector<Index> rows(Index elements, Index n) { return {n, elements / n}; }
double sum_at(Index i, Index n) {
  double out = 0;
  for (Index j = 0; j < n; ++j) out += value(j, i);
  return out;
}

// Of the member that has it.
Index largest_at(Index i, Index n) {
  Index out = 0;
  for (Index j = 1; j < n; ++j) out = value(j, i) > value(out, i) ? j : out;
  return out;
}
double smallest_at(Index i, Index n) {
  double out = value(0, i);
  for (Index j = 1; j < n; ++j) out = std::min(out, value(j, i));
  return out;
}

// Rows that member a sends to member b or gets from it: half a share or one and a half, in turns,
// so that those of a member add up to all it has, n being even.
Index sent(Index a, Index b, Index elements, Index n) {
  const Index half = elements / n / 2;
  return (a + b) % 2 == 0 ? half : 3 * half;
}
// Those before: to or from the members 0 .. b - 1.
Index before(Index a, Index b, Index elements, Index n) {
  Index out = 0;
  for (Index k = 0; k < b; ++k) out += sent(a, k, elements, n);
  return out;
}
Array ragged(Device& device, const Array& x) {
  const Index n = device.axis_size("X"), own = device.index(), elements = x.size();
  const Index shape[] = {n};
  RaggedSlices s;
  const auto filled = [&](const auto& of) {
    Array out = Array::unwritten(DType::kI64, shape);
    for (Index j = 0; j < n; ++j) {
      out.mutable_elements<std::int64_t>()[static_cast<std::size_t>(j)] = of(j);
    }
    return out;
  };
  s.input_offsets = filled([&](Index j) { return before(own, j, elements, n); });
  s.send_sizes = filled([&](Index j) { return sent(own, j, elements, n); });
  s.output_offsets = filled([&](Index j) { return before(j, own, elements, n); });
  s.recv_sizes = s.send_sizes;
  return ragged_all_to_all(device, x, x, s, "X");
}
double ragged_at(Index rank, Index i, Index elements, Index n) {
  Index from = n - 1;
  while (before(rank, from, elements, n) > i) --from;
  return value(from, before(from, rank, elements, n) + i - before(rank, from, elements, n));
}

const Collective kCollectives[] = {
    {"all_gather", share,
     [](Device& d, const Array& x) { return all_gather(d, x, "X", {.tiled = true}); },
     [](Index, Index i, Index elements, Index n) {
       return value(i / (elements / n), i % (elements / n));
     }},
    {"psum", all, [](Device& d, const Array& x) { return psum(d, x, "X"); },
     [](Index, Index i, Index, Index n) { return sum_at(i, n); }},
    {"psum_scatter", all,
     [](Device& d, const Array& x) { return psum_scatter(d, x, "X", {.tiled = true}); },
     [](Index rank, Index i, Index elements, Index n) {
       return sum_at(rank * (elements / n) + i, n);
     }},
    {"all_to_all", all,
     [](Device& d, const Array& x) { return all_to_all(d, x, "X", 0, 0, {.tiled = true}); },
     [](Index rank, Index i, Index elements, Index n) {
       return value(i / (elements / n), rank * (elements / n) + i % (elements / n));
     }},
    {"ppermute", all,
     [](Device& d, const Array& x) { return ppermute(d, x, "X", ring(d.axis_size("X"), 1)); },
     [](Index rank, Index i, Index, Index n) { return value((rank + n - 1) % n, i); }},
    {"pbroadcast", all, [](Device& d, const Array& x) { return pbroadcast(d, x, "X", 0); },
     [](Index, Index i, Index, Index) { return value(0, i); }},
    {"pmean", all, [](Device& d, const Array& x) { return pmean(d, x, "X"); },
     [](Index, Index i, Index, Index n) { return sum_at(i, n) / static_cast<double>(n); }},
    {"pmax", all, [](Device& d, const Array& x) { return pmax(d, x, "X"); },
     [](Index, Index i, Index, Index n) { return value(largest_at(i, n), i); }},
    {"pmin", all, [](Device& d, const Array& x) { return pmin(d, x, "X"); },
     [](Index, Index i, Index, Index n) { return smallest_at(i, n); }},
    {"pargmax", all, [](Device& d, const Array& x) { return pargmax(d, x, "X"); },
     [](Index, Index i, Index, Index n) { return static_cast<double>(largest_at(i, n)); }},
    {"pswapaxes", rows, [](Device& d, const Array& x) { return pswapaxes(d, x, "X", 0); },
     [](Index rank, Index i, Index elements, Index n) {
       return value(i / (elements / n), rank * (elements / n) + i % (elements / n));
     }},
    {"ragged_all_to_all", all, ragged, ragged_at},
};

bool right(const Collective& c, const Array& result, Index rank, Index elements, Index n) {
  for (Index i = 0; i < result.size(); i += 1 + result.size() / 1009) {
    if (result.at(i) != c.expected(rank, i, elements, n)) return false;
  }
  return result.at(result.size() - 1) == c.expected(rank, result.size() - 1, elements, n);
}

// Runs `repeat` collectives in one launch; one iteration is all of them. The devices start together
// and the last one to end counts.
void time_collective(benchmark::State& state, const Collective& c, Index bytes, Index n) {
  const Index elements = bytes / 4;
  const Index repeat = repetitions(bytes);
  const auto inputs = [&] {
    std::vector<Array> out;
    for (Index d = 0; d < n; ++d) out.push_back(operand(d, c.shape(elements, n)));
    return out;
  }();
  std::atomic<bool> ok{true};
  double done = 0;
  for (auto _ : state) {
    Clock::time_point begin, end;
    launch(line_of(n), [&](Device& device) {
      const Array& x = inputs[static_cast<std::size_t>(device.index())];
      const Array first = c.run(device, x);
      if (!right(c, first, device.index(), elements, n)) ok = false;
      const Array token = operand(0, {1});
      psum(device, token, "X");
      if (device.index() == 0) begin = Clock::now();
      for (Index k = 0; k < repeat; ++k) benchmark::DoNotOptimize(c.run(device, x).data());
      psum(device, token, "X");
      if (device.index() == 0) end = Clock::now();
    });
    if (!ok) {
      state.SkipWithError("the result is wrong");
      return;
    }
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
    done += static_cast<double>(repeat);
  }
  // Of all devices together.
  state.counters["bytes"] =
      benchmark::Counter(done * static_cast<double>(bytes * n), benchmark::Counter::kIsRate);
  state.counters["calls"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
}

// The same bytes copied by one thread: each device's array to memory of its own.
void time_memcpy(benchmark::State& state, Index bytes, Index n) {
  const Index repeat = repetitions(bytes);
  std::vector<Array> from, to;
  for (Index d = 0; d < n; ++d) {
    from.push_back(operand(d, {bytes / 4}));
    to.push_back(operand(d + 1, {bytes / 4}));
  }
  double done = 0;
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    for (Index k = 0; k < repeat; ++k) {
      for (std::size_t d = 0; d < from.size(); ++d) {
        std::memcpy(to[d].mutable_data(), from[d].data(), from[d].bytes());
        benchmark::ClobberMemory();
      }
    }
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
    done += static_cast<double>(repeat);
  }
  state.counters["bytes"] =
      benchmark::Counter(done * static_cast<double>(bytes * n), benchmark::Counter::kIsRate);
}

// A launch with an empty body.
void time_launch(benchmark::State& state, Index n) {
  const Mesh mesh = line_of(n);
  for (auto _ : state) launch(mesh, [](Device&) {});
  state.counters["calls"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// A call of a shard_map with an empty body: a launch, and one small argument that is cut.
void time_shard_map(benchmark::State& state, Index n) {
  const auto call =
      shard_map(line_of(n), {.in_specs = {P{"X"}}, .out_specs = {}}, [](Device&, const Array&) {});
  const Array x = operand(0, {n});
  for (auto _ : state) call(x);
  state.counters["calls"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void add_all() {
  for (const Index n : kDevices) {
    const std::string devices = std::to_string(n) + "D/";
    benchmark::RegisterBenchmark(("launch/0/" + devices + "kref").c_str(),
                                 [n](benchmark::State& s) { time_launch(s, n); })
        ->UseRealTime();
    benchmark::RegisterBenchmark(("shard_map/0/" + devices + "kref").c_str(),
                                 [n](benchmark::State& s) { time_shard_map(s, n); })
        ->UseRealTime();
    // Four bytes: what a meeting takes.
    benchmark::RegisterBenchmark(
        ("rendezvous/4/" + devices + "kref").c_str(),
        [n](benchmark::State& s) { time_collective(s, kCollectives[1], 4, n); })
        ->UseManualTime();
    for (const Index bytes : kBytes) {
      const std::string size = std::to_string(bytes) + "/";
      benchmark::RegisterBenchmark(("memcpy/" + size + devices + "kref").c_str(),
                                   [bytes, n](benchmark::State& s) { time_memcpy(s, bytes, n); })
          ->UseManualTime();
      for (const Collective& c : kCollectives) {
        benchmark::RegisterBenchmark(
            (std::string(c.name) + "/" + size + devices + "kref").c_str(),
            [&c, bytes, n](benchmark::State& s) { time_collective(s, c, bytes, n); })
            ->UseManualTime();
      }
    }
  }
}

}  // namespace
}  // namespace kref::bench

int main(int argc, char** argv) {
  kref::bench::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
