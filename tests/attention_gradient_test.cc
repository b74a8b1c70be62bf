// SPDX-License-Identifier: Apache-2.0
// The gradients of attention, as the definition gives them, over pairs of options: against central
// differences of the definition of the forward pass, and in the other form of the softmax gradient.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/attention_vjp_cases.h"

namespace kref {
namespace {

using namespace reference;

constexpr double kUnit = 0x1p-53;
constexpr int kCases = 320;

Array widened(const Array& a) {
  return filled(DType::kF64, {a.shape().begin(), a.shape().end()},
                [&](Index i) { return a.at(i); });
}

// sum ct.o o + sum ct.lse lse over what depends on the inputs; magnitude: of the absolute values.
struct Loss {
  double value = 0, magnitude = 0;
};
Loss loss(const AttentionVjpCase& c) {
  const AttentionResult r = attention(c.inputs(), c.options);
  Loss out;
  const auto add = [&](double ct, double value) {
    if (!std::isfinite(value)) return;  // of a row that sees no key
    out.value += ct * value;
    out.magnitude += std::fabs(ct * value);
  };
  for (std::size_t i = 0; i < r.o.size(); ++i) add(c.ct_o.at(static_cast<Index>(i)), r.o[i]);
  if (!c.has_ct_lse) return out;
  for (std::size_t i = 0; i < r.lse.size(); ++i) add(c.ct_lse.at(static_cast<Index>(i)), r.lse[i]);
  return out;
}

// How a number may be told from its value: |found - value| <= error.
struct Derivative {
  double value, error;
};

// Of the loss in direction d of one input: differences over h and h / 2, extrapolated. Their own
// distance is three quarters of the h^2 term that the extrapolation removes; a tenth of it bounds
// the h^4 term of functions as smooth as these. The losses have rounding errors.
Derivative difference(AttentionVjpCase& c, Array& input, const std::vector<double>& d) {
  const auto elements = input.elements<double>();  // a copy of an Array would share them
  const std::vector<double> at(elements.begin(), elements.end());
  double magnitude = 0;
  const auto moved = [&](double h) {
    auto to = input.mutable_elements<double>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = at[i] + (d[i] == 0 ? 0 : h * d[i]);
    }
    const Loss l = loss(c);
    magnitude = std::max(magnitude, l.magnitude);
    return l.value;
  };
  constexpr double kStep = 0x1p-9;
  const double whole = (moved(kStep) - moved(-kStep)) / (2 * kStep);
  const double half = (moved(kStep / 2) - moved(-kStep / 2)) / kStep;
  std::copy(at.begin(), at.end(), input.mutable_elements<double>().begin());
  return {(4 * half - whole) / 3,
          0.1 * std::fabs(whole - half) + 4096 * kUnit * (magnitude + 1) / kStep};
}

TEST_CASE("gradients are the derivatives of the forward pass, for every pair of options") {
  std::mt19937 random(3);
  PairsSeen pairs;
  std::normal_distribution<double> normal;
  int derivatives = 0, zero = 0, large = 0;
  for (int n = 0; n < kCases; ++n) {
    CAPTURE(n);
    const Levels levels(random);
    AttentionVjpCase c = make_vjp_case(levels, random);
    pairs.add(levels, c.has_ct_lse);
    c.options.p_dtype.reset();
    for (Array* a : {&c.q, &c.k, &c.v, &c.sinks}) *a = widened(*a);
    if (c.has_bias) c.bias = widened(c.bias);
    const AttentionGradients g = attention_vjp(c.inputs(), c.cotangents(), c.options);
    struct Input {
      Array* array;
      const std::vector<double>* gradient;
    };
    for (const Input& input : {Input{&c.q, &g.q}, Input{&c.k, &g.k}, Input{&c.v, &g.v},
                               Input{&c.bias, &g.bias}, Input{&c.sinks, &g.sinks}}) {
      const std::size_t size = input.gradient->size();
      if (size == 0) continue;
      // One direction of unit length over all elements, then that of any element, and that of the
      // one with the largest derivative.
      for (int way = 0; way < 3; ++way) {
        std::vector<double> d(size, 0.0);
        std::size_t only = random() % size;
        for (std::size_t i = 0; way == 2 && i < size; ++i) {
          if (std::fabs((*input.gradient)[i]) > std::fabs((*input.gradient)[only])) only = i;
        }
        for (std::size_t i = 0; i < size; ++i) {
          const bool moves = way == 0 || i == only;
          // A bias of -infinity stays so.
          if (!moves || std::isinf(input.array->at(static_cast<Index>(i)))) continue;
          d[i] = way == 0 ? normal(random) / std::sqrt(static_cast<double>(size)) : 1;
        }
        double expected = 0;
        for (std::size_t i = 0; i < size; ++i) expected += d[i] * (*input.gradient)[i];
        const Derivative found = difference(c, *input.array, d);
        CAPTURE(expected);
        CAPTURE(found.value);
        CAPTURE(found.error);
        CHECK(std::fabs(found.value - expected) <= found.error);
        ++derivatives;
        if (expected == 0) ++zero;  // of what no row sees
        if (std::fabs(expected) > 1e4 * found.error) ++large;
      }
    }
  }
  CHECK(pairs.all());
  // Errors are small beside what they measure.
  CHECK(4 * large > 3 * (derivatives - zero));
  MESSAGE(kCases, " option-pairwise cases, ", derivatives, " derivatives: ", zero, " of them 0, ",
          large, " above 10^4 times the error of the difference");
}

TEST_CASE("the two forms of the softmax gradient agree, for every pair of options") {
  std::mt19937 random(3);
  PairsSeen pairs;
  Index rows = 0;
  for (int n = 0; n < kCases; ++n) {
    CAPTURE(n);
    const Levels levels(random);
    const AttentionVjpCase c = make_vjp_case(levels, random);
    pairs.add(levels, c.has_ct_lse);
    attention_vjp_rows(
        c.inputs(), c.cotangents(), c.options,
        [&](const AttentionRow& row, const AttentionRowGradient& g) {
          if (row.kind != AttentionRow::Kind::kSoftmax) return;
          ++rows;
          // delta as rowsum(o do), beside rowsum(p dp); and the sum of all ds, which is that of
          // lse.
          double delta = 0, magnitude = 0, sum = g.sink;
          for (Index e = 0; e < c.E; ++e) delta += row.o[static_cast<std::size_t>(e)] * g.ct_o[e];
          for (std::size_t j = 0; j < g.keys.size(); ++j) {
            magnitude += row.keys[j].weight * g.keys[j].dp_magnitude;
            sum += g.keys[j].logit;
          }
          const double steps = static_cast<double>(c.E + static_cast<Index>(g.keys.size()) + 8);
          const double error = 2 * steps * kUnit * (magnitude + std::fabs(g.ct_lse));
          bool same = std::fabs(delta - g.delta) <= error && std::fabs(sum - g.ct_lse) <= 2 * error;
          for (std::size_t j = 0; j < g.keys.size(); ++j) {
            const double w = row.keys[j].weight;
            const double other = w * (g.keys[j].dp - delta + g.ct_lse);
            same = same &&
                   std::fabs(other - g.keys[j].logit) <= w * error + 8 * kUnit * std::fabs(other);
          }
          CHECK(same);
        });
  }
  CHECK(pairs.all());
  CHECK(rows > 10000);
  MESSAGE(kCases, " option-pairwise cases, ", rows, " rows");
}

}  // namespace
}  // namespace kref
