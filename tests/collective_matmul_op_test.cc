// SPDX-License-Identifier: Apache-2.0
// collective_matmul on run files: what JAX's rings computed is right, so is what ours compute, and
// what went wrong in a ring is not; rules are refused by name.
#include "golden/collective_matmul_op.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "golden/judge.h"
#include "golden/plan.h"
#include "tests/collective_runs.h"
#include "tests/refusal.h"

namespace kref {
namespace {

Verdict judged(const Run& run) {
  const Operation& operation = find_operation(run.op);
  operation.validate(run, true);
  return judge(operation.expect(run).at(0), run.out.at("z"));
}

std::vector<Run> runs() {
  std::vector<Run> out;
  const std::string root = std::string(std::getenv("KREF_SOURCE_ROOT"));
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/tests/runs/collective_matmul")) {
    out.push_back(read_run(entry.path().string()));
  }
  return out;
}

TEST_CASE("recorded rings are right, and ours") {
  std::set<std::string> options;
  for (Run run : runs()) {
    CAPTURE(run.origin);
    options.insert(run.set.dump());
    CHECK(judged(run).ok());
    run.out = find_operation(run.op).compute(run);
    CHECK(judged(run).ok());
  }
  CHECK(options.size() >= 4);
}

// z of a ring in which every device takes chunk i of y's rows at step i, whatever its index.
Array slipped(const Run& run, Index devices) {
  const Array &x = run.in.at("x"), &y = run.in.at("y");
  const Index m = x.extent(0), depth = x.extent(1), n = y.extent(1), chunk = depth / devices;
  Array z = Array::unwritten(DType::kF32, std::vector<Index>{m, n});
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      const Index device = j / (n / devices);
      double sum = 0;
      for (Index k = 0; k < depth; ++k) {
        sum += x.at(i * depth + (k + device * chunk) % depth) * y.at(k * n + j);
      }
      z.mutable_elements<float>()[static_cast<std::size_t>(i * n + j)] = static_cast<float>(sum);
    }
  }
  return z;
}

Run ring_run(const char* set, const Placed& x, const char* y = "None,X") {
  Run run = collective_run("collective_matmul", set, x, small_integers(DType::kF32, {8, 16}));
  run.in["y"] = small_integers(DType::kF32, {16, 12}, 3);
  run.in_specs["y"] = PartitionSpec::parse(y);
  run.out_specs["z"] = run.out_specs.at("y");
  run.out_specs.erase("y");
  return run;
}

TEST_CASE("the slip of the first published ring is wrong on every device but the first") {
  Run run = ring_run(R"({"axis_name": "X"})", {"X=4", "None,X", "None,X"});
  run.out["z"] = slipped(run, 4);
  const Verdict verdict = judged(run);
  CHECK_FALSE(verdict.ok());
  const Expectation e = find_operation(run.op).expect(run).at(0);
  for (Index j = 0; j < 12; ++j) {
    Index wrong = 0;
    for (Index i = 0; i < 8; ++i) {
      wrong += run.out.at("z").at(i * 12 + j) != e.value[static_cast<std::size_t>(i * 12 + j)];
    }
    CHECK((wrong == 0) == (j < 3));
  }
}

