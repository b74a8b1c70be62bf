// SPDX-License-Identifier: Apache-2.0
// decode_attention against its definition in f64, within the judge's bound; slots that are not
// valid have no influence; sums over many parts stay exact where they can; the same bits
// everywhere.
#include "kernels/decode_attention.h"

#include <doctest/doctest.h>

#include "dsl/threads.h"
#include "golden/decode_op.h"
#include "golden/judge.h"
#include "tests/flash_attention_cases.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

struct DecodeCase {
  Index B = 2, H = 4, G = 2, S = 40, D = 8, E = 6;
  Array q, k, v, lengths;
  DecodeOptions options{.scale = 0.5};
  DType out_dtype = DType::kF32;

  void fill(DType type, std::mt19937& random) {
    std::normal_distribution<double> normal;
    const auto noise = [&](Index) { return normal(random); };
    q = filled(type, {B, H, D}, noise);
    k = filled(type, {B, S, G, D}, noise);
    v = filled(type, {B, S, G, E}, noise);
  }
  void set_lengths(const std::vector<Index>& values) {
    lengths = filled(DType::kI32, {B}, [&](Index b) {
      return static_cast<double>(values[static_cast<std::size_t>(b)]);
    });
  }
  DecodeInputs inputs() const { return {.q = q, .k_cache = k, .v_cache = v, .lengths = lengths}; }
};

Result compute(const DecodeCase& c) {
  Result r{Array(c.out_dtype, std::vector<Index>{c.B, c.H, c.E}),
           Array(DType::kF32, std::vector<Index>{c.B, c.H})};
  std::memset(r.o.mutable_data(), 0x55, r.o.bytes());
  std::memset(r.lse.mutable_data(), 0x55, r.lse.bytes());
  decode_attention(c.inputs(), r.o.mutable_ref(), r.lse.mutable_ref().ref<float, 2>(), c.options);
  return r;
}

Run run_of(const DecodeCase& c, const Result& r) {
  Run run;
  run.origin = "test", run.op = "decode_attention";
  run.in = {{"q", c.q}, {"k_cache", c.k}, {"v_cache", c.v}, {"lengths", c.lengths}};
  run.out = {{"o", r.o}, {"lse", r.lse}};
  const char* const rules[] = {"zero", "uniform", "nan"};
  run.set["scale"] = static_cast<double>(c.options.scale);
  run.set["fully_masked"] = rules[static_cast<int>(c.options.fully_masked)];
  if (c.options.window.left) run.set["window"] = {*c.options.window.left, 0};
  if (c.options.soft_cap) run.set["soft_cap"] = *c.options.soft_cap;
  run.set["p_dtype"] = name_of(c.options.p_dtype.value_or(DType::kF32));
  run.set["out_dtype"] = name_of(c.out_dtype);
  return run;
}

DecodeCase random_case(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<Index> of) {
    return of.begin()[random() % static_cast<unsigned>(of.size())];
  };
  DecodeCase c;
  c.H = pick({1, 2, 6, 8}), c.G = c.H == 1 ? 1 : pick({1, c.H, 2});
  c.B = pick({1, 3}), c.S = pick({1, 5, 40, 511, 513, 1100}), c.D = pick({1, 8, 16, 37}),
  c.E = pick({1, 6, 64, 70});
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
  c.fill(types[pick({0, 1, 2})], random);
  c.out_dtype = types[pick({0, 1, 2})];
  std::vector<Index> lengths;
  for (Index b = 0; b < c.B; ++b) {
    const Index some = static_cast<Index>(random() % static_cast<unsigned>(c.S + 1));
    lengths.push_back(pick({some, c.S}));
  }
  c.set_lengths(lengths);
  if (pick({0, 1}) == 1) c.options.window.left = pick({0, 3, 100, 100000});
  if (pick({0, 1}) == 1) c.options.soft_cap = 2.0;
  c.options.fully_masked = pick({0, 1}) == 1 ? FullyMasked::kZero : FullyMasked::kNaN;
  c.options.p_dtype = types[pick({0, 1, 2})];
  return c;
}

TEST_CASE("within the judge's bound of the definition") {
  std::mt19937 random(3);
  for (int n = 0; n < 200; ++n) {
    const DecodeCase c = random_case(random);
    const Run run = run_of(c, compute(c));
    CAPTURE(n);
    CAPTURE(run.set.dump());
    for (const Expectation& e : expect_decode(run)) {
      const Verdict verdict = judge(e, run.out.at(e.output));
      CAPTURE(e.output);
      CAPTURE(report(verdict));
      CHECK(verdict.ok());
    }
  }
}

TEST_CASE("slots past a length or before a window may hold NaN: no bit changes") {
  std::mt19937 random(5);
  for (int n = 0; n < 60; ++n) {
    DecodeCase c = random_case(random);
    c.options.fully_masked = FullyMasked::kZero;
    const Result clean = compute(c);
    const reference::DecodeAsAttention as(c.inputs(), c.options);
    for (Array* cache : {&c.k, &c.v}) {
      Array dirty(cache->dtype(), cache->shape());
      std::memcpy(dirty.mutable_data(), cache->data(), dirty.bytes());
      const Index row = cache->extent(2) * cache->extent(3);
      with_dtype(dirty.dtype(), [&]<class T>() {
        for (Index at = 0; at < c.B * c.S; ++at) {
          if (as.mask(at / c.S, 0, 0, at % c.S)) continue;
          for (Index i = 0; i < row; ++i) {
            dirty.mutable_elements<T>()[static_cast<std::size_t>(at * row + i)] =
                static_cast<T>(std::numeric_limits<double>::quiet_NaN());
          }
        }
      });
      *cache = dirty;
    }
    const Result dirty = compute(c);
    CAPTURE(n);
    CHECK(same_bits(clean.o, dirty.o));
    CHECK(same_bits(clean.lse, dirty.lse));
  }
}

