// SPDX-License-Identifier: Apache-2.0
// attention.vjp over pairs of options: what `run` computes is right by the judge's bound, for every
// kind of input, and one element that is off by a few bounds is not.
#include <doctest/doctest.h>

#include "golden/attention_vjp_op.h"
#include "golden/judge.h"
#include "tests/attention_vjp_case_runs.h"

namespace kref {
namespace {

// The inputs of a run and its ct.o in another element type.
void convert(Run& run, DType type) {
  for (const char* name : {"q", "k", "v", "ct.o"}) {
    const Array from = run.in.at(name);
    run.in[name] = filled(type, {from.shape().begin(), from.shape().end()},
                          [&](Index i) { return from.at(i); });
  }
  if (run.in.contains("bias")) {
    const Array from = run.in.at("bias");
    run.in["bias"] = filled(DType::kF32, {from.shape().begin(), from.shape().end()},
                            [&](Index i) { return from.at(i); });
  }
  run.set["out_dtype"] = name_of(type);
}

struct Closest {
  double ratio = 0;
  int gradients = 0, moved = 0;
};

void check_run(Run run, Closest& closest) {
  const Operation& op = find_operation("attention.vjp");
  op.validate(run, false);
  run.out = op.compute(run);
  op.validate(run, true);
  const std::vector<Expectation> expected = op.expect(run);
  REQUIRE(expected.size() == run.out.size());
  for (const Expectation& e : expected) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    CAPTURE(e.output);
    CAPTURE(verdict.worst.element);
    CAPTURE(verdict.worst.expected);
    CAPTURE(verdict.worst.actual);
    CAPTURE(verdict.worst.bound);
    CHECK(verdict.ok());
    closest.ratio = std::max(closest.ratio, verdict.worst.ratio);
    ++closest.gradients;
    // The element whose value is largest, three bounds away. What is exact has no bound.
    std::size_t largest = 0;
    for (std::size_t i = 0; i < e.value.size(); ++i) {
      if (std::isfinite(e.value[i]) && std::fabs(e.value[i]) > std::fabs(e.value[largest])) {
        largest = i;
      }
    }
    if (e.value.empty() || !(e.likely[largest] > 0)) continue;
    const Array& good = run.out.at(e.output);
    const double away = e.value[largest] + 3 * e.likely[largest];
    const Array bad =
        filled(good.dtype(), {good.shape().begin(), good.shape().end()},
               [&](Index i) { return i == static_cast<Index>(largest) ? away : good.at(i); });
    CHECK(judge(e, bad).wrong == 1);
    ++closest.moved;
  }
}

TEST_CASE("attention.vjp is right by its own bound for every pair of options") {
  std::mt19937 random(17);
  PairsSeen pairs;
  Closest closest;
  for (int n = 0; n < 240; ++n) {
    CAPTURE(n);
    const Levels levels(random);
    const AttentionVjpCase c = make_vjp_case(levels, random);
    pairs.add(levels, c.has_ct_lse);
    const Run run = request_of(c);
    CAPTURE(run.set.dump());
    check_run(run, closest);
  }
  CHECK(pairs.all());
  CHECK(closest.moved > 600);
  MESSAGE("240 option-pairwise cases, ", closest.gradients,
          " gradients, closest to its bound: ", closest.ratio);
}

TEST_CASE("attention.vjp in F64 and in types of 8 bits") {
  std::mt19937 random(19);
  for (const DType type : {DType::kF64, DType::kF8E4M3, DType::kF8E5M2}) {
    Closest closest;
    for (int n = 0; n < 20; ++n) {
      CAPTURE(name_of(type));
      CAPTURE(n);
      Run run = request_of(make_vjp_case(Levels(random), random));
      convert(run, type);
      check_run(run, closest);
    }
    CHECK(closest.gradients >= 60);
  }
}

}  // namespace
}  // namespace kref
