// SPDX-License-Identifier: Apache-2.0
// flash_attention_vjp against its definition in f64, within the judge's bound, over pairs of
// options; inputs whose answer is exact; what is refused.
#include "kernels/flash_attention_vjp.h"

#include <doctest/doctest.h>

#include "dsl/threads.h"
#include "golden/attention_vjp_op.h"
#include "golden/judge.h"
#include "tests/attention_vjp_case_runs.h"
#include "tests/flash_attention_vjp_cases.h"
#include "tests/refusal.h"

namespace kref {
namespace {

// What the judge says of the gradients; the closest element's part of its bound.
double check_gradients(const AttentionVjpCase& c, const Gradients& g) {
  Run run = request_of(c);
  for (const auto& [output, array] : g.all()) {
    if (array->data() != nullptr) run.out[std::string("ct.") + output] = *array;
  }
  double closest = 0;
  for (const Expectation& e : find_operation("attention.vjp").expect(run)) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    CAPTURE(e.output);
    CAPTURE(verdict.worst.element);
    CAPTURE(verdict.worst.expected);
    CAPTURE(verdict.worst.actual);
    CAPTURE(verdict.worst.bound);
    CHECK(verdict.ok());
    if (verdict.ok()) closest = std::max(closest, verdict.worst.ratio);
  }
  return closest;
}

TEST_CASE("vjp: every pair of options, within the judge's bound of the definition") {
  set_threads(1);  // no result depends on it, and opening a team takes longer than a case
  std::mt19937 random(7);
  PairsSeen pairs;
  double closest = 0;
  for (int n = 0; n < 400; ++n) {
    const Levels levels(random);
    const AttentionVjpCase c = make_vjp_case(levels, random);
    CAPTURE(n);
    closest = std::max(closest, check_gradients(c, compute_vjp(c)));
    if (n % 4 == 0) check_gradients(c, compute_vjp(c, From::kResiduals));
    pairs.add(levels, c.has_ct_lse);
  }
  set_threads(0);
  CHECK(pairs.all());
  MESSAGE("closest to its bound: ", closest);
}

TEST_CASE("vjp: many blocks, so that partial sums of dq and several chunks of keys occur") {
  std::mt19937 random(29);
  std::normal_distribution<double> normal;
  for (const Index size : {67, 130}) {
    AttentionVjpCase c;
    c.B = 1, c.H = 4, c.G = 2, c.T = size - 3, c.S = size, c.D = 24, c.E = 17;
    const auto noise = [&](Index) { return normal(random); };
    c.q = filled(DType::kF32, c.shape(c.H, c.T, c.D), noise);
    c.k = filled(DType::kF32, c.shape(c.G, c.S, c.D), noise);
    c.v = filled(DType::kF32, c.shape(c.G, c.S, c.E), noise);
    c.ct_o = filled(DType::kF32, c.shape(c.H, c.T, c.E), noise);
    c.options.scale = 0.2, c.options.causal = Causal::kBottomRight;
    c.options.p_dtype = DType::kF32;
    for (const AttentionTile tile : {AttentionTile{}, {16, 1}, {7, 5}, {32, 16}}) {
      c.tile = tile;
      check_gradients(c, compute_vjp(c));
    }
  }
}

// Rows that see one key each: its weight is exactly 1, so that with a ct.lse of integers dq, dk and
// dbias are sums of integers, and dv is one of do.
TEST_CASE("vjp: one key a row gives exact integers, whatever the tile") {
  AttentionVjpCase c;
  c.B = 2, c.H = 4, c.G = 2, c.T = 37, c.S = 53, c.D = 8, c.E = 5;
  const auto digits = [](Index step) {
    return [step](Index i) { return static_cast<double>(i * step % 17 - 8); };
  };
  c.q = filled(DType::kF32, c.shape(c.H, c.T, c.D), digits(3));
  c.k = filled(DType::kF32, c.shape(c.G, c.S, c.D), digits(5));
  c.v = filled(DType::kF32, c.shape(c.G, c.S, c.E), digits(7));
  c.ct_o = filled(DType::kF32, c.shape(c.H, c.T, c.E), digits(11));
  c.ct_lse = filled(DType::kF32, {c.B, c.H, c.T}, digits(13));
  c.has_ct_lse = true;
  c.bias = filled(DType::kF32, {1, c.H, 1, c.S}, digits(2));
  c.has_bias = true;
  c.options.scale = 2;
  c.options.causal = Causal::kBottomRight;
  c.options.window = {.left = 0, .right = 0};
  const reference::AttentionGradients expected =
      reference::attention_vjp(c.inputs(), c.cotangents(), c.options);
  const double largest = *std::max_element(expected.k.begin(), expected.k.end());
  CHECK(largest > 50);
  for (const AttentionTile tile :
       {AttentionTile{}, {1, 1}, {4, 7}, {16, 16}, {37, 53}, {100, 20}}) {
    c.tile = tile;
    const Gradients g = compute_vjp(c);
    const std::pair<const Array*, const std::vector<double>*> all[] = {
        {&g.q, &expected.q}, {&g.k, &expected.k}, {&g.v, &expected.v}, {&g.bias, &expected.bias}};
    for (const auto& output : all) {
      for (Index i = 0; i < output.first->size(); ++i)
        REQUIRE(output.first->at(i) == (*output.second)[static_cast<std::size_t>(i)]);
    }
  }
}

TEST_CASE("vjp: large logits select rows of do, bit for bit") {
  AttentionVjpCase c;
  c.B = 1, c.H = 2, c.G = 1, c.T = 40, c.S = 64, c.D = 64, c.E = 7;
  const auto chosen = [](Index row) { return row * 29 % 16 * 4; };
  c.q = filled(DType::kBF16, c.shape(c.H, c.T, c.D),
               [&](Index i) { return i % 64 == chosen(i / 64 % 40) ? 256.0 : 0.0; });
  c.k = filled(DType::kBF16, c.shape(c.G, c.S, c.D),
               [](Index i) { return i % 64 == i / 64 ? 1.0 : 0.0; });
  c.v = filled(DType::kBF16, c.shape(c.G, c.S, c.E),
               [](Index i) { return static_cast<double>(i % 251); });
  c.ct_o = filled(DType::kBF16, c.shape(c.H, c.T, c.E),
                  [](Index i) { return static_cast<double>(i * 7 % 19 - 9); });
  c.options.scale = 1;
  for (const AttentionTile tile : {AttentionTile{}, {3, 16}, {40, 5}}) {
    c.tile = tile;
    const Gradients g = compute_vjp(c);
    for (Index j = 0; j < c.S; ++j) {
      for (Index e = 0; e < c.E; ++e) {
        double sum = 0;
        for (Index row = 0; row < c.H * c.T; ++row) {
          if (chosen(row % 40) == j) sum += c.ct_o.at(row * c.E + e);
        }
        REQUIRE(g.v.at(j * c.E + e) == sum);
      }
    }
    for (Index i = 0; i < g.q.size(); ++i) REQUIRE(g.q.at(i) == 0);
    for (Index i = 0; i < g.k.size(); ++i) REQUIRE(g.k.at(i) == 0);
  }
}

TEST_CASE("L102: flash_attention_vjp sums dv over the query heads of a group, in blocks of heads") {
  AttentionVjpCase c;
  c.B = 1, c.H = 6, c.G = 2, c.T = c.S = 4, c.D = c.E = 1;
  const auto zero = [](Index) { return 0.0; };
  c.options.causal = Causal::kTopLeft;
  const double expected[] = {6.25, 3.25, 1.75, 0.75};
  for (const Layout layout : {Layout::kBHTD, Layout::kBTHD}) {
    c.options.layout = layout;
    c.q = filled(DType::kF32, c.shape(6, 4, 1), zero),
    c.k = filled(DType::kF32, c.shape(2, 4, 1), zero);
    c.v = filled(DType::kF32, c.shape(2, 4, 1), zero);
    for (Index head = -1; head < 6; ++head) {  // -1: all of them
      c.ct_o = filled(DType::kF32, c.shape(6, 4, 1), [&](Index i) {
        return head < 0 || (c.bthd() ? i % 6 : i / 4) == head ? 1.0 : 0.0;
      });
      const Gradients g = compute_vjp(c);
      for (Index at = 0; at < 8; ++at) {
        const Index j = c.bthd() ? at / 2 : at % 4, group = c.bthd() ? at % 2 : at / 4;
        const double share = head < 0 ? 1 : head / 3 == group ? 1.0 / 3 : 0;
        const double dv = g.v.at(at);
        CHECK(std::fabs(dv - share * expected[j]) <= 0x1p-21 * share * expected[j]);
      }
    }
  }
}

TEST_CASE("L040: flash_attention_vjp of rows that see nothing is 0, whatever they hold") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int way = 0; way < 5; ++way) {
    AttentionVjpCase c;
    c.B = 1, c.H = c.G = 1, c.T = 3, c.S = 2, c.D = c.E = 4;
    const auto odd = [&](Index i) { return i % 2 == 0 ? nan : 1.0; };
    c.q = filled(DType::kF32, c.shape(1, 3, 4), odd),
    c.k = filled(DType::kF32, c.shape(1, 2, 4), odd);
    c.v = filled(DType::kF32, c.shape(1, 2, 4), odd);
    c.ct_o = filled(DType::kF32, c.shape(1, 3, 4), odd);
    c.bias = filled(DType::kF32, {1, 1, 1, 2}, odd);
    c.mask = filled(DType::kBool, {1, 1, 3, 2}, [](Index) { return 0.0; });
    c.q_segments = filled(DType::kI32, {1, 3}, [](Index) { return 1.0; });
    c.kv_segments = filled(DType::kI32, {1, 2}, [](Index) { return 2.0; });
    c.q_lengths = c.kv_lengths = filled(DType::kI32, {1}, [](Index) { return 0.0; });
    c.has_bias = true;
    c.has_mask = way == 0, c.has_segments = way == 1, c.has_kv = way == 2, c.has_q = way == 3;
    if (way == 4)
      c.options.window = {.left = 0, .right = 0}, c.options.causal = Causal::kBottomRight;
    CAPTURE(way);
    const Gradients g = compute_vjp(c);
    // Bottom right, rows at -1, 0, 1: the first one sees nothing, the others hold NaN themselves.
    const Index none = way == 4 ? c.D : g.q.size();
    for (Index i = 0; i < none; ++i) CHECK(g.q.at(i) == 0);
    for (const Array* a : {&g.k, &g.v, &g.bias}) {
      for (Index i = 0; way < 4 && i < a->size(); ++i) CHECK(a->at(i) == 0);
    }
  }
}

