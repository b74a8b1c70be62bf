// SPDX-License-Identifier: Apache-2.0
// The definition of attention: scores, weights, heads, layouts, and what is refused.
#include <string>

#include "kernels/reference_attention.h"
#include "tests/attention_inputs.h"

namespace kref::reference {
namespace {

// Two keys with scores q.k = 2 and -1, values 1 and 0: o is the first weight.
struct TwoKeys : Means {
  TwoKeys() : Means(1, {1, 0}) {
    q(0, 0, 0, 0) = 2;
    k(0, 0, 0, 0) = 1, k(0, 0, 1, 0) = -0.5f;
  }
  void check(const AttentionOptions& options, double first, double second) const {
    const AttentionResult r = (*this)(options);
    const double base = options.lse_base == LogBase::k2 ? std::log(2.0) : 1;
    check_row(r.o, {1 / (1 + std::exp(second - first))}, 1e-15);
    check_row(r.lse, {std::log(std::exp(first) + std::exp(second)) / base}, 1e-15);
  }
};

TEST_CASE("scale, bias before and after it, soft cap, base of lse") {
  TwoKeys two;
  two.check({.scale = 0.5, .causal = kAll}, 1, -0.5);
  two.check({.scale = 0.5, .causal = kAll, .lse_base = LogBase::k2}, 1, -0.5);
  const auto bias = tensor<4>({1, 1, 1, 2}, {0.5f, 3});
  two.in.bias = view(bias);
  two.check({.scale = 0.5, .causal = kAll}, 1.5, 2.5);
  two.check({.scale = 0.5, .causal = kAll, .bias_order = BiasOrder::kBeforeScale}, 1.25, 1);
  two.check({.scale = 0.5, .causal = kAll, .soft_cap = 2.0}, 2 * std::tanh(0.75),
            2 * std::tanh(1.25));
  two.check({.scale = 0.5, .causal = kAll, .bias_order = BiasOrder::kBeforeScale, .soft_cap = 2.0},
            2 * std::tanh(0.625), 2 * std::tanh(0.5));
}

TEST_CASE("a bias of -infinity: a weight of 0, -c under a soft cap, a dead row when all are") {
  TwoKeys two;
  auto bias = tensor<4>({1, 1, 1, 2}, {0, -HUGE_VALF});
  two.in.bias = view(bias);
  two.check({.scale = 1, .causal = kAll}, 2, -kInf);
  two.check({.scale = 1, .causal = kAll, .soft_cap = 3.0}, 3 * std::tanh(2.0 / 3), -3);
  bias(0, 0, 0, 0) = -HUGE_VALF;
  AttentionResult r = two({.scale = 1, .causal = kAll, .fully_masked = FullyMasked::kUniform});
  check_row(r.o, {0.5});
  check_row(r.lse, {-kInf});
  two.check({.scale = 1, .causal = kAll, .soft_cap = 3.0}, -3, -3);
}

TEST_CASE("a sink joins maximum, denominator and lse, whatever scale and cap are") {
  TwoKeys two;
  const auto sink = tensor<1>({1}, {4});
  two.in.sinks = view(sink);
  const double sum = std::exp(1.0) + std::exp(-0.5) + std::exp(4.0);
  AttentionResult r = two({.scale = 0.5, .causal = kAll});
  check_row(r.o, {std::exp(1.0) / sum}, 1e-15);
  check_row(r.lse, {std::log(sum)}, 1e-15);
  // It alone: o = 0, lse = sink, under every rule for dead rows.
  Tensor<bool, 4> mask({1, 1, 1, 1 + 1}, false);
  two.in.mask = view(mask);
  for (const FullyMasked rule : {FullyMasked::kZero, FullyMasked::kUniform, FullyMasked::kNaN}) {
    r = two({.scale = 0.5, .causal = kAll, .soft_cap = 1.0, .fully_masked = rule});
    check_row(r.o, {0});
    check_row(r.lse, {4});
  }
  r = two({.scale = 0.5, .causal = kAll, .lse_base = LogBase::k2});
  check_row(r.lse, {4 / std::log(2.0)}, 1e-15);
}

TEST_CASE("rows past q_lengths are 0 and -infinity, also when they hold NaN") {
  Means means(3, {1, 3});
  means.q(0, 0, 2, 0) = kNaN;
  const auto lengths = ints({2});
  means.in.q_lengths = view(lengths);
  const AttentionResult r = means({.scale = 1, .causal = kAll, .fully_masked = FullyMasked::kNaN});
  check_row(r.o, {2, 2, 0});
  check_row(r.lse, {std::log(2.0), std::log(2.0), -kInf});
}

TEST_CASE("unnormalised probabilities rounded to p_dtype, the denominator not") {
  TwoKeys two;
  two.v(0, 0, 1, 0) = 1;  // both values 1: o = (1 + p rounded) / (1 + p)
  const double p = std::exp(-3.0);
  const AttentionResult r = two({.scale = 1, .causal = kAll, .p_dtype = DType::kBF16});
  check_row(r.o, {(1 + static_cast<double>(bf16(p))) / (1 + p)}, 1e-15);
  CHECK(r.o[0] != 1);
}

TEST_CASE("query heads h read kv head h / (H / G), in both layouts, E unlike D") {
  // q = 0, so row o is the mean of its head's values: batch b, kv head g holds 100 b + 10 g + e.
  const Index B = 2, H = 6, G = 3, T = 2, S = 4, D = 3, E = 2;
  Tensor<float, 4> q({B, H, T, D}, 0.0f), k({B, G, S, D}, 1.0f), v({B, G, S, E});
  Tensor<float, 4> q2({B, T, H, D}, 0.0f), k2({B, S, G, D}, 1.0f), v2({B, S, G, E});
  for (Index b = 0; b < B; ++b)
    for (Index g = 0; g < G; ++g)
      for (Index s = 0; s < S; ++s)
        for (Index e = 0; e < E; ++e) {
          v(b, g, s, e) = v2(b, s, g, e) = static_cast<float>(100 * b + 10 * g + e);
        }
  AttentionOptions options{.scale = 1, .causal = kAll};
  const AttentionResult r = attention({.q = view(q), .k = view(k), .v = view(v)}, options);
  options.layout = Layout::kBTHD;
  const AttentionResult r2 = attention({.q = view(q2), .k = view(k2), .v = view(v2)}, options);
  REQUIRE(r.o.size() == static_cast<std::size_t>(B * H * T * E));
  CHECK(r.lse == r2.lse);
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index t = 0; t < T; ++t)
        for (Index e = 0; e < E; ++e) {
          const double expected = static_cast<double>(100 * b + 10 * (h / 2) + e);
          CHECK(r.o[static_cast<std::size_t>(((b * H + h) * T + t) * E + e)] == expected);
          CHECK(r2.o[static_cast<std::size_t>(((b * T + t) * H + h) * E + e)] == expected);
        }
}

TEST_CASE("bias and mask of extent 1 serve every batch, head and row") {
  Tensor<float, 4> q({2, 2, 2, 1}, 0.0f), k({2, 1, 2, 1}, 0.0f);
  const auto v = tensor<4>({2, 1, 2, 1}, {1, 3, 5, 9});
  Tensor<bool, 4> mask({1, 2, 1, 2}, true);
  mask(0, 1, 0, 0) = false;  // head 1 does not see key 0
  Tensor<float, 4> bias({2, 1, 1, 2}, 0.0f);
  bias(1, 0, 0, 1) = -HUGE_VALF;  // batch 1 gives key 1 no weight
  AttentionInputs in{.q = view(q), .k = view(k), .v = view(v)};
  in.mask = view(mask);
  check_row(attention(in, {.scale = 1, .causal = kAll}).o, {2, 2, 3, 3, 7, 7, 9, 9});
  in.bias = view(bias);
  check_row(attention(in, {.scale = 1, .causal = kAll}).o, {2, 2, 3, 3, 5, 5, 0, 0});
}

TEST_CASE("strided operands: v a transposed view") {
  const auto q = tensor<4>({1, 1, 1, 2}, {1, -1});
  const auto k = tensor<4>({1, 1, 2, 2}, {1, 0, 0, 1});
  const auto v = tensor<4>({1, 1, 2, 2}, {1, 2, 3, 4});  // [E, S] as stored
  AttentionInputs in{.q = view(q), .k = view(k), .v = view(v)};
  std::swap(in.v.strides[2], in.v.strides[3]);  // [S, E]: keys (1, 3) and (2, 4)
  const double w = 1 / (1 + std::exp(-2.0));
  check_row(attention(in, {.scale = 1, .causal = kAll}).o, {w + 2 * (1 - w), 3 * w + 4 * (1 - w)},
            1e-15);
}

TEST_CASE("what does not fit is refused by name") {
  const auto message = [](const AttentionInputs& in, const AttentionOptions& options) {
    try {
      attention(in, options);
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const AttentionOptions plain{.scale = 1, .causal = kAll};
  Means means(2, {1, 2, 3});
  Tensor<float, 4> heads({1, 2, 3, 1}, 0.0f), other({1, 1, 4, 1}, 0.0f);
  AttentionInputs in = means.in;
  in.k = in.v = view(heads);
  has(message(in, plain), "H = 1 is not a multiple of G = 2");
  in = means.in;
  in.v = view(other);
  has(message(in, plain), "v is F32[1,1,4,1], expected [1,1,3,1]");
  in = means.in;
  in.bias = view(other);
  has(message(in, plain), "bias is F32[1,1,4,1]");
  const auto long_one = ints({4}), negative = ints({-1});
  in = means.in;
  in.kv_lengths = view(long_one);
  has(message(in, plain), "kv_lengths[0] is 4, expected 0 to 3");
  in.kv_lengths = view(negative);
  has(message(in, plain), "kv_lengths[0] is -1, expected 0 to 3");
  in = means.in;
  Tensor<std::int32_t, 2> ids({1, 2}, 0);
  in.q_segment_ids = view(ids);
  has(message(in, plain), "one of q_segment_ids and kv_segment_ids is missing");
  in = means.in;
  AttentionOptions bad = plain;
  bad.window.left = -1;
  has(message(in, bad), "window side is negative");
  bad = plain, bad.soft_cap = 0.0;
  has(message(in, bad), "soft_cap is not positive");
  bad = plain, bad.fully_masked = FullyMasked::kUniform;
  has(message(Means(1, {}).in, bad), "S = 0");
}

}  // namespace
}  // namespace kref::reference