TEST_CASE("q = 0: means of integers are exact over any number of parts") {
  DecodeCase c;
  c.B = 3, c.H = 4, c.G = 2, c.S = 1600, c.D = 5, c.E = 20;
  c.q = filled(DType::kF32, {c.B, c.H, c.D}, [](Index) { return 0.0; });
  c.k = filled(DType::kF32, {c.B, c.S, c.G, c.D},
               [](Index i) { return std::sin(static_cast<double>(i)); });
  c.v = filled(DType::kF32, {c.B, c.S, c.G, c.E},
               [](Index i) { return static_cast<double>(i * 7 % 61 - 30); });
  const Index lengths[] = {1600, 513, 3};
  c.set_lengths({1600, 513, 3});
  for (const Index left : {Index{99999}, Index{600}, Index{15}}) {
    c.options.window.left = left;
    const Result r = compute(c);
    for (Index b = 0; b < c.B; ++b) {
      const Index last = lengths[b] - 1, from = std::max<Index>(0, last - left);
      for (Index h = 0; h < c.H; ++h) {
        for (Index e = 0; e < c.E; ++e) {
          int sum = 0;
          for (Index j = from; j <= last; ++j)
            sum += static_cast<int>(c.v.at(((b * c.S + j) * c.G + h / 2) * c.E + e));
          REQUIRE(r.o.elements<float>()[static_cast<std::size_t>((b * c.H + h) * c.E + e)] ==
                  static_cast<float>(sum) / static_cast<float>(last - from + 1));
        }
      }
    }
  }
}

TEST_CASE("tpu-inference 1954: a window that starts far into the cache") {
  DecodeCase c;
  c.B = 1, c.H = c.G = 1, c.S = 1024, c.D = 4, c.E = 1;
  c.q = filled(DType::kF32, {1, 1, 4}, [](Index) { return 0.0; });
  c.k = filled(DType::kF32, {1, 1024, 1, 4}, [](Index) { return 1.0; });
  c.v = filled(DType::kF32, {1, 1024, 1, 1}, [](Index i) { return static_cast<double>(i); });
  c.set_lengths({1024});
  c.options.window.left = 15;
  CHECK(compute(c).o.at(0) == (1008 + 1023) / 2.0);
  c.set_lengths({1000});
  CHECK(compute(c).o.at(0) == (984 + 999) / 2.0);
}

TEST_CASE("the same bits for any number of threads and on every target") {
  std::mt19937 random(9);
  for (int n = 0; n < 16; ++n) {
    DecodeCase c = random_case(random);
    c.options.fully_masked = FullyMasked::kZero;
    const Result first = compute(c);
    CAPTURE(n);
    for_each_target([&] {
      for (const int threads : {1, 3}) {
        set_threads(threads);
        const Result again = compute(c);
        CHECK(same_bits(first.o, again.o));
        CHECK(same_bits(first.lse, again.lse));
      }
    });
    set_threads(0);
  }
}

TEST_CASE("sizes of zero") {
  std::mt19937 random(1);
  for (int zero = 0; zero < 4; ++zero) {
    DecodeCase c;
    (zero == 0 ? c.B : zero == 1 ? c.S : zero == 2 ? c.D : c.E) = 0;
    c.fill(DType::kF32, random);
    c.set_lengths({c.S, c.S / 2});
    const Run run = run_of(c, compute(c));
    for (const Expectation& e : expect_decode(run)) CHECK(judge(e, run.out.at(e.output)).ok());
  }
}

TEST_CASE("what does not fit is refused by name") {
  std::mt19937 random(1);
  DecodeCase c;
  c.fill(DType::kF32, random);
  c.set_lengths({3, 40});
  compute(c);
  const auto refused = [&](const char* part, auto&& change) {
    DecodeCase bad = c;
    change(bad);
    CHECK_THROWS_WITH_AS(compute(bad), doctest::Contains(part), Error);
  };
  refused("lengths[1] is 41, expected 0 to 40", [](DecodeCase& a) { a.set_lengths({3, 41}); });
  refused("lengths[0] is -1, expected 0 to 40", [](DecodeCase& a) { a.set_lengths({-1, 4}); });
  refused("lengths[0] is 0, which leaves nothing to average", [](DecodeCase& a) {
    a.set_lengths({0, 4}), a.options.fully_masked = FullyMasked::kUniform;
  });
  refused("v_cache is BF16[2,40,2,6], expected the element type of q, F32", [](DecodeCase& a) {
    a.v = filled(DType::kBF16, {2, 40, 2, 6}, [](Index) { return 0.0; });
  });
  refused("k_cache is F32[2,40,2,9], expected [2,40,2,8]", [](DecodeCase& a) {
    a.k = filled(DType::kF32, {2, 40, 2, 9}, [](Index) { return 0.0; });
  });
  refused("soft_cap is not positive", [](DecodeCase& a) { a.options.soft_cap = -1; });
}

}  // namespace
}  // namespace kref