TEST_CASE("vjp: sizes of zero leave what the definition says") {
  for (const std::vector<Index>& z : std::vector<std::vector<Index>>{
           {0, 3, 4, 5, 6}, {2, 0, 4, 5, 6}, {2, 3, 0, 5, 6}, {2, 3, 4, 0, 6}, {2, 3, 4, 5, 0}}) {
    AttentionVjpCase c;
    c.B = z[0], c.H = c.G = 2, c.T = z[1], c.S = z[2], c.D = z[3], c.E = z[4];
    const auto digits = [](Index i) { return 1.0 + static_cast<double>(i % 3); };
    c.q = filled(DType::kF32, c.shape(2, c.T, c.D), digits);
    c.k = filled(DType::kF32, c.shape(2, c.S, c.D), digits);
    c.v = filled(DType::kF32, c.shape(2, c.S, c.E), digits);
    c.ct_o = filled(DType::kF32, c.shape(2, c.T, c.E), digits);
    c.ct_lse = filled(DType::kF32, {c.B, 2, c.T}, digits);
    c.bias = filled(DType::kF32, {c.B, 2, c.T, c.S}, digits);
    c.sinks = filled(DType::kF32, {2}, [](Index) { return 0.25; });
    c.has_ct_lse = c.has_sinks = c.has_bias = true;
    c.options.p_dtype = DType::kF32;
    CAPTURE(z);
    check_gradients(c, compute_vjp(c));
    check_gradients(c, compute_vjp(c, From::kResiduals));
  }
}

