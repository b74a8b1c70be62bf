// SPDX-License-Identifier: Apache-2.0
// flash_attention beside hand-written loops round the same verbs (the price of the DSL) and beside
// kref's matmul, backward likewise (attention_vjp.cc); decode_attention beside a plain read of the
// same caches. Names are attention/TYPE/TxSxD/MASK/THREADS/WHO, attention_vjp/.. and
// decode/TYPE/BxSxHxGxD/THREADS/WHO; bench/table.py prints them as ratios. Every result is checked
// before it is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "bench/attention_operands.h"
#include "bench/attention_vjp.h"
#include "dsl/threads.h"
#include "kernels/decode_attention.h"
#include "kernels/dot.h"
#include "kernels/flash_attention.h"
#include "kernels/matmul.h"
#include "kernels/softmax_finish.h"
#include "kernels/tile_ops.h"

namespace kref::bench {
namespace {

// Is the last row of the last head what plain loops make of it?
template <class T>
bool last_row_is_right(const Operands<T>& a) {
  const Index h = a.q.extent(1) - 1, i = a.q.extent(2) - 1, keys = a.k.extent(2);
  std::vector<double> p(static_cast<std::size_t>(keys)), o(static_cast<std::size_t>(a.v.extent(3)));
  double most = -1e300, sum = 0;
  for (Index j = 0; j < keys; ++j) {
    double dot = 0;
    for (Index d = 0; d < a.q.extent(3); ++d)
      dot += static_cast<double>(a.q(0, h, i, d)) * static_cast<double>(a.k(0, h, j, d));
    p[static_cast<std::size_t>(j)] = dot * static_cast<double>(a.options.scale);
    most = std::max(most, p[static_cast<std::size_t>(j)]);
  }
  for (Index j = 0; j < keys; ++j) {
    double& weight = p[static_cast<std::size_t>(j)];
    sum += weight = std::exp(weight - most);
    for (std::size_t e = 0; e < o.size(); ++e)
      o[e] += weight * static_cast<double>(a.v(0, h, j, static_cast<Index>(e)));
  }
  for (std::size_t e = 0; e < o.size(); ++e) {
    const double found = static_cast<double>(a.o(0, h, i, static_cast<Index>(e)));
    if (!(std::fabs(found - o[e] / sum) < 0.01 * (0.01 + std::fabs(o[e] / sum)))) return false;
  }
  return true;
}

// What a user would write without the DSL: loops over the same tiles round the same verbs.
template <class T>
void raw_loops(Operands<T>& a, int threads) {
  const Index heads = a.q.extent(1), queries = a.q.extent(2), keys = a.k.extent(2),
              depth = a.q.extent(3);
  const AttentionTile t = default_attention_tile(heads, queries, keys);
  const bool causal = static_cast<Causal>(a.options.causal) == Causal::kTopLeft;
  detail::ScoreRule rule;
  rule.scale = static_cast<float>(static_cast<double>(a.options.scale));
  const Index blocks = cdiv(queries, t.q);
#pragma omp parallel num_threads(threads)
  {
    Tensor<float, 2> scores({t.q, cdiv(t.k, 16) * 16}), most({t.q, 1}), sums({t.q, 16}),
        acc({t.q, depth}), values({t.k, depth}), total({t.q, 1});
    detail::BlockMask mask;
#pragma omp for schedule(dynamic)
    for (Index at = 0; at < heads * blocks; ++at) {
      const Index h = at / blocks, i0 = at % blocks * t.q, rows = std::min(t.q, queries - i0);
      const auto rows_of = [&](Tensor<float, 2>& x, Index r, Index n) {
        return x.ref().block({r, 0}, {n, x.extent(1)});
      };
      detail::reset_softmax({rows_of(most, 0, rows), rows_of(sums, 0, rows), rows_of(acc, 0, rows)},
                            -INFINITY);
      for (Index j0 = 0; j0 < keys && (!causal || j0 < i0 + rows); j0 += t.k) {
        const Index n = std::min(t.k, keys - j0), first = causal ? std::max<Index>(0, j0 - i0) : 0;
        mask.rows = rows - first, mask.keys = n;
        mask.begin.assign(static_cast<std::size_t>(mask.rows), 0);
        mask.end.resize(static_cast<std::size_t>(mask.rows));
        for (Index r = 0; r < mask.rows; ++r) {
          mask.end[static_cast<std::size_t>(r)] =
              static_cast<std::int32_t>(causal ? std::min(n, i0 + first + r - j0 + 1) : n);
        }
        const auto block = [](Tensor<T, 4>& x, Index head, Index r, Index count) {
          return matrix(x.ref().block({0, head, r, 0}, {1, 1, count, x.extent(3)}));
        };
        const Ref<float, 2> p = scores.ref().block({0, 0}, {mask.rows, n});
        dot<T>(block(a.q, h, i0 + first, mask.rows), block(a.k, h, j0, n), p, {.trans_y = true});
        detail::softmax_update(rule, mask, {}, p,
                               {rows_of(most, first, mask.rows), rows_of(sums, first, mask.rows),
                                rows_of(acc, first, mask.rows)});
        const Ref<float, 2> vt = values.ref().block({0, 0}, {n, depth});
        cast(block(a.v, h, j0, n), vt);
        dot_add<float>(p, vt, rows_of(acc, first, mask.rows));
      }
      detail::finish_softmax(
          {rows_of(most, 0, rows), rows_of(sums, 0, rows), rows_of(acc, 0, rows)}, rows,
          FullyMasked::kZero, {}, LogBase::kE, rows_of(total, 0, rows));
      cast(rows_of(acc, 0, rows), matrix(a.o.ref().block({0, h, i0, 0}, {1, 1, rows, depth})));
    }
  }
}

template <class T, class F>
void time_attention(benchmark::State& state, const AttentionShape& c, int threads, const F& run) {
  set_threads(threads);
  Operands<T> a(c);
  run(a);
  if (!last_row_is_right(a)) return state.SkipWithError("the attention is wrong");
  for (auto _ : state) {
    run(a);
    benchmark::DoNotOptimize(a.o.data());
    benchmark::ClobberMemory();
  }
  state.counters["flops"] =
      benchmark::Counter(c.flops(), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["heads"] = static_cast<double>(c.heads);  // for a peer that builds the same shape
}

template <class T>
void add_attention(const char* type) {
  for (const AttentionShape& c : kAttentions) {
    for (const int threads : {1, 2}) {
      const std::string prefix =
          "attention/" + std::string(type) + "/" + c.name + "/" + std::to_string(threads) + "T/";
      benchmark::RegisterBenchmark((prefix + "kref").c_str(), [&c, threads](benchmark::State& s) {
        time_attention<T>(s, c, threads, [](Operands<T>& a) {
          flash_attention({.q = a.q.ref(), .k = a.k.ref(), .v = a.v.ref()}, a.o.ref(), {},
                          a.options);
        });
      })->UseRealTime();
      benchmark::RegisterBenchmark((prefix + "raw").c_str(), [&c, threads](benchmark::State& s) {
        time_attention<T>(s, c, threads, [threads](Operands<T>& a) { raw_loops(a, threads); });
      })->UseRealTime();
    }
  }
}

void time_matmul(benchmark::State& state, int threads) {
  set_threads(threads);
  constexpr Index kSide = 1024;
  const auto x = random_tensor<float, 2>({kSide, kSide}, 1),
             y = random_tensor<float, 2>({kSide, kSide}, 2);
  Tensor<float, 2> z({kSide, kSide});
  for (auto _ : state) {
    matmul(ArrayRef(x.ref()), ArrayRef(y.ref()), MutableArrayRef(z.ref()));
    benchmark::ClobberMemory();
  }
  state.counters["flops"] = benchmark::Counter(2.0 * kSide * kSide * kSide,
                                               benchmark::Counter::kIsIterationInvariantRate);
}

template <class T>
void time_decode(benchmark::State& state, const DecodeShape& c, int threads) {
  set_threads(threads);
  const auto q = random_tensor<T, 3>({c.batches, c.heads, c.depth}, 1);
  const auto k = random_tensor<T, 4>({c.batches, c.slots, c.groups, c.depth}, 2),
             v = random_tensor<T, 4>({c.batches, c.slots, c.groups, c.depth}, 3);
  const Tensor<std::int32_t, 1> lengths({c.batches}, static_cast<std::int32_t>(c.slots));
  Tensor<T, 3> o({c.batches, c.heads, c.depth});
  for (auto _ : state) {
    decode_attention(
        {.q = q.ref(), .k_cache = k.ref(), .v_cache = v.ref(), .lengths = lengths.ref()}, o.ref(),
        {}, {.scale = 1 / std::sqrt(static_cast<double>(c.depth))});
    benchmark::ClobberMemory();
  }
  state.counters["bytes"] =
      benchmark::Counter(c.elements() * sizeof(T), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["heads"] = static_cast<double>(c.heads);
}

// What reading as much memory takes: the floor of a decode.
template <class T>
void time_read(benchmark::State& state, const DecodeShape& c, int threads) {
  const auto words = static_cast<Index>(c.elements() * sizeof(T) / 4);
  const Tensor<float, 1> memory({words}, 1.0f);
  const float* p = memory.data();
  for (auto _ : state) {
    float total = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (Index piece = 0; piece < words / 4096; ++piece) {
      float lanes[64] = {};
      for (Index i = 0; i < 4096; i += 64)
        for (Index l = 0; l < 64; ++l) lanes[l] += p[piece * 4096 + i + l];
      for (const float lane : lanes) total += lane;
    }
    benchmark::DoNotOptimize(total);
  }
  state.counters["bytes"] =
      benchmark::Counter(c.elements() * sizeof(T), benchmark::Counter::kIsIterationInvariantRate);
}

template <class T>
void add_decode(const char* type) {
  for (const DecodeShape& c : kDecodes) {
    for (const int threads : {1, 2}) {
      const std::string prefix =
          "decode/" + std::string(type) + "/" + c.name + "/" + std::to_string(threads) + "T/";
      benchmark::RegisterBenchmark((prefix + "kref").c_str(), [&c, threads](benchmark::State& s) {
        time_decode<T>(s, c, threads);
      })->UseRealTime();
      benchmark::RegisterBenchmark((prefix + "read").c_str(), [&c, threads](benchmark::State& s) {
        time_read<T>(s, c, threads);
      })->UseRealTime();
    }
  }
}

}  // namespace
}  // namespace kref::bench

int main(int argc, char** argv) {
  using namespace kref::bench;
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark(("matmul/f32/" + std::to_string(threads) + "T/kref").c_str(),
                                 [threads](benchmark::State& s) { time_matmul(s, threads); })
        ->UseRealTime();
  }
  add_attention<float>("f32");
  add_attention<kref::bf16>("bf16");
  add_attention_vjp();
  add_decode<float>("f32");
  add_decode<kref::bf16>("bf16");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
