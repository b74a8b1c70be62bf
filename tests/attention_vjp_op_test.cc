// SPDX-License-Identifier: Apache-2.0
// The attention.vjp operation on run files: what published implementations computed is right, what
// runs.md forbids is refused by name.
#include "golden/attention_vjp_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tests/op_runs.h"

namespace kref {
namespace {

std::string folder() {
  return std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/attention_vjp";
}

const Operation& vjp() { return find_operation("attention.vjp"); }

Run good(const char* name) { return read_run(folder() + "/" + name + ".safetensors"); }

std::string refusal(const Run& run, bool with_outputs = true) {
  return refusal_of(vjp(), run, with_outputs);
}

Array filled(DType type, std::vector<Index> shape, double value) {
  Array out(type, shape);
  with_dtype(type, [&]<class T>() {
    for (T& x : out.mutable_elements<T>()) x = static_cast<T>(value);
  });
  return out;
}

TEST_CASE("the gradients that jax computed are right") {
  const std::vector<std::string> paths = run_files(folder());
  CHECK(paths.size() >= 15);
  for (const std::string& path : paths) {
    CAPTURE(path);
    for (const Expectation& e : check_right(vjp(), read_run(path))) check_bounds(e);
  }
}

TEST_CASE("what `run` computes is right, in every file's types, and has every gradient") {
  for (const std::string& path : run_files(folder())) {
    CAPTURE(path);
    Run run = read_run(path);
    const auto given = run.out;
    run.out = vjp().compute(run);
    REQUIRE(refusal(run) == "");
    for (const auto& [name, array] : given) CHECK(run.out.contains(name));
    const std::vector<Expectation> expected = vjp().expect(run);
    REQUIRE(expected.size() == run.out.size());
    for (const Expectation& e : expected) {
      CAPTURE(e.output);
      const Verdict verdict = judge(e, run.out.at(e.output));
      CAPTURE(report(verdict));
      CHECK(verdict.ok());
    }
  }
}

TEST_CASE("files that break a rule of the gradients are refused by name") {
  const std::pair<const char*, const char*> rules[] = {
      {"in_ct_o_has_the_wrong_shape", "in.ct.o has shape [2,4,5,9], expected [2,4,5,8]"},
      {"missing_in_ct_o", "tensor in.ct.o [B H T E] is missing"},
      {"out_ct_bias_without_in_bias", "out.ct.bias is given, but there is no in.bias"},
  };
  for (const auto& [name, part] : rules) {
    const std::string path = folder() + "/refuse/attention-vjp-" + name + ".safetensors";
    const std::string message = refusal(read_run(path));
    check_has(message, path + ": attention.vjp: ");
    check_has(message, part);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("what no file of gradients shows is refused too") {
  const Run plain = good("g012-bias-before");  // q [1,2,7,8], k and v [1,2,9,8], bias [1,1,7,9]
  REQUIRE(refusal(plain) == "");
  Run run = plain;
  run.in["ct.lse"] = filled(DType::kF32, {1, 7, 2}, 0);
  check_has(refusal(run), "in.ct.lse has shape [1,7,2], expected [1,2,7]");
  run.in["ct.lse"] = filled(DType::kBF16, {1, 2, 7}, 0);
  check_has(refusal(run), "in.ct.lse has element type BF16, expected F32");
  run = plain;
  run.in["ct.o"] = filled(DType::kBF16, {1, 2, 7, 8}, 0);
  check_has(refusal(run), "in.ct.o has element type BF16, expected F32");
  run.set["out_dtype"] = "BF16";
  CHECK(refusal(run) == "");
  run = plain;
  run.out["ct.bias"] = filled(DType::kF32, {1, 2, 7, 9}, 0);
  check_has(refusal(run), "out.ct.bias has shape [1,2,7,9], expected [1,1,7,9]");
  run.out.erase("ct.bias");
  CHECK(refusal(run) == "");
  run.out["ct.sinks"] = filled(DType::kF32, {2}, 0);
  check_has(refusal(run), "out.ct.sinks is given, but there is no in.sinks");
  run = plain;
  run.out["ct.k"] = filled(DType::kBF16, {1, 2, 9, 8}, 0);
  check_has(refusal(run), "out.ct.k has element type BF16, expected F32");
  run = plain;
  run.out.erase("ct.v");
  check_has(refusal(run), "tensor out.ct.v [B G S E] is missing");
  CHECK(refusal(run, false) == "");
  run = plain;
  run.out["o"] = run.in.at("ct.o");
  check_has(refusal(run), "'out.o'");
  run = plain;
  run.in["k"] = filled(DType::kF32, {1, 2, 9, 7}, 0);
  check_has(refusal(run), "has D = 7, expected 8");
  run = plain;
  run.set["soft_cap"] = 0;
  check_has(refusal(run), "option soft_cap is 0, expected a number above 0");
  run = plain;
  run.mesh = Mesh::parse("X=2");
  check_has(refusal(run), "mesh X=2");
}

TEST_CASE("gradients of sizes of zero") {
  for (const std::vector<Index>& sizes : std::vector<std::vector<Index>>{{0, 2, 1, 3, 4, 5, 6},
                                                                         {2, 0, 0, 3, 4, 5, 6},
                                                                         {2, 2, 1, 0, 4, 5, 6},
                                                                         {2, 2, 1, 3, 0, 5, 6},
                                                                         {2, 2, 1, 3, 4, 0, 6},
                                                                         {2, 2, 1, 3, 4, 5, 0}}) {
    const Index B = sizes[0], H = sizes[1], G = sizes[2], T = sizes[3], S = sizes[4];
    Run run;
    run.origin = "test", run.op = "attention.vjp";
    run.set["scale"] = 1;
    run.in["q"] = filled(DType::kF32, {B, H, T, sizes[5]}, 1);
    run.in["k"] = filled(DType::kF32, {B, G, S, sizes[5]}, 2);
    run.in["v"] = filled(DType::kF32, {B, G, S, sizes[6]}, 3);
    run.in["ct.o"] = filled(DType::kF32, {B, H, T, sizes[6]}, 4);
    run.in["bias"] = filled(DType::kF32, {1, 1, 1, S}, 0);
    run.in["sinks"] = filled(DType::kF32, {H}, 0);
    REQUIRE(refusal(run, false) == "");
    run.out = vjp().compute(run);
    REQUIRE(refusal(run) == "");
    CHECK(run.out.size() == 5);
    for (const Expectation& e : vjp().expect(run)) {
      CAPTURE(e.output);
      CHECK(judge(e, run.out.at(e.output)).ok());
    }
  }
}

TEST_CASE("a wrong element of a gradient is placed in its batch, head and block") {
  for (const char* layout : {"BHTD", "BTHD"}) {
    const bool bthd = layout[1] == 'T';
    const auto shape = [&](Index heads, Index rows) {
      return bthd ? std::vector<Index>{2, rows, heads, 2} : std::vector<Index>{2, heads, rows, 2};
    };
    Run run;
    run.origin = "test", run.op = "attention.vjp";
    run.set = {{"scale", 1}, {"layout", layout}};
    float next = 0.5f;
    const auto chaos = [&](const std::vector<Index>& s) {
      Array a(DType::kF32, s);
      for (float& v : a.mutable_elements<float>()) v = next = 3.7f * next * (1 - next);
      return a;
    };
    run.in["q"] = chaos(shape(4, 150));
    run.in["ct.o"] = chaos(shape(4, 150));
    run.in["k"] = chaos(shape(2, 270)), run.in["v"] = chaos(shape(2, 270));
    run.in["bias"] = chaos({1, 4, 150, 270});
    const auto step = [&](const char* output, Index element) {
      run.out = vjp().compute(run);
      run.out[output].mutable_elements<float>()[static_cast<std::size_t>(element)] += 1;
      std::string found;
      for (const Expectation& e : vjp().expect(run)) {
        const Verdict verdict = judge(e, run.out.at(e.output));
        CHECK(verdict.wrong == (e.output == output ? 1 : 0));
        if (e.output == output) found = verdict.worst.step;
      }
      return found;
    };
    const auto at = [&](Index heads, Index rows, Index b, Index h, Index r) {
      return 2 * (bthd ? (b * rows + r) * heads + h : (b * heads + h) * rows + r);
    };
    CHECK(step("ct.q", at(4, 150, 1, 3, 140)) ==
          (bthd ? "batch=1, iq=1, head=3, d=0, ik=0..2" : "batch=1, head=3, iq=1, d=0, ik=0..2"));
    CHECK(step("ct.v", at(2, 270, 1, 0, 269)) == (bthd ? "batch=1, ik=2, kv_head=0, e=0, iq=0..1"
                                                       : "batch=1, kv_head=0, ik=2, e=0, iq=0..1"));
    CHECK(step("ct.bias", (2 * 150 + 129) * 270 + 128) == "batch=0, head=2, iq=1, ik=1");
  }
}

TEST_CASE("a NaN that a row sees makes its gradients NaN, and no others") {
  const Run plain = good("g003-gqa");  // bottom_right: q [1,6,7,8], k and v [1,2,12,8]
  for (const char* name : {"q", "k", "v"}) {
    CAPTURE(name);
    Run run = plain;
    const Array& from = plain.in.at(name);
    Array spoiled(from.dtype(), from.shape());
    std::copy(from.elements<float>().begin(), from.elements<float>().end(),
              spoiled.mutable_elements<float>().begin());
    // The last row of the first head: seen by it, or by the last row alone.
    const Index rows = from.extent(2);
    spoiled.mutable_elements<float>()[static_cast<std::size_t>((rows - 1) * 8)] =
        std::numeric_limits<float>::quiet_NaN();
    run.in[name] = spoiled;
    run.out = vjp().compute(run);
    for (const Expectation& e : vjp().expect(run)) {
      CAPTURE(e.output);
      CHECK(judge(e, run.out.at(e.output)).ok());
      const auto nan =
          std::count_if(e.value.begin(), e.value.end(), [](double v) { return std::isnan(v); });
      CHECK((nan > 0 || (e.output == "ct.v" && *name == 'v')));
      CHECK(static_cast<std::size_t>(nan) < e.value.size());
    }
  }
}

// Rows of padding that a bias of -1e9 masks, with no cotangent: f32 knows their logits to some 64
// only, and their weights are weights all the same.
TEST_CASE("rows that a large negative bias masks leave gradients a bound") {
  Run run = good("g003-gqa");
  const Array &q = run.in.at("q"), &k = run.in.at("k");
  const Index batches = q.extent(0), heads = q.extent(1), rows = q.extent(2), keys = k.extent(2);
  Array bias(DType::kF32, std::vector<Index>{batches, 1, rows, keys});
  Array ct = filled(DType::kF32, {batches, heads, rows, k.extent(3)}, 0.5);
  for (Index i = 0; i < bias.size(); ++i) {
    if (i / keys % rows < 2) bias.mutable_elements<float>()[static_cast<std::size_t>(i)] = -1e9f;
  }
  for (Index i = 0; i < ct.size(); ++i) {
    if (i / ct.extent(3) % rows < 2) ct.mutable_elements<float>()[static_cast<std::size_t>(i)] = 0;
  }
  run.in["bias"] = bias, run.in["ct.o"] = ct;
  run.out = vjp().compute(run);
  REQUIRE(refusal(run) == "");
  for (const Expectation& e : vjp().expect(run)) {
    CAPTURE(e.output);
    CHECK(judge(e, run.out.at(e.output)).ok());
    const Array& right = run.out.at(e.output);
    for (const double wrong : {std::nan(""), -7.0}) {
      const std::vector<Index> shape(right.shape().begin(), right.shape().end());
      CHECK(!judge(e, filled(right.dtype(), shape, wrong)).ok());
    }
  }
}

TEST_CASE("what may leave the range of f32 in a backward pass may be NaN") {
  Run run;
  run.origin = "test", run.op = "attention.vjp";
  run.set["scale"] = 1;
  run.in["q"] = filled(DType::kF32, {1, 1, 1, 1}, 0);
  run.in["k"] = filled(DType::kF32, {1, 1, 2, 1}, 0);
  run.in["v"] = filled(DType::kF32, {1, 1, 2, 1}, 3e25);
  run.in["ct.o"] = filled(DType::kF32, {1, 1, 1, 1}, 3e25);
  run.out["ct.q"] = filled(DType::kF32, {1, 1, 1, 1}, std::numeric_limits<double>::quiet_NaN());
  run.out["ct.k"] = run.out["ct.v"] = filled(DType::kF32, {1, 1, 2, 1}, 0);
  CHECK(judge(vjp().expect(run)[0], run.out["ct.q"]).ok());
  run.in["ct.o"] = filled(DType::kF32, {1, 1, 1, 1}, 3);
  CHECK(!judge(vjp().expect(run)[0], run.out["ct.q"]).ok());
}

}  // namespace
}  // namespace kref