TEST_CASE("a run is described with its ring") {
  const Run run =
      ring_run(R"({"axis_name": "X", "direction": "both"})", {"X=4", "None,X", "None,X"});
  const std::string text = describe_run(run);
  CAPTURE(text);
  CHECK(text.find("plan: round X: x's contracting dimension, all_gather, both directions\n") !=
        std::string::npos);
  // Three of four blocks [8,4] of F32.
  CHECK(describe_run_json(run)["plan"]["bytes"] == 3 * 8 * 4 * 4);
  // Over Y what the ring over X has summed is summed on: half of z [8,12] travels, then twice half
  // of that half.
  const Run two = ring_run(R"({"axis_name": "X"})", {"X=2,Y=2", "None,(X,Y)", "X"}, "(X,Y)");
  const auto sums = describe_run_json(two)["plan"]["transfers"];
  REQUIRE(sums.size() == 2);
  CHECK(sums[0]["collective"] == "ring(X) of z");
  CHECK(sums[0]["bytes"] == 8 * 12 / 2 * 4);
  CHECK(sums[1]["collective"] == "psum(Y) of z");
  CHECK(sums[1]["bytes"] == 2 * 8 * 12 / 4 * 4);
  // Rows of x are gathered over Y before blocks of them go round X.
  const Run rows =
      ring_run(R"({"axis_name": "X"})", {"X=2,Y=2", "(X,Y)", "None,(X,Y)"}, "None,(X,Y)");
  const auto gathers = describe_run_json(rows)["plan"]["transfers"];
  REQUIRE(gathers.size() == 2);
  CHECK(gathers[0]["bytes"] == 2 * 16 * 4);
  CHECK(gathers[1]["collective"] == "ring(X) of x");
  CHECK(gathers[1]["bytes"] == 4 * 16 * 4);
}

void has(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

std::string refused(const Run& run) {
  return refusal([&] { find_operation(run.op).validate(run, false); });
}

TEST_CASE("rules are refused by name") {
  const Placed placed{"X=4", "None,X", "None,X"};
  const auto with = [&](const char* set) { return refused(ring_run(set, placed)); };
  CHECK(with(R"({"axis_name": "X"})") == "(not refused)");
  CHECK(with(R"({"axis_name": ["X"], "form": "all_gather", "direction": "both"})") ==
        "(not refused)");
  has(with("{}"), "run: collective_matmul: option axis_name is missing");
  has(with(R"({"axis_name": 1})"), "option axis_name is 1, expected the name of a mesh axis");
  has(with(R"({"axis_name": ["X", "Y"]})"), "expected the name of a mesh axis");
  has(with(R"({"axis_name": "Z"})"), "unbound axis name 'Z', the mesh has X=4");
  has(with(R"({"axis_name": "X", "form": "gather"})"), "option form is \"gather\", expected");
  has(with(R"({"axis_name": "X", "form": "reduce_scatter"})"),
      "form is reduce_scatter, but these specs gather x's contracting dimension over 'X'");
  has(with(R"({"axis_name": "X", "direction": "two"})"), "option direction is \"two\", expected");
  has(with(R"({"axis_name": "X", "precision": "bf16"})"), "unknown option 'precision'");
  const char* set = R"({"axis_name": "X"})";
  has(refused(ring_run(set, {"X=4", "X", "X"}, "None,X")),
      "y's columns are to be gathered over 'X'; expected a gather of x's or y's contracting");
  has(refused(ring_run(set, {"X=3", "None,X", "None,X"})),
      "dimension 1 of size 16 is not divisible by the 3");
  has(refused(ring_run(set, {"X=4,Y=2", "None,Y", "None,X"}, "X")),
      "contracting dimensions sharded over different axes");
  has(refused(ring_run(set, {"X=4", "X", "X"}, "None")),
      "nothing is gathered or scattered over 'X'");
  Run run = ring_run(set, placed);
  run.mesh.reset();
  run.in_specs.clear();
  run.out_specs.clear();
  has(refused(run), "the run has no mesh");
  run = ring_run(set, placed);
  run.in["x"] = small_integers(DType::kF32, {2, 8, 16});
  has(refused(run), "in.x F32[2,8,16] has rank 3, expected 2: [M, K]");
  run.in["x"] = small_integers(DType::kF8E4M3, {8, 16});
  has(refused(run), "in.x has element type F8_E4M3, expected F64, F32");
  run.in["x"] = small_integers(DType::kI8, {8, 16});
  has(refused(run), "in.y has element type F32, expected that of in.x, I8");
  run = ring_run(set, placed);
  run.out["z"] = small_integers(DType::kF32, {8, 11});
  has(refusal([&] { find_operation(run.op).validate(run, true); }),
      "run: collective_matmul: out.z has shape [8,11], expected [8,12]");
}

}  // namespace
}  // namespace kref
