// SPDX-License-Identifier: Apache-2.0
// The definition of attention: which keys a row sees, and rows that see none.
#include "kernels/reference_attention.h"

#include "tests/attention_inputs.h"

namespace kref::reference {
namespace {

// L132 of the collection of cases: a causal flag inverted in code and test alike goes unseen unless
// the expected numbers come from elsewhere. These are sums of ramps, done by hand.
TEST_CASE("jax 19237: causal row i of a ramp is i / 2, all of 256 keys are 127.5") {
  const Means means(256, ramp(256));
  const AttentionResult causal = means({.scale = 1, .causal = kTop});
  const AttentionResult full = means({.scale = 1, .causal = kAll});
  for (std::size_t i = 0; i < 256; ++i) {
    CHECK(causal.o[i] == static_cast<double>(i) / 2);
    CHECK(full.o[i] == 127.5);
    CHECK(causal.lse[i] == std::log(static_cast<double>(i + 1)));
  }
}

TEST_CASE("jax 23349: key lengths alone hide what lies past them") {
  Tensor<float, 4> q({2, 1, 4, 1}, 0.0f), k({2, 1, 4, 1}, 0.0f);
  const auto v = tensor<4>({2, 1, 4, 1}, {1, 2, 1e30f, kNaN, 1, 2, 3, 4});
  k(0, 0, 3, 0) = kNaN;
  const auto lengths = ints({2, 4});
  AttentionInputs in{.q = view(q), .k = view(k), .v = view(v)};
  in.kv_lengths = view(lengths);
  check_row(attention(in, {.scale = 1, .causal = kAll}).o,
            {1.5, 1.5, 1.5, 1.5, 2.5, 2.5, 2.5, 2.5});
}

TEST_CASE("tpu-inference 1185: a window of 100 keys at the end of 300") {
  const AttentionOptions options{.scale = 1, .causal = kBottom, .window = {.left = 99, .right = 0}};
  CHECK(Means(1, ramp(300))(options).o[0] == 249.5);
}

TEST_CASE("tpu-inference 1954: the last 16 of 1024 keys") {
  const AttentionOptions options{.scale = 1, .causal = kBottom, .window = {.left = 15, .right = 0}};
  CHECK(Means(1, ramp(1024))(options).o[0] == (1008 + 1023) / 2.0);
}

TEST_CASE("maxtext 4289: both ends of a window are inside, so left = 4 shows 5 keys") {
  const Means means(8, ramp(8));
  const auto counts = [&](Index left) {
    std::vector<double> out;
    attention_rows(
        means.in, {.scale = 1, .causal = kTop, .window = {.left = left, .right = 0}},
        [&](const AttentionRow& row) { out.push_back(static_cast<double>(row.keys.size())); });
    return out;
  };
  CHECK(counts(3) == std::vector<double>{1, 2, 3, 4, 4, 4, 4, 4});
  CHECK(counts(4) == std::vector<double>{1, 2, 3, 4, 5, 5, 5, 5});
}

TEST_CASE("flash-attention 1133: a window of S - 1 to the left is plain causal") {
  const Means means(9, ramp(9));
  check_row(means({.scale = 1, .causal = kAll, .window = {.left = 8, .right = 0}}).o,
            means({.scale = 1, .causal = kTop}).o);
}

TEST_CASE("maxtext 4908: negative segment ids match or never do") {
  Means means(4, {1, 2, 3, 5});
  Tensor<std::int32_t, 2> ids({1, 4});
  const std::int32_t given[] = {0, 0, -1, -1};
  std::copy(std::begin(given), std::end(given), ids.data());
  means.in.q_segment_ids = means.in.kv_segment_ids = view(ids);
  const AttentionResult match = means({.scale = 1, .causal = kAll});
  check_row(match.o, {1.5, 1.5, 4, 4});
  const AttentionResult never =
      means({.scale = 1, .causal = kAll, .negative_segments = NegativeSegments::kNever});
  check_row(never.o, {1.5, 1.5, 0, 0});
  check_row(never.lse, {std::log(2.0), std::log(2.0), -kInf, -kInf});
}

TEST_CASE("maxtext 4924: more rows than keys, aligned at the bottom, and the rules for dead rows") {
  const Means means(4, {2, 4});  // rows 0 and 1 sit at -2 and -1
  AttentionOptions options{.scale = 1, .causal = kBottom};
  AttentionResult r = means(options);
  check_row(r.o, {0, 0, 2, 3});
  check_row(r.lse, {-kInf, -kInf, 0, std::log(2.0)});
  options.fully_masked = FullyMasked::kUniform;
  r = means(options);
  check_row(r.o, {3, 3, 2, 3});
  check_row(r.lse, {-kInf, -kInf, 0, std::log(2.0)});
  options.fully_masked = FullyMasked::kNaN;
  r = means(options);
  check_row(r.o, {std::nan(""), std::nan(""), 2, 3});
  check_row(r.lse, {std::nan(""), std::nan(""), 0, std::log(2.0)});
}

TEST_CASE("causal alignments when T and S differ") {
  const Means wide(2, {1, 2, 3, 6});
  check_row(wide({.scale = 1, .causal = kTop}).o, {1, 1.5});
  check_row(wide({.scale = 1, .causal = kBottom}).o, {2, 3});
  check_row(wide({.scale = 1, .causal = kAll}).o, {3, 3});
  // A window without causal sits top-left; with bottom_right it moves along.
  check_row(wide({.scale = 1, .causal = kAll, .window = {.left = 0, .right = 1}}).o, {1.5, 2.5});
  check_row(wide({.scale = 1, .causal = kBottom, .window = {.left = 1, .right = 1}}).o, {2.5, 4.5});
  check_row(wide({.scale = 1, .causal = kTop, .window = {.left = {}, .right = 5}}).o, {1, 1.5});
  check_row(wide({.scale = 1, .causal = kAll, .window = {.left = 0, .right = {}}}).o,
            {3, 11.0 / 3});
}

TEST_CASE("pytorch 101967: a masked key that is NaN stays out") {
  Means means(1, {7, kNaN});
  means.k(0, 0, 1, 0) = kNaN;
  Tensor<bool, 4> mask({1, 1, 1, 2}, true);
  mask(0, 0, 0, 1) = false;
  means.in.mask = view(mask);
  check_row(means({.scale = 1, .causal = kAll}).o, {7});
  mask(0, 0, 0, 1) = true;
  check_row(means({.scale = 1, .causal = kAll}).o, {std::nan("")});
}

TEST_CASE("flash-attention 2470: no keys at all") {
  const Means means(3, {});
  for (const Causal causal : {kAll, kTop, kBottom}) {
    const AttentionResult r = means({.scale = 1, .causal = causal});
    check_row(r.o, {0, 0, 0});
    check_row(r.lse, {-kInf, -kInf, -kInf});
  }
}

}  // namespace
}  // namespace kref::reference
