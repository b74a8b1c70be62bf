// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_vjp.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "bench/attention_operands.h"
#include "dsl/threads.h"
#include "kernels/attention_gradient.h"
#include "kernels/dot.h"
#include "kernels/flash_attention_vjp.h"
#include "kernels/tile_ops.h"

namespace kref::bench {
namespace {

// Operands with what the forward pass left, a cotangent, and room for the gradients.
template <class T>
struct Backward : Operands<T> {
  Tensor<T, 4> ct, dq, dk, dv;
  Tensor<float, 3> lse;

  explicit Backward(const AttentionShape& c)
      : Operands<T>(c),
        ct(random_tensor<T, 4>(this->q.extents(), 4)),
        dq(this->q.extents()),
        dk(this->k.extents()),
        dv(this->v.extents()),
        lse({1, c.heads, c.queries}) {
    flash_attention(inputs(), this->o.ref(), lse.ref(), this->options);
  }
  AttentionInputs inputs() const {
    return {.q = this->q.ref(), .k = this->k.ref(), .v = this->v.ref()};
  }
};

// Weights add up to 1, so that dv of all keys comes to do of all rows; and both q . dq and k . dk,
// summed, are the sum of ds s. Is it so, to a share of the sums of magnitudes?
template <class T>
bool sums_are_right(const Backward<T>& a) {
  double dv = 0, ct = 0, q = 0, k = 0, size = 0, scores = 0;
  for (Index i = 0; i < a.dv.size(); ++i) dv += static_cast<double>(a.dv.data()[i]);
  for (Index i = 0; i < a.ct.size(); ++i) {
    ct += static_cast<double>(a.ct.data()[i]);
    size += std::fabs(static_cast<double>(a.ct.data()[i]));
  }
  for (Index i = 0; i < a.q.size(); ++i) {
    const double product = static_cast<double>(a.q.data()[i]) * static_cast<double>(a.dq.data()[i]);
    q += product, scores += std::fabs(product);
  }
  for (Index i = 0; i < a.k.size(); ++i)
    k += static_cast<double>(a.k.data()[i]) * static_cast<double>(a.dk.data()[i]);
  return scores > 0 && std::fabs(dv - ct) < 0.001 * size && std::fabs(q - k) < 0.01 * scores;
}

// One head of raw_loops: what a user would write without the DSL, round the same verbs.
template <class T>
struct RawHead {
  static constexpr Index kRows = 128, kKeys = 256;
  Tensor<float, 2> p{{kRows, kKeys}}, ds{{kRows, kKeys}}, product, q, ct, k, v, dk, dv, dq, turned;
  Tensor<float, 1> delta;
  detail::BlockMask mask;

  RawHead(Index queries, Index depth)
      : product({kRows, depth}),
        q({kRows, depth}),
        ct({kRows, depth}),
        k({kKeys, depth}),
        v({kKeys, depth}),
        dk({depth, kKeys}),
        dv({depth, kKeys}),
        dq({queries, depth}),
        turned({kKeys, depth}),
        delta({queries}) {}

  static Ref<T, 2> rows(Tensor<T, 4>& x, Index h, Index r, Index n) {
    return matrix(x.ref().block({0, h, r, 0}, {1, 1, n, x.extent(3)}));
  }
  // The rows in f32: where they lie if they are so already.
  static Ref<const float, 2> wide(Ref<T, 2> x, Tensor<float, 2>& memory) {
    if constexpr (std::is_same_v<T, float>) {
      return x;
    } else {
      const Ref<float, 2> out = memory.ref().block({0, 0}, x.extents());
      cast(x, out);
      return out;
    }
  }

  void operator()(Backward<T>& a, Index h) {
    const Index queries = a.q.extent(2), keys = a.k.extent(2);
    const bool causal = static_cast<Causal>(a.options.causal) == Causal::kTopLeft;
    detail::ScoreRule rule;
    rule.scale = static_cast<float>(static_cast<double>(a.options.scale));
    fill(dq.ref(), 0.0f);
    for (Index i0 = 0; i0 < queries; i0 += kRows) {
      const Index n = std::min(kRows, queries - i0);
      const Ref<float, 2> products = product.ref().block({0, 0}, {n, a.q.extent(3)});
      mul<float>(wide(rows(a.ct, h, i0, n), ct), wide(rows(a.o, h, i0, n), q), products);
      row_sum(products, delta.ref().block({i0}, {n}));
    }
    for (Index j0 = 0; j0 < keys; j0 += kKeys) {
      const Index n = std::min(kKeys, keys - j0);
      const Ref<const float, 2> kj = wide(rows(a.k, h, j0, n), k),
                                vj = wide(rows(a.v, h, j0, n), v);
      fill(dk.ref(), 0.0f), fill(dv.ref(), 0.0f);
      for (Index i0 = causal ? j0 / kRows * kRows : 0; i0 < queries; i0 += kRows) {
        block(a, h, i0, j0, causal, rule, kj, vj);
      }
      const Ref<float, 2> out = turned.ref().block({0, 0}, {n, kj.extent(1)});
      for (const bool of_k : {true, false}) {
        const Ref<float, 2> from = (of_k ? dk : dv).ref();
        detail::transpose(from.block({0, 0}, {from.extent(0), n}), out);
        cast(out, rows(of_k ? a.dk : a.dv, h, j0, n));
      }
    }
    cast(dq.ref(), rows(a.dq, h, 0, queries));
  }

