// SPDX-License-Identifier: Apache-2.0
// The collectives on run files: what JAX computed is right and so is what the devices compute, in
// every element type. What is refused: collective_refusals_test.cc.
#include "golden/collective_op.h"

#include <doctest/doctest.h>

#include <set>

#include "golden/judge.h"
#include "tests/collective_runs.h"

namespace kref {
namespace {

void has(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

void judged(Run run) {
  const Operation& operation = find_operation(run.op);
  operation.validate(run, true);
  for (const Expectation& e : operation.expect(run)) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    CAPTURE(report(verdict));
    CHECK(verdict.ok());
  }
}

TEST_CASE("what jax computed is right, and what the devices compute") {
  std::set<std::string> ops;
  for (const std::string& path : collective_files()) {
    CAPTURE(path);
    Run run = read_run(path);
    ops.insert(run.op);
    judged(run);
    run.out = find_operation(run.op).compute(run);
    judged(run);
  }
  CHECK(ops.size() == 14);
}

TEST_CASE("every element type moves, adds up and is compared") {
  for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) {
    const auto dtype = static_cast<DType>(t);
    CAPTURE(name_of(dtype));
    for (const char* op : {"all_gather", "psum", "pmean", "pmax", "pmin", "psum_scatter",
                           "ppermute", "all_to_all"}) {
      CAPTURE(op);
      const char* set =
          std::string(op) == "ppermute" ? R"({"axis_name": "X", "perm": [[0, 1], [1, 3]]})"
          : std::string(op) == "all_to_all"
              ? R"({"axis_name": "X", "split_axis": 1, "concat_axis": 0, "tiled": true})"
          : std::string(op) == "psum_scatter"
              ? R"({"axis_name": "X", "scatter_dimension": 1, "tiled": true})"
              : R"({"axis_name": "X"})";
      Run run = collective_run(op, set, {}, small_integers(dtype, {8, 4}));
      find_operation(op).validate(run, false);
      run.out = find_operation(op).compute(run);
      judged(run);
      // One element off: its neighbour in the type.
      const Array right = run.out.at("y");
      Array wrong(right.dtype(), right.shape());
      with_dtype(right.dtype(), [&]<class T>() {
        const auto from = right.elements<T>();
        std::copy(from.begin(), from.end(), wrong.mutable_elements<T>().begin());
        T& last = wrong.mutable_elements<T>().back();
        last = static_cast<double>(last) == 0 ? static_cast<T>(1.0f) : static_cast<T>(0.0f);
      });
      const Verdict verdict = judge(find_operation(op).expect(run)[0], wrong);
      CHECK(verdict.wrong == 1);
      CHECK(verdict.worst.element == right.size() - 1);
    }
  }
}

TEST_CASE("arrays without elements, of whatever extents") {
  for (const char* op : {"all_gather", "psum", "pmean", "pmax", "psum_scatter"}) {
    CAPTURE(op);
    const char* set = std::string(op) == "psum_scatter"
                          ? R"({"axis_name": "X", "scatter_dimension": 1, "tiled": true})"
                          : R"({"axis_name": "X"})";
    Run run = collective_run(op, set, {}, small_integers(DType::kF32, {0, Index{1} << 40}));
    find_operation(op).validate(run, false);
    run.out = find_operation(op).compute(run);
    judged(run);
    if (std::string(op) == "pmax") continue;
    run.op += ".vjp";
    run.in["ct.y"] = run.out.at("y");
    run.out.clear();
    find_operation(run.op).validate(run, false);
    run.out = find_operation(run.op).compute(run);
    judged(run);
  }
  Run scalar = collective_run("psum", R"({"axis_name": "X"})", {"X=4", "P()", "P()"},
                              small_integers(DType::kI32, {}));
  scalar.out = find_operation("psum").compute(scalar);
  judged(scalar);
}

TEST_CASE("the way back that is printed is the one that runs, checked where it can be") {
  using Steps = std::vector<std::string>;
  const auto back = [](const char* op, const char* set, const Placed& placed) {
    Run run = collective_run(op, set, placed, small_integers(DType::kF32, {4, 8}));
    run.in["ct.y"] = small_integers(DType::kF32, {4, 8}, 3);
    find_operation(run.op).validate(run, false);
    const Plan plan = find_operation(run.op).plan(run);
    run.out = find_operation(run.op).compute(run);
    judged(run);
    return plan;
  };
  // A copy of the cotangent, which every device has.
  Plan plan = back("psum.vjp", R"({"axis_name": "Y"})", {"X=2,Y=2", "None,X", "None,X"});
  CHECK(plan.steps ==
        Steps{"pvary(Y) of ct.y F32[4,4] a device", "psum(Y) of ct.x F32[4,4] a device"});
  CHECK(plan.bytes() == 4.0 * 4 * 4);
  // No axis is named, and what is replicated stays so.
  plan = back("psum.vjp", R"({"axis_name": []})", {"X=2,Y=2", "X", "X"});
  CHECK(plan.steps == Steps{"nothing: no axis is named"});
  // check_vma=True has no psum of groups: it is its own transpose, and x's copies are summed.
  const char* groups = R"({"axis_name": "X", "axis_index_groups": [[0, 1], [2, 3]]})";
  plan = back("psum.vjp", groups, {"X=4,Y=2", "None,X", "None,X"});
  REQUIRE(plan.steps.size() == 3);
  CHECK(plan.steps[0] == "of the devices with the same block of y, that with index 0 has ct.y");
  has(plan.steps[1], "psum(X, axis_index_groups=[[0,1],[2,3]]) of ct.y F32[4,2] a device");
  CHECK(plan.steps[2] == "psum(Y) of ct.x F32[4,2] a device");
  CHECK(plan.transfers.size() == 2);
  CHECK(plan.bytes() == 2 * 4.0 * 8);
}

TEST_CASE("cotangents of more elements than are summed up at a time") {
  const Index rows = 1200, columns = 1024, size = rows * columns;
  Run run = collective_run("all_gather.vjp", R"({"axis_name": "X", "tiled": true})",
                           {"X=2", "X", "X"}, small_integers(DType::kF32, {rows, columns}));
  const Array ct = small_integers(DType::kF32, {2 * rows, columns}, 3);
  run.in["ct.y"] = ct;
  find_operation(run.op).validate(run, false);
  run.out = find_operation(run.op).compute(run);
  const Expectation e = find_operation(run.op).expect(run)[0];
  REQUIRE(static_cast<Index>(e.value.size()) == size);
  Index wrong = 0;
  for (Index i = 0; i < size; ++i) {
    wrong += e.value[static_cast<std::size_t>(i)] != ct.at(i) + ct.at(size + i);
  }
  CHECK(wrong == 0);
  CHECK(judge(e, run.out.at("ct.x")).ok());
  run.out.at("ct.x").mutable_elements<float>().back() += 1;
  CHECK(judge(e, run.out.at("ct.x")).wrong == 1);
}

TEST_CASE("integers past 2^53 are told apart") {
  Array x(DType::kI64, std::vector<Index>{4});
  const std::int64_t big = (std::int64_t{1} << 60) + 1;
  for (std::int64_t& v : x.mutable_elements<std::int64_t>()) v = big;
  Run run = collective_run("psum", R"({"axis_name": "X"})", {"X=2", "X", "P()"}, x);
  run.out = find_operation("psum").compute(run);
  judged(run);
  CHECK(run.out.at("y").elements<std::int64_t>()[0] == 2 * big);
  run.out.at("y").mutable_elements<std::int64_t>()[0] += 1;
  const Verdict verdict = judge(find_operation("psum").expect(run)[0], run.out.at("y"));
  CHECK(verdict.wrong == 1);
  CHECK(verdict.worst.element == 0);
  has(report(verdict), "expected   2305843009213693954\n  actual     2305843009213693955\n");
}

}  // namespace
}  // namespace kref
