// SPDX-License-Identifier: Apache-2.0
// Gradients do not depend, not by one bit, on what rows do not see, on threads, on the SIMD target
// and on the rows of a block; and take no memory the size of all scores.
#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "dsl/threads.h"
#include "tests/flash_attention_vjp_cases.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

double nan() { return std::numeric_limits<double>::quiet_NaN(); }

TEST_CASE("vjp: NaN in every place that nobody sees changes no bit") {
  set_threads(1);
  std::mt19937 random(11);
  Index count = 0;
  for (int n = 0; n < 160; ++n) {
    AttentionVjpCase c = make_vjp_case(Levels(random), random);
    const Gradients clean = compute_vjp(c);
    count += poison_unseen(c);
    CAPTURE(n);
    CHECK(same_bits(clean, compute_vjp(c)));
  }
  CHECK(count > 10000);
  set_threads(0);
}

// One NaN in a row of q or do, or of k or v, is met by the rows and keys that see each other there.
TEST_CASE("vjp: a NaN reaches the gradients of those that see it and no others") {
  set_threads(1);
  std::mt19937 random(13);
  Index reached = 0, spared = 0;
  for (int n = 0; n < 120; ++n) {
    AttentionVjpCase c = make_vjp_case(Levels(random), random);
    c.options.fully_masked = FullyMasked::kZero;
    c.has_bias = c.has_sinks = false;
    const Gradients clean = compute_vjp(c);
    const bool of_row = n % 2 == 0;
    const auto below = [&](Index most) {
      return static_cast<Index>(random() % static_cast<unsigned>(most));
    };
    const Index b = below(c.B), h = below(c.H), i = below(c.T), j = below(c.S), group = c.H / c.G;
    const auto row_of = [&](Index head, Index query) {
      return reference::row_index(c.options.layout, b, c.H, head, c.T, query);
    };
    const auto key_of = [&](Index key) {
      return reference::row_index(c.options.layout, b, c.G, h / group, c.S, key);
    };
    AttentionVjpCase dirty = c;
    if (of_row) {
      dirty.ct_o = copy_of(c.ct_o);
      overwrite(dirty.ct_o, row_of(h, i) * c.E, 1, nan);
    } else {
      dirty.v = copy_of(c.v);
      overwrite(dirty.v, key_of(j) * c.E, 1, nan);
    }
    const Gradients got = compute_vjp(dirty);
    std::set<Index> rows, keys;  // whose dq, whose dk become NaN
    reference::attention_rows(c.inputs(), c.options, [&](const reference::AttentionRow& row) {
      if (row.batch != b || row.head / group != h / group) return;
      const bool sees = of_row ? row.head == h && row.query == i
                               : std::any_of(row.keys.begin(), row.keys.end(),
                                             [&](const auto& key) { return key.index == j; });
      if (!sees || row.keys.empty()) return;
      rows.insert(row_of(row.head, row.query));
      for (const auto& key : row.keys) keys.insert(key_of(key.index));
    });
    CAPTURE(n);
    const auto compare = [&](const Array& was, const Array& is, Index width,
                             const std::set<Index>& struck) {
      const auto item = size_of(was.dtype());
      for (Index r = 0; r < was.size() / width; ++r) {
        if (struck.count(r) != 0) {
          ++reached;
          for (Index e = 0; e < width; ++e) REQUIRE(std::isnan(is.at(r * width + e)));
          continue;
        }
        ++spared;
        const auto at = static_cast<std::size_t>(r * width) * item;
        REQUIRE(std::memcmp(static_cast<const char*>(was.data()) + at,
                            static_cast<const char*>(is.data()) + at,
                            static_cast<std::size_t>(width) * item) == 0);
      }
    };
    compare(clean.q, got.q, c.D, rows);
    compare(clean.k, got.k, c.D, keys);
    if (!of_row) compare(clean.v, got.v, c.E, {});
  }
  CHECK(reached > 300);
  CHECK(spared > 5000);
  set_threads(0);
}

TEST_CASE("vjp: the same bits for any number of rows a block") {
  set_threads(1);
  std::mt19937 random(19);
  for (int n = 0; n < 60; ++n) {
    AttentionVjpCase c = make_vjp_case(Levels(random), random);
    c.tile.q = 0;
    const Gradients first = compute_vjp(c);
    CAPTURE(n);
    for (const Index q : {1, 3, 16}) {
      c.tile.q = q;
      CHECK(same_bits(first, compute_vjp(c)));
    }
  }
  set_threads(0);
}