TEST_CASE("vjp: what does not fit is refused, and the operand named") {
  const auto ones = [](Index) { return 1.0; };
  AttentionVjpCase c;
  c.B = 2, c.H = 4, c.G = 2, c.T = 3, c.S = 5, c.D = 4, c.E = 6;
  c.q = filled(DType::kF32, c.shape(4, 3, 4), ones),
  c.k = filled(DType::kF32, c.shape(2, 5, 4), ones);
  c.v = filled(DType::kF32, c.shape(2, 5, 6), ones);
  c.ct_o = filled(DType::kF32, c.shape(4, 3, 6), ones);
  const auto refused = [&](const char* expected, auto&& change) {
    AttentionVjpCase changed = c;
    change(changed);
    CAPTURE(expected);
    CHECK(refusal([&] { compute_vjp(changed); }).find(expected) != std::string::npos);
  };
  refused("flash_attention_vjp: k is F32[2,2,5,7], expected [2,2,5,4]", [&](AttentionVjpCase& a) {
    a.k = filled(DType::kF32, {2, 2, 5, 7}, ones);
  });
  refused("flash_attention_vjp: ct.o is F32[2,4,3,5], expected [2,4,3,6]",
          [&](AttentionVjpCase& a) {
            a.ct_o = filled(DType::kF32, {2, 4, 3, 5}, ones);
          });
  refused("flash_attention_vjp: ct.o is I32[2,4,3,6], expected a float type",
          [&](AttentionVjpCase& a) {
            a.ct_o = filled(DType::kI32, {2, 4, 3, 6}, ones);
          });
  refused("flash_attention_vjp: ct.lse is F32[2,4,5], expected [2,4,3]", [&](AttentionVjpCase& a) {
    a.has_ct_lse = true, a.ct_lse = filled(DType::kF32, {2, 4, 5}, ones);
  });
  refused("flash_attention_vjp: tile is [-1, 0]", [](AttentionVjpCase& a) { a.tile.q = -1; });
  refused("flash_attention_vjp: soft_cap is not positive",
          [](AttentionVjpCase& a) { a.options.soft_cap = 0; });

  Array dq(DType::kF32, c.q.shape()), dk(DType::kF32, c.k.shape()), dv(DType::kF32, c.v.shape());
  const auto call = [&](const AttentionGradientOutputs& out) {
    return refusal([&] { flash_attention_vjp(c.inputs(), c.cotangents(), out, c.options); });
  };
  const MutableArrayRef q = dq.mutable_ref(), k = dk.mutable_ref(), v = dv.mutable_ref();
  CHECK(call({q, k, k}).find("dv is F32[2,2,5,4], expected the shape of its input, [2,2,5,6]") !=
        std::string::npos);
  CHECK(call({q, k, v, k}).find("dbias is asked for, but there is no bias") != std::string::npos);
  CHECK(call({q, k, v, {}, k}).find("dsinks are asked for") != std::string::npos);
  Array joined(DType::kF32, std::array<Index, 1>{200});
  const auto at = [&](Index offset, const Array& like) {
    return MutableArrayRef(DType::kF32, like.shape(),
                           static_cast<float*>(joined.mutable_data()) + offset);
  };
  CHECK(call({q, at(0, c.k), at(79, c.v)}).find("overlaps dk") != std::string::npos);
  const MutableArrayRef over_q(DType::kF32, c.q.shape(), const_cast<void*>(c.q.data()));
  CHECK(call({over_q, k, v}).find("dq F32[2,4,3,4] overlaps q") != std::string::npos);
}

}  // namespace
}  // namespace kref
