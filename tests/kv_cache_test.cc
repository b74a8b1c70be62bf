// SPDX-License-Identifier: Apache-2.0
// KvCache and merge_partials: slots by hand, parts against the whole.
#include "kernels/kv_cache.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/merge_partials.h"

namespace kref {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor<float, 2> token(float value) { return Tensor<float, 2>({1, 1}, value); }

// The values of a sequence, oldest first.
std::vector<float> in_order(const KvCache& cache, Index sequence) {
  std::vector<float> out;
  const auto v = cache.v().ref<const float, 4>();
  for (Index i = 0; i < cache.length(sequence); ++i)
    out.push_back(v(sequence, cache.slot(sequence, i), 0, 0));
  return out;
}

TEST_CASE(
    "transformers 37574: a rolling cache keeps its window when it is just full, and past it") {
  KvCache cache(DType::kF32, {.sequences = 1, .slots = 8, .heads = 1, .depth = 1, .width = 1},
                KvCache::Full::kRoll);
  const auto add = [&](int n) {
    cache.append(0, ArrayRef(token(0).ref()), ArrayRef(token(static_cast<float>(n)).ref()));
  };
  for (int n = 100; n < 106; ++n) add(n);
  CHECK(in_order(cache, 0) == std::vector<float>{100, 101, 102, 103, 104, 105});
  add(106), add(107);
  CHECK(in_order(cache, 0) == std::vector<float>{100, 101, 102, 103, 104, 105, 106, 107});
  add(108);
  CHECK(in_order(cache, 0) == std::vector<float>{101, 102, 103, 104, 105, 106, 107, 108});
  add(109);
  CHECK(in_order(cache, 0) == std::vector<float>{102, 103, 104, 105, 106, 107, 108, 109});
  CHECK(cache.tokens(0) == 10);
  CHECK(cache.length(0) == 8);

  const Tensor<float, 3> q({1, 1, 1}, 0.0f);
  Tensor<float, 3> o({1, 1, 1});
  decode_attention(cache.inputs(q.ref()), o.ref(), {}, {.scale = 1});
  CHECK(o(0, 0, 0) == 105.5f);
}

TEST_CASE("sequences are appended to and cleared on their own; slots never written stay unseen") {
  KvCache cache(DType::kBF16, {.sequences = 2, .slots = 3, .heads = 2, .depth = 1, .width = 1});
  Tensor<bf16, 3> k({2, 2, 1}, bf16(0.0)), v({2, 2, 1});
  for (Index b = 0; b < 2; ++b)
    for (Index g = 0; g < 2; ++g) v(b, g, 0) = bf16(static_cast<double>(10 * b + g));
  cache.append(k.ref(), v.ref());
  Tensor<bf16, 2> one_k({2, 1}, bf16(0.0)), one_v({2, 1}, bf16(8.0));
  cache.append(1, ArrayRef(one_k.ref()), ArrayRef(one_v.ref()));
  CHECK(cache.length(0) == 1);
  CHECK(cache.length(1) == 2);
  const Tensor<bf16, 3> q({2, 4, 1}, bf16(1.0));
  Tensor<float, 3> o({2, 4, 1});
  decode_attention(cache.inputs(q.ref()), o.ref(), {}, {.scale = 1});
  const float want[2][4] = {{0, 0, 1, 1}, {9, 9, 9.5, 9.5}};
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 4; ++h) CHECK(o(b, h, 0) == want[b][h]);
  cache.clear(1);
  CHECK(cache.length(1) == 0);
  decode_attention(cache.inputs(q.ref()), o.ref(), {}, {.scale = 1});
  CHECK(o(1, 0, 0) == 0);
  CHECK(o(0, 2, 0) == 1);
}

TEST_CASE("what a cache refuses") {
  KvCache cache(DType::kF32, {.sequences = 2, .slots = 1, .heads = 1, .depth = 1, .width = 1});
  const auto k = token(1), v = token(2);
  cache.append(1, ArrayRef(k.ref()), ArrayRef(v.ref()));
  CHECK_THROWS_WITH_AS(cache.append(1, ArrayRef(k.ref()), ArrayRef(v.ref())),
                       doctest::Contains("sequence 1 has filled its 1 slots"), Error);
  const Tensor<float, 3> both({2, 1, 1}, 0.0f);
  CHECK_THROWS_WITH_AS(cache.append(both.ref(), both.ref()),
                       doctest::Contains("sequence 1 has filled its 1 slots"), Error);
  CHECK(cache.length(0) == 0);  // none took its token
  CHECK_THROWS_WITH_AS(cache.append(2, ArrayRef(k.ref()), ArrayRef(v.ref())),
                       doctest::Contains("sequence 2, expected 0 to 1"), Error);
  const Tensor<float, 2> wide({1, 2}, 0.0f);
  CHECK_THROWS_WITH_AS(cache.append(0, ArrayRef(k.ref()), ArrayRef(wide.ref())),
                       doctest::Contains("v is F32[1,2], expected F32[1,1]"), Error);
  CHECK_THROWS_WITH_AS(cache.slot(0, 0), doctest::Contains("token 0 of sequence 0, which has 0"),
                       Error);
}

