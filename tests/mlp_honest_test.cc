// SPDX-License-Identifier: Apache-2.0
// Machines that add in orders of their own and spell activations in other ways are right, however
// alike, large or small the numbers are; a machine that is off by little more is not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "golden/judge.h"
#include "golden/mlp_op.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Random = std::mt19937;

// x y [m, n] in f32: the terms of each sum in a random order, multiplied and added with or without
// fusing them, or as a tree.
std::vector<float> product(Random& random, const std::vector<float>& x, const std::vector<float>& y,
                           Index m, Index k, Index n, bool trans_x, bool trans_y) {
  std::vector<float> out;
  std::vector<Index> order(static_cast<std::size_t>(k));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
  std::vector<float> terms(order.size());
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      std::shuffle(order.begin(), order.end(), random);
      const auto way = random() % 3;
      float sum = 0;
      for (std::size_t t = 0; t < order.size(); ++t) {
        const Index e = order[t];
        const float a = x[static_cast<std::size_t>(trans_x ? e * m + i : i * k + e)];
        const float b = y[static_cast<std::size_t>(trans_y ? j * k + e : e * n + j)];
        terms[t] = a * b;
        sum = way == 0 ? std::fma(a, b, sum) : sum + terms[t];
      }
      if (way == 2) {
        for (std::size_t left = terms.size(); left > 1; left = (left + 1) / 2) {
          for (std::size_t t = 0; t < left / 2; ++t) terms[t] += terms[left - 1 - t];
        }
        sum = terms.empty() ? 0 : terms[0];
      }
      out.push_back(sum);
    }
  }
  return out;
}

// As other libraries spell them: with 1 + erf, 1 + tanh, a tanh for the sigmoid.
float other_activation(Activation activation, float a) {
  switch (activation) {
    case Activation::kNone:
      return a;
    case Activation::kRelu:
      return std::max(a, 0.0f);
    case Activation::kGelu:
      return 0.5f * a * (1 + std::erf(a / std::sqrt(2.0f)));
    case Activation::kGeluTanh:
      return 0.5f * a * (1 + std::tanh(0.7978845608f * (a + 0.044715f * a * a * a)));
    case Activation::kSilu:
      return a * (0.5f + 0.5f * std::tanh(0.5f * a));
  }
  return a;
}
float other_slope(Activation activation, float a) {
  switch (activation) {
    case Activation::kNone:
      return 1;
    case Activation::kRelu:
      return a > 0 ? 1.0f : 0.0f;
    case Activation::kGelu:
      return 0.5f * (1 + std::erf(a / std::sqrt(2.0f))) + a * std::exp(-a * a / 2) * 0.3989422804f;
    case Activation::kGeluTanh: {
      const float t = std::tanh(0.7978845608f * (a + 0.044715f * a * a * a));
      return 0.5f * (1 + t) + 0.5f * a * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * a * a);
    }
    case Activation::kSilu: {
      const float s = 0.5f + 0.5f * std::tanh(0.5f * a);
      return s * (1 + a * (1 - s));
    }
  }
  return 1;
}

float to(DType type, float v) {
  return type == DType::kF32    ? v
         : type == DType::kBF16 ? static_cast<float>(bf16(v))
                                : static_cast<float>(f16(v));
}

Array array(DType type, Index rows, Index columns, const std::vector<float>& values) {
  Array out = Array::unwritten(type, std::vector<Index>{rows, columns});
  with_dtype(type, [&]<class T>() {
    std::transform(values.begin(), values.end(), out.mutable_elements<T>().begin(),
                   [](float v) { return static_cast<T>(v); });
  });
  return out;
}

enum class Kind { kGaussian, kAlike, kFew, kIntegers };

std::vector<float> numbers(Random& random, Kind kind, Index count, float scale, DType type) {
  std::normal_distribution<float> normal;
  const float same = normal(random) * scale;
  std::vector<float> out;
  for (Index i = 0; i < count; ++i) {
    float v = normal(random) * scale;
    if (kind == Kind::kAlike) v = same;
    if (kind == Kind::kFew) v = same * static_cast<float>(random() % 3);
    if (kind == Kind::kIntegers) v = static_cast<float>(static_cast<int>(random() % 9) - 4);
    out.push_back(to(type, v));
  }
  return out;
}

struct Made {
  Run forward, backward;
};

