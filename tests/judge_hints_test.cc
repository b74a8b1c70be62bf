// SPDX-License-Identifier: Apache-2.0
// What an output that is wrong is right for: another precision of the same product. A hint is
// given where every element says so, and never for a fault.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "golden/judge.h"
#include "golden/operation.h"
#include "golden/verdict_json.h"
#include "kernels/dot.h"
#include "sharding/mesh.h"
#include "tests/dot_inputs.h"

namespace kref {
namespace {

const Operation& operation() { return find_operation("matmul"); }

template <class Value>
Array filled(std::vector<Index> shape, Index seed, Value value) {
  Array out(DType::kF32, shape);
  Random random(seed);
  for (float& v : out.mutable_elements<float>()) v = value(random);
  return out;
}

// x [m, k] y [k, n], values whose products round under every precision but f32.
Run run_of(Index m, Index n, Index k) {
  Run run;
  run.origin += "test";
  run.op += "matmul";
  run.in.emplace("x", filled({m, k}, 1, rounding<float>));
  run.in.emplace("y", filled({k, n}, 2, rounding<float>));
  return run;
}

// The output of a machine that multiplies in that precision, whatever the run says.
Array computed(Run run, Precision precision) {
  run.set["precision"] = name_of(precision);
  return operation().compute(run).at("z");
}

Verdict judged(Run run, const char* precision, Array z) {
  run.out.insert_or_assign("z", std::move(z));
  if (precision != nullptr) run.set["precision"] = precision;
  operation().validate(run, true);
  return judge(operation().expect(run).at(0), run.out.at("z"));
}

bool names(const std::string& hint, Precision precision) {
  const std::string name = std::string("precision ") + name_of(precision);
  return (hint + ",").find(name + ",") != std::string::npos ||
         hint.find(name + ":") != std::string::npos;
}

TEST_CASE("an output of another precision is recognised, and one that is right needs no hint") {
  const Run run = run_of(20, 24, 96);
  int recognised = 0;
  for (const Precision asked : kPrecisions) {
    for (const Precision took : kPrecisions) {
      CAPTURE(std::string(name_of(asked)));
      CAPTURE(std::string(name_of(took)));
      const Verdict v = judged(run, name_of(asked), computed(run, took));
      CAPTURE(v.hint);
      if (asked == took) CHECK(v.ok());
      CHECK(v.hint.empty() == v.ok());
      if (v.ok()) continue;
      ++recognised;
      CHECK(v.hint.starts_with("matches precision "));
      CHECK(v.hint.ends_with(": all 480 elements lie within its bounds"));
      CHECK(names(v.hint, took));
      CHECK_FALSE(names(v.hint, asked));
      // bf16 is so much coarser than the others that it is never taken for one of them.
      for (const Precision other : kPrecisions) {
        if (other != took && (took == Precision::kBF16 || other == Precision::kBF16))
          CHECK_FALSE(names(v.hint, other));
      }
    }
  }
  CHECK(recognised >= 6);
}

TEST_CASE("the report ends with the hint, in 25 lines, and JSON has it") {
  const Run run = run_of(40, 48, 64);
  Run cut = run;
  cut.set["tile"] = {8, 8, 16};
  const Verdict v = judged(cut, nullptr, computed(run, Precision::kBF16));
  const std::string text = report(v);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 24);  // one is the command's own
  CHECK(text.ends_with("hint: matches precision bf16: all 1920 elements lie within its bounds\n"));
  CHECK(to_json(v)["hint"] == v.hint);
  CHECK(to_json(judged(cut, nullptr, computed(run, Precision::kF32)))["hint"] == "");
}

TEST_CASE("a fault is no other precision") {
  const Run run = run_of(20, 24, 96);
  const auto hint_of = [&](Precision took, auto change) {
    Array z = computed(run, took);
    change(z.mutable_elements<float>());
    const Verdict v = judged(run, "f32", z);
    CHECK_FALSE(v.ok());
    return v.hint;
  };
  // A right output with a fault, and one of bf16 with a fault on top.
  for (const Precision took : {Precision::kF32, Precision::kBF16}) {
    CHECK(hint_of(took, [](std::span<float> z) { z[77] += 1; }) == "");
    CHECK(hint_of(took, [](std::span<float> z) { z[77] = NAN; }) == "");
    CHECK(hint_of(took, [](std::span<float> z) { std::fill_n(z.begin(), 48, 0.0f); }) == "");
    CHECK(hint_of(took, [](std::span<float> z) {
            for (float& v : z) v *= 1.01f;
          }) == "");
  }
  // An error that the wider bounds of six products cover, and those of one do not.
  const auto element = [&](double bounds) {
    Run asked = run;
    asked.out.emplace("z", computed(run, Precision::kF32));
    const Expectation e = operation().expect(asked).at(0);
    const float off = static_cast<float>(e.value[5] + bounds * e.likely[5]);
    return hint_of(Precision::kF32, [=](std::span<float> z) { z[5] = off; });
  };
  CHECK(element(1.2) == "");
  CHECK(element(2.0) == "");
}

TEST_CASE("where all precisions agree, or there is too little to tell by, no hint is given") {
  Run run = run_of(6, 7, 8);
  run.in.at("x") = filled({6, 8}, 3, small_integer<float>);
  run.in.at("y") = filled({8, 7}, 4, small_integer<float>);
  Array z = computed(run, Precision::kF32);
  z.mutable_elements<float>()[3] += 1;
  CHECK(judged(run, "bf16", z).hint == "");
  const Run one = run_of(1, 1, 96);
  const Verdict v = judged(one, "f32", computed(one, Precision::kBF16));
  CHECK_FALSE(v.ok());
  CHECK(v.hint == "");
}

TEST_CASE("batches, transposed operands, narrower outputs and partial sums") {
  for (const bool trans : {false, true}) {
    Run run = run_of(0, 0, 0);
    run.in.at("x") = filled({2, trans ? 64 : 9, trans ? 9 : 64}, 5, rounding<float>);
    run.in.at("y") = filled({trans ? 11 : 64, trans ? 64 : 11}, 6, rounding<float>);
    run.set["trans_x"] = run.set["trans_y"] = trans;
    run.set["out_dtype"] = "F64";
    const Verdict v = judged(run, nullptr, computed(run, Precision::kBF16));
    CHECK(v.hint == "matches precision bf16: all 198 elements lie within its bounds");
  }
  Run run = run_of(8, 12, 64);
  run.mesh = Mesh::parse("X=4");
  run.in_specs["x"] = PartitionSpec::parse("None,X");
  run.in_specs["y"] = PartitionSpec::parse("X,None");
  for (const char* spec : {"None,None", "X,None"}) {
    run.out_specs["z"] = OutSpec::parse(spec);
    CHECK(judged(run, nullptr, computed(run, Precision::kBF16)).hint ==
          "matches precision bf16: all 96 elements lie within its bounds");
  }
  run.out_specs["z"] = OutSpec();
  run.out_specs["z"].unreduced.push_back("X");
  CHECK(judged(run, nullptr, computed(run, Precision::kBF16)).hint ==
        "matches precision bf16: all 384 elements lie within its bounds");
}

}  // namespace
}  // namespace kref
