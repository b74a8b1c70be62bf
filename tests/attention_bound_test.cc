// SPDX-License-Identifier: Apache-2.0
// False alarms: an honest f32 kernel (online softmax, any block size, any order of the sum over D,
// natural or base-2 exp) stays far inside its bound, also where rounding errors add up.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "golden/attention_op.h"
#include "golden/judge.h"

namespace kref {
namespace {

struct Sizes {
  Index queries, keys, depth, width;
};

Array make(std::vector<Index> shape, const std::function<float(Index row, Index column)>& value) {
  Array out(DType::kF32, shape);
  auto to = out.mutable_elements<float>();
  const Index width = shape.back();
  for (Index i = 0; i < out.size(); ++i) {
    to[static_cast<std::size_t>(i)] = value(i / width, i % width);
  }
  return out;
}

// What a kernel in f32 gives for one head, summing the scores from the last element when
// `reversed`, and then with exp2.
void run_f32(Run& run, Sizes s, float scale, Index block, bool reversed) {
  const auto q = run.in["q"].elements<float>(), k = run.in["k"].elements<float>(),
             v = run.in["v"].elements<float>();
  const auto at = [](auto a, Index i) { return a[static_cast<std::size_t>(i)]; };
  const auto exp = [&](float x) { return reversed ? std::exp2(x * 1.44269504f) : std::exp(x); };
  run.out["o"] = make({1, 1, s.queries, s.width}, [](Index, Index) { return 0.0f; });
  run.out["lse"] = make({1, 1, s.queries}, [](Index, Index) { return 0.0f; });
  auto o = run.out["o"].mutable_elements<float>(), lse = run.out["lse"].mutable_elements<float>();
  for (Index i = 0; i < s.queries; ++i) {
    float maximum = -HUGE_VALF, sum = 0;
    std::vector<float> acc(static_cast<std::size_t>(s.width), 0.0f);
    for (Index first = 0; first < s.keys; first += block) {
      const Index end = std::min(s.keys, first + block);
      std::vector<float> scores;
      float next = maximum;
      for (Index j = first; j < end; ++j) {
        float dot = 0;
        for (Index t = 0; t < s.depth; ++t) {
          const Index d = reversed ? s.depth - 1 - t : t;
          dot += at(q, i * s.depth + d) * at(k, j * s.depth + d);
        }
        scores.push_back(dot * scale);
        next = std::max(next, scores.back());
      }
      const float rescale = exp(maximum - next);
      maximum = next;
      sum *= rescale;
      for (float& a : acc) a *= rescale;
      for (Index j = first; j < end; ++j) {
        const float p = exp(scores[static_cast<std::size_t>(j - first)] - maximum);
        sum += p;
        for (std::size_t e = 0; e < acc.size(); ++e) {
          acc[e] += p * at(v, j * s.width + static_cast<Index>(e));
        }
      }
    }
    for (std::size_t e = 0; e < acc.size(); ++e) {
      o[static_cast<std::size_t>(i * s.width) + e] = acc[e] / sum;
    }
    lse[static_cast<std::size_t>(i)] = maximum + std::log(sum);
  }
}

TEST_CASE("an f32 kernel is far inside the bound") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0, 1);
  using Value = std::function<float(Index row, Index column)>;
  const Value any = [&](Index, Index) { return normal(random); };
  const Value positive = [&](Index, Index) { return uniform(random); };
  const Value tenth = [](Index, Index) { return 0.1f; };
  const Value two_values = [&](Index, Index) { return random() % 2 == 0 ? 0.1f : -0.3f; };
  const struct {
    const char* name;
    Sizes sizes;
    Value q, k, v;
  } cases[] = {
      {"normal", {16, 512, 64, 16}, any, any, any},
      {"one element", {50, 300, 1, 4}, any, any, any},
      {"all of one sign", {8, 1024, 64, 8}, positive, positive, positive},
      {"an outlier channel",
       {16, 300, 64, 16},
       [&](Index, Index d) { return d == 0 ? 30 + 0.3f * normal(random) : normal(random); },
       [&](Index, Index d) { return d == 0 ? 30 + 0.3f * normal(random) : normal(random); },
       any},
      {"large scores",
       {16, 300, 64, 16},
       [&](Index, Index) { return 5 * normal(random); },
       [&](Index, Index) { return 5 * normal(random); },
       any},
      {"constant", {2, 1024, 128, 2}, tenth, tenth, tenth},
      {"means of a constant", {2, 4096, 4, 2}, [](Index, Index) { return 0.0f; }, any, tenth},
      {"few values", {4, 1024, 64, 8}, two_values, two_values, two_values},
      {"a first key that outweighs the others",
       {4, 4096, 16, 8},
       [&](Index, Index d) { return d == 0 ? 5.0f : 0.3f * normal(random); },
       [&](Index j, Index d) { return j == 0 && d == 0 ? 5.0f : 0.3f * normal(random); },
       any},
  };
  double closest = 0;
  for (const auto& c : cases) {
    const float scale = 1 / std::sqrt(static_cast<float>(c.sizes.depth));
    Run run;
    run.origin = "test", run.op = "attention";
    run.set["scale"] = static_cast<double>(scale);
    run.in["q"] = make({1, 1, c.sizes.queries, c.sizes.depth}, c.q);
    run.in["k"] = make({1, 1, c.sizes.keys, c.sizes.depth}, c.k);
    run.in["v"] = make({1, 1, c.sizes.keys, c.sizes.width}, c.v);
    for (const Index block : {Index{1}, Index{128}, c.sizes.keys}) {
      for (const bool reversed : {false, true}) {
        run_f32(run, c.sizes, scale, block, reversed);
        for (const Expectation& e : attention_operation().expect(run)) {
          const double ratio = judge(e, run.out.at(e.output)).worst.ratio;
          CAPTURE(std::string(c.name));
          CAPTURE(block);
          CAPTURE(e.output);
          CAPTURE(ratio);
          CHECK(ratio < 1.0 / 3);
          closest = std::max(closest, ratio);
        }
      }
    }
  }
  // An output of zeros would not get here; neither should a bound that is never approached.
  CHECK(closest > 0.05);
}

}  // namespace
}  // namespace kref
