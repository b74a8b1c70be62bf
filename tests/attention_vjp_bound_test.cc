// SPDX-License-Identifier: Apache-2.0
// False alarms in gradients: honest f32 kernels (weights recomputed from lse, or divided by their
// sum; delta from o or from the weights; any order; operands of products rounded to bf16 or f16)
// stay inside the bound, also where rounding errors add up.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "golden/attention_vjp_op.h"
#include "golden/judge.h"

namespace kref {
namespace {

struct Sizes {
  Index queries, keys, depth, width;
};

// How a kernel does it.
struct Form {
  bool recomputed;  // p = exp(s - lse) and delta = do . o; else exp(s - m) / l and sum p dp
  bool reversed;    // sums from the last term
  DType type;       // of inputs and outputs, and of the operands of products
};

float rounded(float x, DType type) {
  return with_dtype(type, [&]<class T>() { return static_cast<float>(static_cast<T>(x)); });
}

using Values = std::vector<float>;

Values read(const Array& a) {
  Values out;
  for (Index i = 0; i < a.size(); ++i) out.push_back(static_cast<float>(a.at(i)));
  return out;
}

Array make(DType type, std::vector<Index> shape,
           const std::function<float(Index row, Index column)>& value) {
  Array out(type, shape);
  const Index width = shape.back();
  with_dtype(type, [&]<class T>() {
    Index i = 0;
    for (T& x : out.mutable_elements<T>()) {
      x = static_cast<T>(value(i / width, i % width));
      ++i;
    }
  });
  return out;
}

// sum x[i] y[i] in f32, n terms at strides.
float dot(const float* x, const float* y, Index n, bool reversed) {
  float sum = 0;
  for (Index t = 0; t < n; ++t) {
    const Index i = reversed ? n - 1 - t : t;
    sum += x[i] * y[i];
  }
  return sum;
}

// The gradients of one head by a kernel in f32. Of a run with soft_cap, sinks and ct.lse, too.
void run_f32(Run& run, Sizes s, Form form) {
  const Values q = read(run.in["q"]), k = read(run.in["k"]), v = read(run.in["v"]),
               ct = read(run.in["ct.o"]);
  const bool has_lse = run.in.contains("ct.lse"), has_sink = run.in.contains("sinks");
  const Values ct_lse = has_lse ? read(run.in["ct.lse"]) : Values(ct.size(), 0.0f);
  const float sink = has_sink ? read(run.in["sinks"])[0] : -HUGE_VALF;
  const float scale = run.set["scale"], cap = run.set.value("soft_cap", 0.0f);
  const auto size = [](Index n) { return static_cast<std::size_t>(n); };
  Values dq(q.size()), dk(k.size()), dv(v.size()), dsink(1);
  const auto row_of = [](const Values& a, Index row, Index width) {
    return a.data() + row * width;
  };
  // Rows from the last when reversed: dk and dv are sums over them.
  for (Index t = 0; t < s.queries; ++t) {
    const Index i = form.reversed ? s.queries - 1 - t : t;
    const float* qi = row_of(q, i, s.depth);
    const float* cti = row_of(ct, i, s.width);
    Values logits, slopes, p;
    float maximum = sink, sum = 0;
    for (Index j = 0; j < s.keys; ++j) {
      float score = dot(qi, row_of(k, j, s.depth), s.depth, form.reversed) * scale;
      float slope = 1;
      if (cap > 0) {
        const float th = std::tanh(score / cap);
        score = cap * th, slope = 1 - th * th;
      }
      logits.push_back(score), slopes.push_back(slope);
      maximum = std::max(maximum, score);
    }
    if (has_sink) sum = std::exp(sink - maximum);
    Values o(size(s.width), 0.0f);
    for (Index j = 0; j < s.keys; ++j) {
      p.push_back(std::exp(logits[size(j)] - maximum));
      sum += p.back();
      for (Index e = 0; e < s.width; ++e) o[size(e)] += p.back() * v[size(j * s.width + e)];
    }
    for (float& x : o) x = rounded(x / sum, form.type);
    const float lse = maximum + std::log(sum);
    Values dp;
    float delta = 0;
    for (Index j = 0; j < s.keys; ++j) {
      p[size(j)] = form.recomputed ? std::exp(logits[size(j)] - lse) : p[size(j)] / sum;
      dp.push_back(dot(cti, row_of(v, j, s.width), s.width, form.reversed));
      delta += p[size(j)] * dp.back();
    }
    if (form.recomputed) delta = dot(cti, o.data(), s.width, form.reversed);
    if (has_sink) {
      const float w = form.recomputed ? std::exp(sink - lse) : std::exp(sink - maximum) / sum;
      dsink[0] += w * (ct_lse[size(i)] - delta);
    }
    for (Index n = 0; n < s.keys; ++n) {
      const Index j = form.reversed ? s.keys - 1 - n : n;
      const float ds = p[size(j)] * (dp[size(j)] - delta + ct_lse[size(i)]) * slopes[size(j)];
      const float factor = rounded(ds * scale, form.type), weight = rounded(p[size(j)], form.type);
      for (Index d = 0; d < s.depth; ++d) {
        dq[size(i * s.depth + d)] += factor * k[size(j * s.depth + d)];
        dk[size(j * s.depth + d)] += factor * qi[d];
      }
      for (Index e = 0; e < s.width; ++e) dv[size(j * s.width + e)] += weight * cti[e];
    }
  }
  const auto store = [&](const char* name, const Values& values) {
    const Array& like = run.in[name];
    const Index width = like.shape().back();
    run.out[std::string("ct.") + name] =
        make(like.dtype(), {like.shape().begin(), like.shape().end()},
             [&](Index r, Index c) { return values[size(r * width + c)]; });
  };
  store("q", dq), store("k", dk), store("v", dv);
  if (has_sink) store("sinks", dsink);
}

TEST_CASE("f32 kernels of the backward pass are inside the bound") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0, 1);
  using Value = std::function<float(Index row, Index column)>;
  const Value any = [&](Index, Index) { return normal(random); };
  const Value positive = [&](Index, Index) { return uniform(random); };
  const Value tenth = [](Index, Index) { return 0.1f; };
  const Value zero = [](Index, Index) { return 0.0f; };
  const Value two_values = [&](Index, Index) { return random() % 2 == 0 ? 0.1f : -0.3f; };
  const Value large = [&](Index, Index) { return 5 * normal(random); };
  const Value outlier = [&](Index, Index d) {
    return d == 0 ? 30 + 0.3f * normal(random) : normal(random);
  };
  const struct {
    const char* name;
    Sizes sizes;
    Value q, k, v, ct;
    float cap;
  } cases[] = {
      {"normal", {96, 128, 32, 16}, any, any, any, any, 0},
      {"normal, capped", {64, 64, 16, 16}, any, any, any, any, 2},
      {"far beyond a cap", {32, 64, 16, 8}, large, large, any, any, 0.5f},
      {"one row", {1, 256, 16, 8}, any, any, any, any, 0},
      {"one key", {64, 1, 16, 8}, any, any, any, any, 0},
      {"one element", {50, 100, 1, 1}, any, any, any, any, 0},
      {"all of one sign", {64, 128, 32, 8}, positive, positive, positive, positive, 0},
      {"an outlier channel", {32, 100, 32, 16}, outlier, outlier, any, any, 0},
      {"large scores", {64, 100, 32, 16}, large, large, any, any, 0},
      {"constant", {128, 128, 64, 2}, tenth, tenth, tenth, tenth, 0},
      {"means of a constant", {512, 300, 4, 2}, zero, any, tenth, tenth, 0},
      {"many rows alike", {1024, 64, 8, 4}, two_values, two_values, two_values, tenth, 0},
      {"values far from 0", {64, 64, 16, 8}, any, any, outlier, positive, 0},
      {"small numbers",
       {32, 32, 8, 8},
       [&](Index, Index) { return 1e-20f * normal(random); },
       any,
       [&](Index, Index) { return 1e-19f * normal(random); },
       [&](Index, Index) { return 1e-18f * normal(random); },
       0},
      {"a first key that outweighs the others",
       {16, 512, 16, 8},
       [&](Index, Index d) { return d == 0 ? 5.0f : 0.3f * normal(random); },
       [&](Index j, Index d) { return j == 0 && d == 0 ? 5.0f : 0.3f * normal(random); },
       any,
       any,
       0},
  };
  double closest_f32 = 0, closest_narrow = 0;
  int judged = 0;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& c : cases) {
      for (const bool extras : {false, true}) {
        const float scale = 1 / std::sqrt(static_cast<float>(c.sizes.depth));
        Run run;
        run.origin = "test", run.op = "attention.vjp";
        run.set["scale"] = static_cast<double>(scale);
        if (c.cap > 0) run.set["soft_cap"] = static_cast<double>(c.cap);
        run.in["q"] = make(type, {1, 1, c.sizes.queries, c.sizes.depth}, c.q);
        run.in["k"] = make(type, {1, 1, c.sizes.keys, c.sizes.depth}, c.k);
        run.in["v"] = make(type, {1, 1, c.sizes.keys, c.sizes.width}, c.v);
        run.in["ct.o"] = make(type, {1, 1, c.sizes.queries, c.sizes.width}, c.ct);
        if (extras) {
          run.in["ct.lse"] = make(DType::kF32, {1, 1, c.sizes.queries}, any);
          run.in["sinks"] = make(DType::kF32, {1}, any);
        }
        for (const bool recomputed : {false, true}) {
          for (const bool reversed : {false, true}) {
            run_f32(run, c.sizes, {recomputed, reversed, type});
            for (const Expectation& e : find_operation("attention.vjp").expect(run)) {
              const Verdict verdict = judge(e, run.out.at(e.output));
              const double ratio = verdict.worst.ratio;
              CAPTURE(std::string(c.name));
              CAPTURE(name_of(type));
              CAPTURE(extras);
              CAPTURE(recomputed);
              CAPTURE(reversed);
              CAPTURE(e.output);
              CAPTURE(verdict.worst.element);
              CAPTURE(verdict.worst.expected);
              CAPTURE(verdict.worst.actual);
              CAPTURE(ratio);
              // Half the distance of neighbours is reached by any rounding.
              CHECK(ratio < (type == DType::kF32 ? 0.5 : 1.0));
              double& closest = type == DType::kF32 ? closest_f32 : closest_narrow;
              closest = std::max(closest, ratio);
              ++judged;
            }
          }
        }
      }
    }
  }
  MESSAGE(judged, " gradients; closest to their bound: f32 ", closest_f32, ", narrow ",
          closest_narrow);
  CHECK(closest_f32 > 0.05);
}

}  // namespace
}  // namespace kref