PartialAttention part(const Tensor<float, 2>& o, const Tensor<float, 1>& lse, LogBase base) {
  return {ArrayRef(o.ref()), ArrayRef(lse.ref()), base};
}

TEST_CASE("flashinfer 4485: the base of lse decides the weights, and is not mixed") {
  Tensor<float, 2> a({1, 1}, 1.0f), b({1, 1}, 0.0f), o({1, 1});
  Tensor<float, 1> zero({1}, 0.0f), one({1}, 1.0f), lse({1});
  for (const LogBase base : {LogBase::kE, LogBase::k2}) {
    const PartialAttention parts[] = {part(a, zero, base), part(b, one, base)};
    merge_partials(parts, MutableArrayRef(o.ref()), MutableArrayRef(lse.ref()));
    const double weight = base == LogBase::kE ? 1 / (1 + std::exp(1.0)) : 1 / 3.0;
    CHECK(o(0, 0) == doctest::Approx(weight).epsilon(1e-6));
    CHECK(lse(0) ==
          doctest::Approx(base == LogBase::kE ? std::log(1 + std::exp(1.0)) : std::log2(3.0))
              .epsilon(1e-6));
  }
  const PartialAttention mixed[] = {part(a, zero, LogBase::kE), part(b, one, LogBase::k2)};
  CHECK_THROWS_WITH_AS(
      merge_partials(mixed, MutableArrayRef(o.ref())),
      doctest::Contains("the lse of part 1 is in base 2, that of part 0 in base e"), Error);
}

TEST_CASE("a part that saw no key takes no part, whatever it holds") {
  Tensor<float, 2> a({2, 3}, 5.0f), b({2, 3}, kNaN), o({2, 3});
  Tensor<float, 1> la({2}, 2.0f), lb({2}, -kInf), lse({2});
  la(1) = -kInf;
  a(1, 0) = kNaN;
  const PartialAttention parts[] = {part(b, lb, LogBase::kE), part(a, la, LogBase::kE)};
  merge_partials(parts, MutableArrayRef(o.ref()), MutableArrayRef(lse.ref()));
  for (Index e = 0; e < 3; ++e) {
    CHECK(o(0, e) == 5.0f);
    CHECK(o(1, e) == 0.0f);
  }
  CHECK(lse(0) == 2.0f);
  CHECK(lse(1) == -kInf);
}

TEST_CASE("attention over parts of the keys, merged, is attention over all") {
  const Index T = 3, S = 23, D = 4, E = 5;
  Tensor<float, 4> q({1, 1, T, D}), k({1, 1, S, D}), v({1, 1, S, E}), o({1, 1, T, E});
  float next = 0.4f;
  for (auto* t : {&q, &k, &v})
    for (Index i = 0; i < t->size(); ++i) t->data()[i] = next = 3.7f * next * (1 - next);
  Tensor<float, 3> lse({1, 1, T});
  const AttentionOptions options{.scale = 3, .causal = Causal::kNone};
  flash_attention({.q = q.ref(), .k = k.ref(), .v = v.ref()}, o.ref(), lse.ref(), options);
  std::vector<Tensor<float, 4>> os;
  std::vector<Tensor<float, 3>> lses;
  for (const auto& [from, n] : {std::pair<Index, Index>{0, 10}, {10, 1}, {11, 12}}) {
    os.emplace_back(Shape<4>{1, 1, T, E}), lses.emplace_back(Shape<3>{1, 1, T});
    flash_attention({.q = q.ref(),
                     .k = k.ref().block({0, 0, from, 0}, {1, 1, n, D}),
                     .v = v.ref().block({0, 0, from, 0}, {1, 1, n, E})},
                    os.back().ref(), lses.back().ref(), options);
  }
  std::vector<PartialAttention> parts;
  for (std::size_t i = 0; i < os.size(); ++i)
    parts.push_back({ArrayRef(os[i].ref()), ArrayRef(lses[i].ref()), LogBase::kE});
  Tensor<float, 4> merged({1, 1, T, E});
  Tensor<float, 3> merged_lse({1, 1, T});
  merge_partials(parts, MutableArrayRef(merged.ref()), MutableArrayRef(merged_lse.ref()));
  for (Index i = 0; i < T; ++i) {
    CHECK(merged_lse(0, 0, i) == doctest::Approx(lse(0, 0, i)).epsilon(1e-6));
    for (Index e = 0; e < E; ++e)
      CHECK(merged(0, 0, i, e) == doctest::Approx(o(0, 0, i, e)).epsilon(2e-6));
  }
}

}  // namespace
}  // namespace kref
