// SPDX-License-Identifier: Apache-2.0
// flash_attention against its definition in f64, within the judge's bound, over pairs of options;
// inputs whose answer is exact; what is refused.
#include "kernels/flash_attention.h"

#include <doctest/doctest.h>

#include "golden/attention_bound.h"
#include "golden/judge.h"
#include "tests/attention_case_runs.h"

namespace kref {
namespace {

// The case as a run, for the judge.
Run run_of(const AttentionCase& c, const Result& r) {
  Run run = request_of(c, "attention");
  run.out = {{"o", r.o}, {"lse", r.lse}};
  return run;
}

TEST_CASE("every pair of options, within the judge's bound of the definition") {
  std::mt19937 random(7);
  std::set<std::tuple<int, int, int, int>> pairs;
  double closest = 0;
  for (int n = 0; n < 360; ++n) {
    const Levels levels(random);
    const AttentionCase c = make_case(levels, random);
    const Result r = compute(c);
    const Run run = run_of(c, r);
    CAPTURE(n);
    CAPTURE(run.set.dump());
    for (const Expectation& e : expect_attention(run)) {
      const Verdict verdict = judge(e, run.out.at(e.output));
      CAPTURE(e.output);
      CAPTURE(verdict.worst.element);
      CAPTURE(verdict.worst.expected);
      CAPTURE(verdict.worst.actual);
      CHECK(verdict.ok());
      if (verdict.ok()) closest = std::max(closest, verdict.worst.ratio);
    }
    for (int f = 0; f < Levels::kFactors; ++f) {
      for (int g = 0; g < f; ++g) pairs.insert({f, levels.level[f], g, levels.level[g]});
    }
  }
  std::size_t all = 0;
  for (int f = 0; f < Levels::kFactors; ++f) {
    for (int g = 0; g < f; ++g)
      all += static_cast<std::size_t>(Levels::kCounts[f] * Levels::kCounts[g]);
  }
  CHECK(pairs.size() == all);
  MESSAGE("closest to its bound: ", closest);
}

TEST_CASE("8-bit floats in, and wide and narrow types out") {
  std::mt19937 random(23);
  const DType types[] = {DType::kF8E4M3, DType::kF8E5M2};
  for (int n = 0; n < 24; ++n) {
    AttentionCase c = make_case(Levels(random), random);
    const DType type = types[n % 2];
    for (Array* a : {&c.q, &c.k, &c.v}) {
      const Array from = *a;
      *a = filled(type, {from.shape().begin(), from.shape().end()},
                  [&](Index i) { return from.at(i); });
    }
    if (c.has_bias && c.bias.dtype() != DType::kF32) c.has_bias = false;
    c.out_dtype = n % 3 == 0 ? DType::kF64 : n % 3 == 1 ? type : DType::kF32;
    const Run run = run_of(c, compute(c));
    CAPTURE(n);
    for (const Expectation& e : expect_attention(run)) CHECK(judge(e, run.out.at(e.output)).ok());
  }
}

TEST_CASE("sizes of zero leave what the definition says") {
  for (const std::vector<Index>& z : std::vector<std::vector<Index>>{
           {0, 3, 4, 5, 6}, {2, 0, 4, 5, 6}, {2, 3, 0, 5, 6}, {2, 3, 4, 0, 6}, {2, 3, 4, 5, 0}}) {
    AttentionCase c;
    c.B = z[0], c.H = c.G = 2, c.T = z[1], c.S = z[2], c.D = z[3], c.E = z[4];
    const auto ones = [](Index i) { return 1.0 + static_cast<double>(i % 3); };
    c.q = filled(DType::kF32, c.shape(2, c.T, c.D), ones);
    c.k = filled(DType::kF32, c.shape(2, c.S, c.D), ones);
    c.v = filled(DType::kF32, c.shape(2, c.S, c.E), ones);
    c.sinks = filled(DType::kF32, {2}, [](Index) { return 0.25; });
    c.options.p_dtype = DType::kF32;
    for (const bool sinks : {false, true}) {
      c.has_sinks = sinks;
      const Result r = compute(c);
      const Run run = run_of(c, r);
      CAPTURE(z);
      for (const Expectation& e : expect_attention(run)) CHECK(judge(e, run.out.at(e.output)).ok());
    }
  }
}

TEST_CASE("q = 0: means of integers are exact, whatever the tile") {
  AttentionCase c;
  c.B = 1, c.H = 4, c.G = 2, c.T = 37, c.S = 53, c.D = 8, c.E = 5;
  const auto zero = [](Index) { return 0.0; };
  c.q = filled(DType::kF32, c.shape(4, c.T, c.D), zero);
  c.k = filled(DType::kF32, c.shape(2, c.S, c.D),
               [](Index i) { return std::sin(static_cast<double>(i)); });
  c.v = filled(DType::kF32, c.shape(2, c.S, c.E),
               [](Index i) { return static_cast<double>(i * 7 % 41 - 20); });
  c.options.causal = Causal::kBottomRight;
  c.options.window = {.left = 19, .right = 0};
  const auto v = c.v.elements<float>();
  for (const AttentionTile tile :
       {AttentionTile{}, {1, 1}, {4, 7}, {16, 16}, {37, 53}, {100, 20}}) {
    c.tile = tile;
    const Result r = compute(c);
    const auto o = r.o.elements<float>();
    for (Index h = 0; h < 4; ++h) {
      for (Index i = 0; i < c.T; ++i) {
        const Index position = c.S - c.T + i, from = std::max<Index>(0, position - 19);
        for (Index e = 0; e < c.E; ++e) {
          int sum = 0;
          for (Index j = from; j <= position; ++j)
            sum += static_cast<int>(v[static_cast<std::size_t>(((h / 2) * c.S + j) * c.E + e)]);
          const float mean = static_cast<float>(sum) / static_cast<float>(position - from + 1);
          REQUIRE(o[static_cast<std::size_t>((h * c.T + i) * c.E + e)] == mean);
        }
      }
    }
  }
}

TEST_CASE("soft caps and scales at the ends of f32") {
  AttentionCase c;
  c.B = c.H = c.G = 1, c.T = 2, c.S = 3, c.D = 1, c.E = 1;
  const auto noise = [](Index i) { return 0.5 + static_cast<double>(i); };
  c.q = filled(DType::kF32, c.shape(1, c.T, 1), noise);
  c.k = filled(DType::kF32, c.shape(1, c.S, 1), noise);
  c.v = filled(DType::kF32, c.shape(1, c.S, 1), noise);
  c.options.p_dtype = DType::kF32;
  for (const double cap : {1e-60, 1e-44, 1e38, 1e60}) {
    c.options.soft_cap = cap;
    const Run run = run_of(c, compute(c));
    CAPTURE(cap);
    for (const Expectation& e : expect_attention(run)) CHECK(judge(e, run.out.at(e.output)).ok());
  }
  c.options.soft_cap.reset();
  c.options.scale = 1e39, c.k = filled(DType::kF32, c.shape(1, c.S, 1),
                                       [](Index i) { return static_cast<double>(i) * 1e-38; });
  Run run = run_of(c, Result{c.q, c.q});
  run.out.clear();
  run.out = attention_operation().compute(run);  // by its definition
  run.out.erase("lse");
  for (const Expectation& e : expect_attention(run)) CHECK(judge(e, run.out.at(e.output)).ok());
}

TEST_CASE("large logits select rows of v, bit for bit") {
  AttentionCase c;
  c.B = 1, c.H = c.G = 1, c.T = 40, c.S = 64, c.D = 64, c.E = 7;
  const auto chosen = [](Index i) { return i * 29 % 64; };
  c.q = filled(DType::kBF16, c.shape(1, c.T, c.D),
               [&](Index i) { return i % 64 == chosen(i / 64) ? 256.0 : 0.0; });
  c.k = filled(DType::kBF16, c.shape(1, c.S, c.D),
               [](Index i) { return i % 64 == i / 64 ? 1.0 : 0.0; });
  c.v = filled(DType::kBF16, c.shape(1, c.S, c.E),
               [](Index i) { return static_cast<double>(i % 251); });
  c.out_dtype = DType::kBF16;
  c.options.scale = 1;
  for (const AttentionTile tile : {AttentionTile{}, {3, 16}, {40, 5}}) {
    c.tile = tile;
    const Result r = compute(c);
    for (Index i = 0; i < c.T; ++i) {
      for (Index e = 0; e < c.E; ++e) {
        REQUIRE(static_cast<double>(r.o.elements<bf16>()[static_cast<std::size_t>(i * c.E + e)]) ==
                static_cast<double>((chosen(i) * c.E + e) % 251));
      }
    }
  }
}

TEST_CASE("what does not fit is refused by name") {
  AttentionCase c;
  c.B = 2, c.H = 4, c.G = 2, c.T = 3, c.S = 5, c.D = 4, c.E = 6;
  const auto zero = [](Index) { return 0.0; };
  c.q = filled(DType::kF32, c.shape(4, c.T, c.D), zero);
  c.k = filled(DType::kF32, c.shape(2, c.S, c.D), zero);
  c.v = filled(DType::kF32, c.shape(2, c.S, c.E), zero);
  const auto refused = [&](const char* part, auto&& change) {
    AttentionCase bad = c;
    change(bad);
    CAPTURE(part);
    try {
      compute(bad);
      FAIL("not refused");
    } catch (const Error& e) {
      CAPTURE(e.what());
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
  };
  compute(c);
  refused("k is F32[2,2,5,7], expected [2,2,5,4]", [&](AttentionCase& a) {
    a.k = filled(DType::kF32, {2, 2, 5, 7}, zero);
  });
  refused("v is BF16[2,2,5,6], expected the element type of q", [&](AttentionCase& a) {
    a.v = filled(DType::kBF16, {2, 2, 5, 6}, zero);
  });
  refused("H = 4 heads of q are not a multiple of G = 3", [&](AttentionCase& a) {
    a.k = filled(DType::kF32, {2, 3, 5, 4}, zero), a.v = filled(DType::kF32, {2, 3, 5, 6}, zero);
  });
  refused("kv_lengths[1] is 6, expected 0 to 5", [&](AttentionCase& a) {
    a.has_kv = true,
    a.kv_lengths = filled(DType::kI32, {2}, [](Index i) { return 5.0 + static_cast<double>(i); });
  });
  refused("q_lengths[0] is -1, expected 0 to 3", [&](AttentionCase& a) {
    a.has_q = true, a.q_lengths = filled(DType::kI32, {2}, [](Index) { return -1.0; });
  });
  refused("mask is F32[1,1,1,5], expected BOOL", [&](AttentionCase& a) {
    a.has_mask = true, a.mask = filled(DType::kF32, {1, 1, 1, 5}, zero);
  });
  refused("bias is F16[1,1,1,5], expected F32 or the element type of q", [&](AttentionCase& a) {
    a.has_bias = true, a.bias = filled(DType::kF16, {1, 1, 1, 5}, zero);
  });
  refused("a window side is negative", [](AttentionCase& a) { a.options.window.left = -1; });
  refused("soft_cap is not positive", [](AttentionCase& a) { a.options.soft_cap = 0; });
  refused("which F32 does not hold", [](AttentionCase& a) { a.options.scale = 1e39; });
  refused("tile is [-1, 0]", [](AttentionCase& a) { a.tile.q = -1; });
  CHECK_THROWS_AS(
      flash_attention(c.inputs(),
                      MutableArrayRef(DType::kF32, c.q.shape(), const_cast<void*>(c.q.data())), {},
                      c.options),
      Error);
}

}  // namespace
}  // namespace kref
