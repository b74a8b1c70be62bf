// SPDX-License-Identifier: Apache-2.0
// The definition of the backward pass of attention: numbers done by hand, rows that see no key, and
// NaN where nobody looks.
#include "kernels/reference_attention_vjp.h"

#include "tests/attention_inputs.h"
#include "tests/attention_vjp_cases.h"

namespace kref::reference {
namespace {

// q and k of `heads` and `groups` heads, D = E = 1.
struct Small {
  Tensor<float, 4> q, k, v, ct;
  AttentionInputs in;

  Small(Index heads, Index groups, Index rows, Index keys)
      : q({1, heads, rows, 1}, 0.0f),
        k({1, groups, keys, 1}, 0.0f),
        v({1, groups, keys, 1}, 0.0f),
        ct({1, heads, rows, 1}, 1.0f),
        in{.q = view(q), .k = view(k), .v = view(v)} {}
  AttentionGradients operator()(const AttentionOptions& options) const {
    return attention_vjp(in, {.o = view(ct)}, options);
  }
};

TEST_CASE("L102: dv of a kv head is the sum over the query heads of its group, in blocks") {
  Small a(6, 2, 4, 4);
  // Sums of 1 / (i + 1) over the rows i >= j, three query heads each.
  check_row(a({.scale = 1, .causal = kTop}).v, {6.25, 3.25, 1.75, 0.75, 6.25, 3.25, 1.75, 0.75},
            1e-14);
  // Heads 0 to 2 read kv head 0: head h alone contributes there or nowhere.
  for (Index head = 0; head < 6; ++head) {
    std::fill(a.ct.data(), a.ct.data() + a.ct.size(), 0.0f);
    for (Index i = 0; i < 4; ++i) a.ct(0, head, i, 0) = 12.0f;
    const std::vector<double> dv = a({.scale = 1, .causal = kTop}).v;
    for (std::size_t j = 0; j < 8; ++j)
      CHECK((dv[j] != 0) == (static_cast<Index>(j / 4) == head / 3));
  }
}

TEST_CASE("one row of two keys, by hand, under every convention of the scores") {
  // Scores are equal, so weights are 1/2; dp = 3, 7; delta = 5; ds = -1, 1.
  Small a(1, 1, 1, 2);
  a.q(0, 0, 0, 0) = 2, a.k(0, 0, 0, 0) = a.k(0, 0, 1, 0) = 3;
  a.v(0, 0, 0, 0) = 3, a.v(0, 0, 1, 0) = 7;
  const AttentionGradients plain = a({.scale = 0.5, .causal = kAll});
  check_row(plain.q, {0});
  check_row(plain.k, {-1, 1});
  check_row(plain.v, {0.5, 0.5});
  CHECK(plain.bias.empty());
  CHECK(plain.sinks.empty());

  const auto bias = tensor<4>({1, 1, 1, 2}, {0, 0});
  a.in.bias = view(bias);
  check_row(a({.scale = 0.5, .causal = kAll}).bias, {-1, 1});
  check_row(a({.scale = 0.5, .causal = kAll, .bias_order = BiasOrder::kBeforeScale}).bias,
            {-0.5, 0.5});
  // Score 3 under a cap of 3 ln 3 / ln 2: no closed form; under one so large that the slope is 1.
  check_row(a({.scale = 0.5, .causal = kAll, .soft_cap = 1e12}).k, {-1, 1}, 1e-20);
  const double slope = 1 / std::cosh(1.0) / std::cosh(1.0);
  check_row(a({.scale = 0.5, .causal = kAll, .soft_cap = 3}).k, {-slope, slope}, 1e-15);

  // A cotangent of lse goes to the logits in proportion to the weights; in base 2 times log2 e.
  const auto ct_lse = tensor<3>({1, 1, 1}, {4});
  const auto with_lse = [&](LogBase base) {
    return attention_vjp(a.in, {.o = view(a.ct), .lse = view(ct_lse)},
                         {.scale = 0.5, .causal = kAll, .lse_base = base});
  };
  check_row(with_lse(LogBase::kE).bias, {1, 3});
  const double more = 2 / std::log(2.0);
  check_row(with_lse(LogBase::k2).bias, {more - 1, more + 1}, 1e-15);
}

TEST_CASE("a sink is one more key whose value is 0") {
  // Weights 1/4 each of three keys and the sink; dp = 4, 8, 12: delta = 6.
  Small a(1, 1, 1, 3);
  for (Index j = 0; j < 3; ++j) a.v(0, 0, j, 0) = static_cast<float>(4 * j + 4);
  const auto sink = tensor<1>({1}, {0});
  a.in.sinks = view(sink);
  const auto bias = tensor<4>({1, 1, 1, 3}, {0, 0, 0});
  a.in.bias = view(bias);
  const AttentionGradients g = a({.scale = 1, .causal = kAll});
  check_row(g.bias, {-0.5, 0.5, 1.5});
  check_row(g.sinks, {-1.5});
  // A row that sees its sink alone: o = 0, lse = sink.
  const auto none = ints({0});
  a.in.kv_lengths = view(none);
  const auto ct_lse = tensor<3>({1, 1, 1}, {4});
  const AttentionGradients alone =
      attention_vjp(a.in, {.o = view(a.ct), .lse = view(ct_lse)}, {.scale = 1, .causal = kAll});
  check_row(alone.sinks, {4});
  check_row(alone.v, {0, 0, 0});
  check_row(alone.q, {0});
}

TEST_CASE("maxtext 4924: two dead rows of four leave finite gradients, whatever their do") {
  for (const FullyMasked rule : {FullyMasked::kZero, FullyMasked::kUniform, FullyMasked::kNaN}) {
    Small a(1, 1, 4, 2);
    for (Index i = 0; i < 4; ++i) a.q(0, 0, i, 0) = static_cast<float>(i + 1);
    a.k(0, 0, 1, 0) = 1, a.v(0, 0, 0, 0) = 2, a.v(0, 0, 1, 0) = -3;
    const AttentionOptions options{.scale = 1, .causal = kBottom, .fully_masked = rule};
    a.ct(0, 0, 0, 0) = a.ct(0, 0, 1, 0) = 0;
    const AttentionGradients plain = a(options);
    CHECK(plain.q[0] == 0);
    CHECK(plain.q[1] == 0);
    CHECK(plain.q[2] == 0);  // sees one key
    CHECK(plain.q[3] != 0);
    a.ct(0, 0, 0, 0) = 8, a.ct(0, 0, 1, 0) = rule == FullyMasked::kUniform ? 2 : kNaN;
    const AttentionGradients dead = a(options);
    CHECK(dead.q == plain.q);
    CHECK(dead.k == plain.k);
    const double share = rule == FullyMasked::kUniform ? (8 + 2) / 2.0 : 0;
    check_row(dead.v, {plain.v[0] + share, plain.v[1] + share}, 1e-14);
  }
}

TEST_CASE("L040: rows without a key, by mask, segments, lengths or causal, give no gradient") {
  const Tensor<bool, 4> mask({1, 1, 1, 2}, false);
  Tensor<std::int32_t, 2> mine({1, 3}, 1), its({1, 2}, 2);
  const auto none = ints({0});
  for (int way = 0; way < 4; ++way) {
    CAPTURE(way);
    Small a(2, 1, 3, 2);
    std::fill(a.q.data(), a.q.data() + a.q.size(), 1.0f);
    std::fill(a.k.data(), a.k.data() + a.k.size(), kNaN);
    std::fill(a.v.data(), a.v.data() + a.v.size(), kNaN);
    AttentionOptions options{.scale = 1, .causal = kAll};
    if (way == 0) a.in.mask = view(mask);
    if (way == 1) a.in.q_segment_ids = view(mine), a.in.kv_segment_ids = view(its);
    if (way == 2) a.in.kv_lengths = view(none);
    if (way == 3) {
      a.in.q_lengths = view(none);
      a.ct(0, 0, 0, 0) = kNaN;
    }
    const auto bias = tensor<4>({1, 1, 1, 2}, {1, 2});
    a.in.bias = view(bias);
    const AttentionGradients g = a(options);
    for (const std::vector<double>* grad : {&g.q, &g.k, &g.v, &g.bias}) {
      check_row(*grad, std::vector<double>(grad->size(), 0.0));
    }
  }
}

TEST_CASE("NaN in whatever no row sees leaves every gradient as it is") {
  std::mt19937 random(11);
  Index poisoned = 0;
  for (int n = 0; n < 120; ++n) {
    CAPTURE(n);
    AttentionVjpCase c = make_vjp_case(Levels(random), random);
    const AttentionGradients clean = attention_vjp(c.inputs(), c.cotangents(), c.options);
    poisoned += poison_unseen(c);
    const AttentionGradients dirty = attention_vjp(c.inputs(), c.cotangents(), c.options);
    CHECK(dirty.q == clean.q);
    CHECK(dirty.k == clean.k);
    CHECK(dirty.v == clean.v);
    CHECK(dirty.bias == clean.bias);
    CHECK(dirty.sinks == clean.sinks);
  }
  CHECK(poisoned > 1000);
}

TEST_CASE("cotangents that do not fit are refused by name") {
  Small a(2, 1, 3, 2);
  const auto refusal = [&](const AttentionCotangents& ct) {
    try {
      attention_vjp(a.in, ct, {.scale = 1, .causal = kAll});
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  const Tensor<float, 4> wide({1, 2, 3, 2}, 0.0f);
  CHECK(refusal({.o = view(wide)}) == "attention: ct.o is F32[1,2,3,2], expected floats [1,2,3,1]");
  const Tensor<std::int32_t, 4> whole({1, 2, 3, 1}, 0);
  CHECK(refusal({.o = view(whole)}) ==
        "attention: ct.o is I32[1,2,3,1], expected floats [1,2,3,1]");
  const Tensor<float, 3> lse({1, 3, 2}, 0.0f);
  CHECK(refusal({.o = view(a.ct), .lse = view(lse)}) ==
        "attention: ct.lse is F32[1,3,2], expected floats [1,2,3]");
}

}  // namespace
}  // namespace kref::reference
