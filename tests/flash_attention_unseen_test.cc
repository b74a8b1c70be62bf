// SPDX-License-Identifier: Apache-2.0
// What a row does not see has no influence on it, not by one bit; nor have threads and SIMD
// targets.
#include <doctest/doctest.h>

#include "dsl/threads.h"
#include "tests/flash_attention_cases.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

// What each row sees, as the definition has it: of every key, and of every element of bias.
struct Seen {
  std::set<std::tuple<Index, Index, Index>> keys;          // batch, group, key
  std::set<std::tuple<Index, Index, Index, Index>> pairs;  // batch, head, query, key
};
Seen seen_by(const AttentionCase& c) {
  Seen seen;
  AttentionInputs in = c.inputs();
  in.bias.reset();  // a bias hides nothing
  in.sinks.reset();
  AttentionOptions options = c.options;
  options.fully_masked = FullyMasked::kZero;
  reference::attention_rows(in, options, [&](const reference::AttentionRow& row) {
    for (const auto& key : row.keys) {
      seen.keys.insert({row.batch, row.head / (c.H / c.G), key.index});
      seen.pairs.insert({row.batch, row.head, row.query, key.index});
    }
  });
  return seen;
}

TEST_CASE("NaN in every place that nobody sees changes no bit") {
  std::mt19937 random(11);
  for (int n = 0; n < 120; ++n) {
    AttentionCase c = make_case(Levels(random), random);
    if (c.options.fully_masked == FullyMasked::kUniform)
      c.options.fully_masked = FullyMasked::kZero;
    const Result clean = compute(c);
    const Seen seen = seen_by(c);
    const auto poison = [] { return std::numeric_limits<double>::quiet_NaN(); };
    c.q = copy_of(c.q), c.k = copy_of(c.k), c.v = copy_of(c.v);
    Index poisoned = 0;
    const auto row_at = [&](Index heads, Index rows, Index b, Index h, Index r) {
      return c.bthd() ? (b * rows + r) * heads + h : (b * heads + h) * rows + r;
    };
    for (Index b = 0; b < c.B; ++b) {
      for (Index g = 0; g < c.G; ++g) {
        for (Index j = 0; j < c.S; ++j) {
          if (seen.keys.count({b, g, j}) != 0) continue;
          overwrite(c.k, row_at(c.G, c.S, b, g, j) * c.D, c.D, poison);
          overwrite(c.v, row_at(c.G, c.S, b, g, j) * c.E, c.E, poison);
          ++poisoned;
        }
      }
      const Index length =
          c.has_q ? c.q_lengths.elements<std::int32_t>()[static_cast<std::size_t>(b)] : c.T;
      for (Index h = 0; h < c.H; ++h) {
        for (Index i = length; i < c.T; ++i)
          overwrite(c.q, row_at(c.H, c.T, b, h, i) * c.D, c.D, poison);
      }
    }
    if (c.has_bias) {
      c.bias = copy_of(c.bias);
      std::vector<bool> used(static_cast<std::size_t>(c.bias.size()), false);
      const auto shape = c.bias.shape();
      for (const auto& [b, h, i, j] : seen.pairs) {
        const Index at =
            (((b % shape[0]) * shape[1] + h % shape[1]) * shape[2] + i % shape[2]) * shape[3] + j;
        used[static_cast<std::size_t>(at)] = true;
      }
      for (Index at = 0; at < c.bias.size(); ++at) {
        if (!used[static_cast<std::size_t>(at)]) overwrite(c.bias, at, 1, poison), ++poisoned;
      }
    }
    const Result dirty = compute(c);
    CAPTURE(n);
    CAPTURE(poisoned);
    CHECK(same_bits(clean.o, dirty.o));
    CHECK(same_bits(clean.lse, dirty.lse));
  }
}

TEST_CASE("a NaN or infinite value reaches exactly the rows that see it") {
  std::mt19937 random(13);
  for (int n = 0; n < 120; ++n) {
    AttentionCase c = make_case(Levels(random), random);
    c.options.fully_masked = FullyMasked::kZero;
    c.has_bias = false;
    c.out_dtype = DType::kF32;
    const Result clean = compute(c);
    const Seen seen = seen_by(c);
    const Index key = static_cast<Index>(random() % static_cast<unsigned>(c.S));
    Array v(c.v.dtype(), c.v.shape());
    std::memcpy(v.mutable_data(), c.v.data(), v.bytes());
    const bool nan = n % 2 == 0;
    for (Index b = 0; b < c.B; ++b) {
      for (Index g = 0; g < c.G; ++g) {
        const Index row = c.bthd() ? (b * c.S + key) * c.G + g : (b * c.G + g) * c.S + key;
        overwrite(v, row * c.E, 1, [&] { return nan ? NAN : INFINITY; });
      }
    }
    c.v = v;
    const Result dirty = compute(c);
    CAPTURE(n);
    CHECK(same_bits(clean.lse, dirty.lse));
    for (Index b = 0; b < c.B; ++b) {
      for (Index h = 0; h < c.H; ++h) {
        for (Index i = 0; i < c.T; ++i) {
          const Index row = (c.bthd() ? (b * c.T + i) * c.H + h : (b * c.H + h) * c.T + i) * c.E;
          const auto at = static_cast<std::size_t>(row);
          const float* was = clean.o.elements<float>().data() + at;
          const float* is = dirty.o.elements<float>().data() + at;
          if (seen.pairs.count({b, h, i, key}) != 0) {
            CHECK(!std::isfinite(is[0]));
          } else {
            CHECK(std::memcmp(was, is, 4) == 0);
          }
          CHECK(std::memcmp(was + 1, is + 1, static_cast<std::size_t>(c.E - 1) * 4) == 0);
        }
      }
    }
  }
}

TEST_CASE("the same bits for any number of rows a block") {
  std::mt19937 random(19);
  for (int n = 0; n < 60; ++n) {
    AttentionCase c = make_case(Levels(random), random);
    if (c.options.fully_masked == FullyMasked::kNaN) c.options.fully_masked = FullyMasked::kUniform;
    c.tile.q = 0;
    const Result first = compute(c);
    CAPTURE(n);
    for (const Index q : {1, 3, 16}) {
      c.tile.q = q;
      const Result again = compute(c);
      CHECK(same_bits(first.o, again.o));
      CHECK(same_bits(first.lse, again.lse));
    }
  }
}

TEST_CASE("the same bits for any number of threads and on every target") {
  std::mt19937 random(17);
  for (int n = 0; n < 24; ++n) {
    AttentionCase c = make_case(Levels(random), random);
    if (c.options.fully_masked == FullyMasked::kNaN) c.options.fully_masked = FullyMasked::kUniform;
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

}  // namespace
}  // namespace kref
