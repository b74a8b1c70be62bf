// SPDX-License-Identifier: Apache-2.0
// The kernel on small inputs that published kernels got wrong; the answers are known by hand. The
// definition has the same cases in reference_attention_test.cc.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/flash_attention.h"

namespace kref {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One head, q = k = 0, D = E = 1: each row is the mean of the values it sees.
struct Means {
  Tensor<float, 4> q, k, v, o;
  Tensor<float, 3> lse;
  AttentionInputs in;

  Means(Index rows, const std::vector<float>& values)
      : q({1, 1, rows, 1}, 0.0f),
        k({1, 1, static_cast<Index>(values.size()), 1}, 0.0f),
        v({1, 1, static_cast<Index>(values.size()), 1}),
        o({1, 1, rows, 1}),
        lse({1, 1, rows}),
        in{.q = q.ref(), .k = k.ref(), .v = v.ref()} {
    std::copy(values.begin(), values.end(), v.data());
  }
  void operator()(const AttentionOptions& options, const AttentionTile& tile = {}) {
    flash_attention(in, o.ref(), lse.ref(), options, tile);
  }
  float at(Index row) const { return o(0, 0, row, 0); }
};

std::vector<float> ramp(Index n) {
  std::vector<float> out;
  for (Index i = 0; i < n; ++i) out.push_back(static_cast<float>(i));
  return out;
}

const AttentionTile kTiles[] = {{}, {1, 1}, {64, 64}, {128, 128}, {7, 48}};

TEST_CASE("jax 19237: causal row i of a ramp is i / 2, all of 256 keys are 127.5") {
  Means means(256, ramp(256));
  for (const AttentionTile& tile : kTiles) {
    means({.scale = 1, .causal = Causal::kTopLeft}, tile);
    for (Index i = 0; i < 256; ++i) REQUIRE(means.at(i) == static_cast<float>(i) / 2);
    means({.scale = 1, .causal = Causal::kNone}, tile);
    for (Index i = 0; i < 256; ++i) REQUIRE(means.at(i) == 127.5f);
  }
}

TEST_CASE("jax 23349: key lengths alone hide what lies past them") {
  Tensor<float, 4> q({2, 1, 4, 1}, 0.0f), k({2, 1, 4, 1}, 0.0f), v({2, 1, 4, 1}), o({2, 1, 4, 1});
  const float values[] = {1, 2, 1e30f, kNaN, 1, 2, 3, 4};
  std::copy(values, values + 8, v.data());
  k(0, 0, 3, 0) = kNaN;
  Tensor<std::int32_t, 1> lengths({2});
  lengths(0) = 2, lengths(1) = 4;
  AttentionInputs in{.q = q.ref(), .k = k.ref(), .v = v.ref()};
  in.kv_lengths = ArrayRef(lengths.ref());
  flash_attention(in, o.ref(), {}, {.scale = 1, .causal = Causal::kNone});
  for (Index i = 0; i < 4; ++i) {
    CHECK(o(0, 0, i, 0) == 1.5f);
    CHECK(o(1, 0, i, 0) == 2.5f);
  }
}

TEST_CASE("tpu-inference 1185: a window of 100 keys at the end of 300, cut inside a block") {
  Means means(1, ramp(300));
  for (const AttentionTile& tile : kTiles) {
    means({.scale = 1, .causal = Causal::kBottomRight, .window = {.left = 99, .right = 0}}, tile);
    CHECK(means.at(0) == 249.5f);
  }
}

TEST_CASE("tpu-inference 1954: the last 16 of 1024 keys") {
  Means means(1, ramp(1024));
  for (const AttentionTile& tile : {AttentionTile{}, {1, 256}}) {
    means({.scale = 1, .causal = Causal::kBottomRight, .window = {.left = 15, .right = 0}}, tile);
    CHECK(means.at(0) == (1008 + 1023) / 2.0f);
  }
}

TEST_CASE("maxtext 4289: both ends of a window are inside") {
  Means means(8, ramp(8));
  means({.scale = 1, .causal = Causal::kTopLeft, .window = {.left = 3, .right = 0}});
  for (Index i = 0; i < 8; ++i)
    CHECK(means.at(i) == static_cast<float>(i + std::max<Index>(0, i - 3)) / 2);
  means({.scale = 1, .causal = Causal::kTopLeft, .window = {.left = 4, .right = 0}});
  for (Index i = 0; i < 8; ++i)
    CHECK(means.at(i) == static_cast<float>(i + std::max<Index>(0, i - 4)) / 2);
}

TEST_CASE("flash-attention 1133: a window of S - 1 to the left is plain causal") {
  Means window(9, ramp(9)), causal(9, ramp(9));
  window({.scale = 1, .causal = Causal::kNone, .window = {.left = 8, .right = 0}});
  causal({.scale = 1, .causal = Causal::kTopLeft});
  for (Index i = 0; i < 9; ++i) CHECK(window.at(i) == causal.at(i));
}

TEST_CASE("maxtext 4908: negative segment ids match or never do") {
  Means means(4, {1, 3, 5, 9});
  Tensor<std::int32_t, 2> ids({1, 4}, 0);
  ids(0, 2) = ids(0, 3) = -1;
  means.in.q_segment_ids = means.in.kv_segment_ids = ArrayRef(ids.ref());
  means({.scale = 1, .causal = Causal::kNone});
  CHECK(means.at(0) == 2);
  CHECK(means.at(3) == 7);
  means({.scale = 1, .causal = Causal::kNone, .negative_segments = NegativeSegments::kNever});
  CHECK(means.at(0) == 2);
  CHECK(means.at(3) == 0);
  CHECK(means.lse(0, 0, 3) == -kInf);
}

TEST_CASE("maxtext 4924: more rows than keys, aligned at the bottom, and the rules for dead rows") {
  Means means(4, {4, 8});
  means({.scale = 1, .causal = Causal::kBottomRight});
  const float zero[] = {0, 0, 4, 6};
  for (Index i = 0; i < 4; ++i) CHECK(means.at(i) == zero[i]);
  CHECK(means.lse(0, 0, 1) == -kInf);
  means({.scale = 1, .causal = Causal::kBottomRight, .fully_masked = FullyMasked::kUniform});
  CHECK(means.at(0) == 6);
  CHECK(means.lse(0, 0, 1) == -kInf);
  means({.scale = 1, .causal = Causal::kBottomRight, .fully_masked = FullyMasked::kNaN});
  CHECK(std::isnan(means.at(1)));
  CHECK(std::isnan(means.lse(0, 0, 1)));
  CHECK(means.at(3) == 6);
}

TEST_CASE("pytorch 101967: a masked key that is NaN stays out") {
  Means means(2, {7, kNaN});
  means.k(0, 0, 1, 0) = kNaN;
  Tensor<bool, 4> mask({1, 1, 1, 2}, true);
  mask(0, 0, 0, 1) = false;
  means.in.mask = ArrayRef(mask.ref());
  means({.scale = 1, .causal = Causal::kNone});
  CHECK(means.at(0) == 7);
  CHECK(means.at(1) == 7);
}

TEST_CASE("llama.cpp 6438: the first block is masked, the second has one key") {
  Means means(1, {kInf, 2, 3, 4, 5, 6, 42, kNaN});
  Tensor<bool, 4> mask({1, 1, 1, 8}, false);
  mask(0, 0, 0, 6) = true;
  means.in.mask = ArrayRef(mask.ref());
  for (const Index k : {1, 2, 4, 8}) {
    means({.scale = 1, .causal = Causal::kNone}, {1, k});
    CHECK(means.at(0) == 42);
    CHECK(means.lse(0, 0, 0) == 0);
  }
}

TEST_CASE("flash-attention 2470: no keys at all") {
  Means means(3, {});
  for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
    means({.scale = 1, .causal = causal});
    CHECK(means.at(2) == 0);
    CHECK(means.lse(0, 0, 2) == -kInf);
  }
}

TEST_CASE("pytorch 187506: v a view of every other row") {
  Means means(1, ramp(6));
  means.in.k = means.k.ref().block({0, 0, 0, 0}, {1, 1, 3, 1});
  means.in.v = Ref<const float, 4>(means.v.data(), {1, 1, 3, 1}, {6, 6, 2, 1});
  means({.scale = 1, .causal = Causal::kNone});
  CHECK(means.at(0) == 2);
}

}  // namespace
}  // namespace kref