TEST_CASE("vjp: the same bits for any number of threads and on every target") {
  std::mt19937 random(17);
  for (int n = 0; n < 12; ++n) {
    AttentionVjpCase c = make_vjp_case(Levels(random), random);
    const Gradients first = compute_vjp(c);
    CAPTURE(n);
    for_each_target([&] {
      for (const int threads : {1, 2, 3, 8}) {
        set_threads(threads);
        CHECK(same_bits(first, compute_vjp(c)));
      }
    });
    set_threads(0);
  }
}

// Partial sums of dq for all heads would take more than the 64 MiB that are spent at a time.
TEST_CASE("vjp: batches and heads that are worked on one after the other") {
  set_threads(1);
  for (const auto& sizes : {std::array<Index, 3>{4, 2, 10000}, std::array<Index, 3>{1, 5, 20000}}) {
    const Index batches = sizes[0], groups = sizes[1], rows = sizes[2];
    AttentionVjpCase c;
    c.B = batches, c.H = c.G = groups, c.T = rows, c.S = 16, c.D = 64, c.E = 1;
    std::minstd_rand random(3);
    const auto noise = [&](Index) { return static_cast<double>(random() % 4096) / 2048 - 1; };
    c.q = filled(DType::kF32, c.shape(c.H, c.T, c.D), noise);
    c.k = filled(DType::kF32, c.shape(c.G, c.S, c.D), noise);
    c.v = filled(DType::kF32, c.shape(c.G, c.S, c.E), noise);
    c.ct_o = filled(DType::kF32, c.shape(c.H, c.T, c.E), noise);
    c.sinks = filled(DType::kF32, {c.H}, noise);
    c.q_lengths =
        filled(DType::kI32, {c.B}, [&](Index b) { return static_cast<double>(rows - b); });
    c.has_sinks = c.has_q = true;
    c.options.scale = 0.1;
    c.tile = {1000, 1};  // four partial sums
    const Gradients all = compute_vjp(c);
    // Each head by itself.
    for (Index b = 0; b < batches; ++b) {
      for (Index h = 0; h < groups; ++h) {
        AttentionVjpCase one = c;
        one.B = one.H = one.G = 1;
        const auto part = [&](const Array& a, Index count) {
          return filled(a.dtype(), {1, 1, count, a.extent(3)},
                        [&](Index i) { return a.at((b * groups + h) * count * a.extent(3) + i); });
        };
        one.q = part(c.q, c.T), one.k = part(c.k, c.S), one.v = part(c.v, c.S);
        one.ct_o = part(c.ct_o, c.T);
        one.sinks = filled(DType::kF32, {1}, [&](Index) { return c.sinks.at(h); });
        one.q_lengths = filled(DType::kI32, {1}, [&](Index) { return c.q_lengths.at(b); });
        const Gradients g = compute_vjp(one);
        CHECK(same_bits(part(all.q, c.T), g.q));
        CHECK(same_bits(part(all.k, c.S), g.k));
        CHECK(same_bits(part(all.v, c.S), g.v));
        if (batches == 1) CHECK(all.sinks.at(h) == g.sinks.at(0));
      }
    }
  }
  set_threads(0);
}

TEST_CASE("vjp: no memory the size of all scores") {
  AttentionVjpCase c;
  c.B = c.H = c.G = 1, c.T = c.S = 8192, c.D = c.E = 16;
  const auto digits = [](Index i) { return static_cast<double>(i % 7 - 3); };
  for (Array* a : {&c.q, &c.k, &c.v, &c.ct_o}) *a = filled(DType::kF32, {1, 1, c.T, c.D}, digits);
  c.options.causal = Causal::kTopLeft;
  // The largest resident memory since the last call, in KiB.
  const auto peak = [] {
    long most = 0;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) most = std::stol(line.substr(6));
    }
    std::ofstream("/proc/self/clear_refs") << 5;
    return most;
  };
  peak();
  const long before = peak();
  REQUIRE(before > 0);
  const Gradients g = compute_vjp(c);
  CHECK(!std::isnan(g.k.at(0)));
  const long inputs = 3 * c.T * c.D * 4 / 1024;  // as much as the outputs
  const long more = peak() - before - inputs;
  MESSAGE("KiB beyond the outputs: ", more);
  CHECK(more < 32 * 1024);  // the scores would be 256 MiB
}

}  // namespace
}  // namespace kref