  // Rows i0.. and keys j0... of which a causal block has those up to the last row.
  void block(Backward<T>& a, Index h, Index i0, Index j0, bool causal,
             const detail::ScoreRule& rule, Ref<const float, 2> kj, Ref<const float, 2> vj) {
    const Index first = causal ? std::max<Index>(0, j0 - i0) : 0;
    mask.rows = std::min(kRows, a.q.extent(2) - i0) - first;
    mask.keys = causal ? std::min(kj.extent(0), i0 + first + mask.rows - j0) : kj.extent(0);
    if (mask.rows <= 0) return;
    mask.begin.assign(static_cast<std::size_t>(mask.rows), 0);
    mask.end.clear();
    for (Index r = 0; r < mask.rows; ++r) {
      mask.end.push_back(static_cast<std::int32_t>(
          causal ? std::min(mask.keys, i0 + first + r - j0 + 1) : mask.keys));
    }
    const Index row0 = i0 + first, depth = kj.extent(1);
    const auto seen = [&](Ref<const float, 2> x) { return x.block({0, 0}, {mask.keys, depth}); };
    const auto scores = [&](Tensor<float, 2>& x) {
      return x.ref().block({0, 0}, {mask.rows, mask.keys});
    };
    const auto columns = [&](Tensor<float, 2>& x) {
      return x.ref().block({0, 0}, {depth, mask.keys});
    };
    const Ref<const float, 2> qi = wide(rows(a.q, h, row0, mask.rows), q),
                              cti = wide(rows(a.ct, h, row0, mask.rows), ct);
    dot<float>(qi, seen(kj), scores(p), {.trans_y = true});
    dot<float>(cti, seen(vj), scores(ds), {.trans_y = true});
    const Ref<const float, 1> lse(&a.lse(0, h, row0), {mask.rows});
    detail::attention_gradient(rule, rule.scale, mask, {},
                               {lse, delta.ref().block({row0}, {mask.rows})}, scores(p),
                               scores(ds));
    dot_add<float>(cti, scores(p), columns(dv), {.trans_x = true});
    dot_add<float>(qi, scores(ds), columns(dk), {.trans_x = true});
    dot_add<float>(scores(ds), seen(kj), dq.ref().block({row0, 0}, {mask.rows, depth}));
  }
};

template <class T>
void raw_loops(Backward<T>& a, int threads) {
#pragma omp parallel num_threads(threads)
  {
    RawHead<T> head(a.q.extent(2), a.q.extent(3));
#pragma omp for schedule(dynamic)
    for (Index h = 0; h < a.q.extent(1); ++h) head(a, h);
  }
}

template <class T, class F>
void time_vjp(benchmark::State& state, const AttentionShape& c, int threads, const F& run) {
  set_threads(threads);
  Backward<T> a(c);
  run(a);
  if (!sums_are_right(a)) return state.SkipWithError("the gradients are wrong");
  for (auto _ : state) {
    run(a);
    benchmark::DoNotOptimize(a.dq.data());
    benchmark::ClobberMemory();
  }
  // Five products for the forward pass's two.
  state.counters["flops"] =
      benchmark::Counter(2.5 * c.flops(), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["heads"] = static_cast<double>(c.heads);
}

template <class T>
void add_type(const char* type) {
  for (const AttentionShape& c : kAttentions) {
    for (const int threads : {1, 2}) {
      const std::string prefix = "attention_vjp/" + std::string(type) + "/" + c.name + "/" +
                                 std::to_string(threads) + "T/";
      benchmark::RegisterBenchmark((prefix + "kref").c_str(), [&c, threads](benchmark::State& s) {
        time_vjp<T>(s, c, threads, [](Backward<T>& a) {
          flash_attention_vjp(a.inputs(), {.o = a.o.ref(), .lse = a.lse.ref()}, {.o = a.ct.ref()},
                              {a.dq.ref(), a.dk.ref(), a.dv.ref()}, a.options);
        });
      })->UseRealTime();
      benchmark::RegisterBenchmark((prefix + "raw").c_str(), [&c, threads](benchmark::State& s) {
        time_vjp<T>(s, c, threads, [threads](Backward<T>& a) { raw_loops(a, threads); });
      })->UseRealTime();
    }
  }
}

}  // namespace

void add_attention_vjp() {
  add_type<float>("f32");
  add_type<bf16>("bf16");
}

}  // namespace kref::bench