// The layer as such a machine computes it.
Made honest(Random& random, Index b, Index d, Index f, DType type, Kind kind) {
  const Activation activation = kActivations[random() % 5];
  const bool gate = random() % 2 == 0;
  const DType hidden = random() % 3 == 0 ? DType::kF32 : type;
  const float scale = std::exp2(static_cast<float>(static_cast<int>(random() % 7) - 3));
  const auto x = numbers(random, kind, b * d, scale, type);
  const auto w_in = numbers(random, kind, d * f, 1 / std::sqrt(static_cast<float>(d)), type);
  const auto w_gate = numbers(random, kind, d * f, 1 / std::sqrt(static_cast<float>(d)), type);
  const auto w_out = numbers(random, kind, f * d, 1, type),
             ct = numbers(random, kind, b * d, 1, type);

  const auto a = product(random, x, w_in, b, d, f, false, false);
  const auto g = product(random, x, w_gate, b, d, f, false, false);
  const auto ct_h = product(random, ct, w_out, b, d, f, false, true);
  std::vector<float> h, ct_a, ct_g;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float act = other_activation(activation, a[i]);
    const float c = to(hidden, ct_h[i]), slope = other_slope(activation, a[i]);
    h.push_back(to(hidden, gate ? act * g[i] : act));
    ct_a.push_back(gate ? c * (g[i] * slope) : c * slope);
    ct_g.push_back(c * act);
  }
  Made out;
  Run& run = out.forward;
  run.origin = "honest";
  run.op = "mlp";
  run.set = {{"activation", name_of(activation)}, {"hidden_dtype", name_of(hidden)}};
  run.in["x"] = array(type, b, d, x);
  run.in["w_in"] = array(type, d, f, w_in);
  run.in["w_out"] = array(type, f, d, w_out);
  if (gate) run.in["w_gate"] = array(type, d, f, w_gate);
  out.backward = run;
  run.out["y"] = array(type, b, d, product(random, h, w_out, b, f, d, false, false));
  out.backward.op = "mlp.vjp";
  out.backward.in["ct.y"] = array(type, b, d, ct);
  auto ct_x = product(random, ct_a, w_in, b, f, d, false, true);
  if (gate) {
    const auto more = product(random, ct_g, w_gate, b, f, d, false, true);
    for (std::size_t i = 0; i < ct_x.size(); ++i) ct_x[i] += more[i];
    out.backward.out["ct.w_gate"] =
        array(type, d, f, product(random, x, ct_g, d, b, f, true, false));
  }
  out.backward.out["ct.x"] = array(type, b, d, ct_x);
  out.backward.out["ct.w_in"] = array(type, d, f, product(random, x, ct_a, d, b, f, true, false));
  out.backward.out["ct.w_out"] = array(type, f, d, product(random, h, ct, f, b, d, true, false));
  return out;
}

// The largest error as a share of its bound; how many outputs compare exactly.
double judged(const Run& run, Index& exact) {
  find_operation(run.op).validate(run, true);
  double most = 0;
  for (const Expectation& e : find_operation(run.op).expect(run)) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    INFO(report(verdict));
    INFO(run.set.dump());
    CHECK(verdict.ok());
    exact += *std::max_element(e.likely.begin(), e.likely.end()) == 0;
    for (std::size_t i = 0; i < e.value.size(); ++i) {
      if (e.likely[i] == 0) continue;
      const double off = std::fabs(run.out.at(e.output).at(static_cast<Index>(i)) - e.value[i]);
      most = std::max(most, off / e.likely[i]);
    }
  }
  return most;
}

TEST_CASE("honest machines are right") {
  Random random(1);
  Index exact = 0;
  double most_f32 = 0;
  for (int i = 0; i < 60; ++i) {
    for (const Kind kind : {Kind::kGaussian, Kind::kAlike, Kind::kFew, Kind::kIntegers}) {
      for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
        const auto size = [&] { return static_cast<Index>(1 + random() % 12); };
        const Made made = honest(random, size(), size(), size(), type, kind);
        const double most = std::max(judged(made.forward, exact), judged(made.backward, exact));
        if (type == DType::kF32) most_f32 = std::max(most_f32, most);
      }
    }
  }
  MESSAGE("largest error in F32: ", most_f32, " of its bound; outputs compared exactly: ", exact);
  // Bounds that nothing comes near would be too wide.
  CHECK(most_f32 > 0.05);
  CHECK(exact > 100);
}

TEST_CASE("honest machines with long sums are right") {
  Random random(2);
  Index exact = 0;
  for (const Kind kind : {Kind::kGaussian, Kind::kAlike, Kind::kFew}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Made made = honest(random, 3, 700, 40, type, kind);
      judged(made.forward, exact);
      judged(made.backward, exact);
      const Made wide = honest(random, 2, 40, 900, type, kind);
      judged(wide.forward, exact);
      judged(wide.backward, exact);
    }
  }
}

TEST_CASE("an element that is off by 1e-4 of its sum is wrong, in F32") {
  Random random(3);
  for (int i = 0; i < 20; ++i) {
    const Made made = honest(random, 4, 16, 24, DType::kF32, Kind::kGaussian);
    for (const Run& run : {made.forward, made.backward}) {
      for (const Expectation& e : find_operation(run.op).expect(run)) {
        Array off(DType::kF32, run.out.at(e.output).shape());
        const auto from = run.out.at(e.output).elements<float>();
        std::copy(from.begin(), from.end(), off.mutable_elements<float>().begin());
        float& one = *std::max_element(
            off.mutable_elements<float>().begin(), off.mutable_elements<float>().end(),
            [](float a, float b) { return std::fabs(a) < std::fabs(b); });
        if (one == 0) continue;
        one *= 1.0001f;
        CHECK(judge(e, off).wrong == 1);
      }
    }
  }
}

TEST_CASE("a NaN or an infinity goes where it belongs, and no further") {
  for (const Activation activation : kActivations) {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Run run;
      run.origin = "run";
      run.op = "mlp";
      run.set = {{"activation", name_of(activation)}};
      run.in["x"] = mixed({3, 4}, 1);
      run.in["x"].mutable_elements<float>()[5] = value;  // row 1
      run.in["w_in"] = full({4, 5}, 0.5f);
      run.in["w_out"] = full({5, 4}, 0.25f);
      run.out = find_operation("mlp").compute(run);
      Index exact = 0;
      judged(run, exact);
      for (Index i = 0; i < 12; ++i) CHECK(std::isfinite(run.out.at("y").at(i)) == (i / 4 != 1));
    }
  }
}

}  // namespace
}  // namespace kref
