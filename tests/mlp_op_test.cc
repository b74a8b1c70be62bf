// SPDX-License-Identifier: Apache-2.0
// mlp and mlp.vjp on run files: what JAX computed is right, and so is what the devices compute;
// what another layer, or a device that forgot a step, computes is not; rules are refused by name.
#include "golden/mlp_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "golden/judge.h"
#include "golden/plan.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

Run recorded(const std::string& name) {
  return read_run(std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/mlp/" + name +
                  ".safetensors");
}

// Outputs that are wrong.
std::set<std::string> wrong(const Run& run) {
  const Operation& operation = find_operation(run.op);
  operation.validate(run, true);
  std::set<std::string> out;
  std::size_t judged = 0;
  for (const Expectation& e : operation.expect(run)) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    ++judged;
    if (verdict.ok()) continue;
    INFO(report(verdict));
    out.insert(e.output);
  }
  CHECK(judged == run.out.size());
  return out;
}

using Names = std::set<std::string>;

TEST_CASE("recorded layers are right, and ours") {
  int count = 0;
  const std::string root = std::string(std::getenv("KREF_SOURCE_ROOT"));
  for (const auto& entry : std::filesystem::directory_iterator(root + "/tests/runs/mlp")) {
    Run run = read_run(entry.path().string());
    CAPTURE(run.origin);
    CHECK(wrong(run).empty());
    run.out = find_operation(run.op).compute(run);
    CHECK(wrong(run).empty());
    ++count;
  }
  CHECK(count == 22);
}

// The recorded inputs, computed under other options than those that are judged.
Names under(const std::string& name, const nlohmann::json& other) {
  Run run = recorded(name);
  Run mutant = run;
  mutant.set.update(other);
  run.out = find_operation(run.op).compute(mutant);
  return wrong(run);
}

TEST_CASE("another layer is wrong") {
  CHECK(under("mlp-03-one-f32", {{"activation", "gelu_tanh"}}) == Names{"y"});
  CHECK(under("mlp-05-one-f32", {{"activation", "gelu"}}) == Names{"y"});
  CHECK(under("mlp-08-X2Y4-f32i", {{"activation", "none"}}) == Names{"y"});
  // The hidden value not rounded, or rounded though it ought not to be.
  CHECK(under("mlp-05-one-f32", {{"hidden_dtype", "BF16"}}) == Names{"y"});
  CHECK(under("mlp-06-one-bf16", {{"hidden_dtype", "BF16"}}) == Names{"y"});
  CHECK(under("mlp-04-one-bf16", {{"hidden_dtype", "F32"}}) == Names{"y"});
  const Names all{"ct.x", "ct.w_in", "ct.w_gate", "ct.w_out"};
  CHECK(under("mlp.vjp-02-one-f32i", {{"activation", "none"}}) == all);
  CHECK(under("mlp.vjp-18-X4Y2-f32", {{"activation", "gelu"}}) == all);
  CHECK(under("mlp.vjp-09-X4-f32", {{"hidden_dtype", "BF16"}}) == all);
  CHECK(under("mlp.vjp-03-one-f32", {{"activation", "gelu_tanh"}}) ==
        Names{"ct.x", "ct.w_in", "ct.w_out"});
}

// The hints for the outputs of recorded inputs that were computed as `mutant` asks.
Names hints(const Run& run, const Run& mutant) {
  Run judged = run;
  judged.out = find_operation(run.op).compute(mutant);
  Names out;
  for (const Expectation& e : find_operation(run.op).expect(judged)) {
    out.insert(judge(e, judged.out.at(e.output)).hint.substr(0, 40));
  }
  return out;
}

TEST_CASE("a report says which layer the outputs are right for") {
  const auto hint = [](const std::string& name, const char* key, const char* value) {
    const Run run = recorded(name);
    Run mutant = run;
    mutant.set[key] = value;
    return hints(run, mutant);
  };
  CHECK(hint("mlp-03-one-f32", "activation", "gelu_tanh") ==
        Names{"matches activation gelu_tanh: all 72 ele"});
  const Names grads = hint("mlp.vjp-18-X4Y2-f32", "activation", "relu");
  CHECK(grads.size() == 2);  // of [8,16] and of [16,24]
  for (const std::string& h : grads) CHECK(h.starts_with("matches activation relu: all "));
  CHECK(hint("mlp-05-one-f32", "hidden_dtype", "BF16") ==
        Names{"matches hidden_dtype BF16: all 72 elemen"});
  // A TPU's default: operands in BF16.
  const Run run = recorded("mlp-05-one-f32");
  Run bf16 = run;
  bf16.set["hidden_dtype"] = "BF16";
  for (auto& entry : bf16.in) {
    Array narrow = Array::unwritten(DType::kF32, entry.second.shape());
    const std::span<const float> from = entry.second.elements<float>();
    std::transform(from.begin(), from.end(), narrow.mutable_elements<float>().begin(),
                   [](float v) { return static_cast<float>(kref::bf16(v)); });
    entry.second = narrow;
  }
  CHECK(hints(run, bf16) == Names{"matches BF16 operands of every product ("});
  CHECK(hint("mlp-05-one-f32", "activation", "silu") == Names{""});
}

TEST_CASE("a strategy changes no number of integers, and its name no bound") {
  for (const char* strategy : {"none", "dp", "fsdp", "tp", "fsdp_tp"}) {
    CAPTURE(strategy);
    CHECK(under("mlp-08-X2Y4-f32i", {{"strategy", strategy}}).empty());
    CHECK(under("mlp.vjp-16-X2Y4-f32i", {{"strategy", strategy}}).empty());
  }
}

// gate and activation changed places.
TEST_CASE("the gate is not activated") {
  Run run = recorded("mlp-02-one-bf16");
  Run mutant = run;
  std::swap(mutant.in.at("w_in"), mutant.in.at("w_gate"));
  run.out = find_operation(run.op).compute(mutant);
  CHECK(wrong(run) == Names{"y"});
}

TEST_CASE("relu has the derivative 0 at 0") {
  // a = 0 everywhere: integers, whose sums are exact.
  Run run;
  run.origin = "run";
  run.op = "mlp.vjp";
  run.set = {{"activation", "relu"}};
  run.in["x"] = array_of({2, 2}, {1, 1, 2, 2});
  run.in["w_in"] = array_of({2, 3}, {1, 2, 3, -1, -2, -3});
  run.in["w_out"] = mixed({3, 2}, 1);
  run.in["ct.y"] = full({2, 2}, 1);
  run.out = find_operation(run.op).compute(run);
  CHECK(wrong(run).empty());
  for (const double v : values(run.out.at("ct.w_in"))) CHECK(v == 0);
  for (float& v : run.out.at("ct.w_in").mutable_elements<float>()) v = 1;
  CHECK(wrong(run) == Names{"ct.w_in"});
}

TEST_CASE("one device's share of a sum is wrong") {
  // ct.w of the first half of the batch: as when the psum over the data axis was forgotten.
  Run run = recorded("mlp.vjp-07-X4-f32i");
  Run half = run;
  for (const char* name : {"x", "ct.y"}) {
    Array cut(DType::kF32, run.in.at(name).shape());
    const auto from = run.in.at(name).elements<float>();
    std::copy(from.begin(), from.begin() + static_cast<Index>(from.size() / 4),
              cut.mutable_elements<float>().begin());
    half.in[name] = cut;
  }
  const auto made = find_operation(run.op).compute(half);
  run.out["ct.w_in"] = made.at("ct.w_in");
  run.out["ct.w_out"] = made.at("ct.w_out");
  CHECK(wrong(run) == Names{"ct.w_in", "ct.w_out"});
}

TEST_CASE("one element off by little is found, with its device") {
  Run run = recorded("mlp-14-X2Y4-f32i");
  const Array right = run.out.at("y");
  Array y(DType::kF32, right.shape());
  std::copy(right.elements<float>().begin(), right.elements<float>().end(),
            y.mutable_elements<float>().begin());
  y.mutable_elements<float>()[5] += 1;
  run.out["y"] = y;
  const Verdict verdict = judge(find_operation(run.op).expect(run).at(0), run.out.at("y"));
  CHECK(verdict.wrong == 1);
  CHECK(verdict.worst.device == "(X=0..1, Y=1)");
}

TEST_CASE("a run is described with the specs and the steps of its strategy") {
  const std::string text = describe_run(recorded("mlp.vjp-16-X2Y4-f32i"));
  for (const std::string part :
       {"in.ct.y        F32[8,16]   P('X', 'Y')", "out.ct.w_out   F32[24,16]  P('Y', 'X')",
        "plan: strategy fsdp_tp, forward and backward",
        "  x_all = all_gather(Y, axis=1, tiled=true) of x (cp)\n", "  h = act(a) * g\n",
        "psum_scatter(X, scatter_dimension=0, tiled=true) of ct.w_in_sum"}) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  // 5 collectives forward and 9 backward, since there is a gate.
  const nlohmann::ordered_json json = describe_run_json(recorded("mlp.vjp-16-X2Y4-f32i"));
  CHECK(json["plan"]["transfers"].size() == 14);
  CHECK(json["plan"]["flops"] == 9 * 2.0 * 8 * 16 * 24 / 8);
}

void has(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("rules are refused by name") {
  const Run good = recorded("mlp-16-X4Y2-bf16");
  const auto refused = [&](auto change, bool with_outputs = true) {
    Run run = good;
    run.origin = "run";
    change(run);
    return refusal([&] { find_operation(run.op).validate(run, with_outputs); });
  };
  CHECK(refused([](Run&) {}) == "(not refused)");
  has(refused([](Run& r) { r.set["activation"] = "tanh"; }),
      "run: mlp: option activation is \"tanh\", expected");
  has(refused([](Run& r) { r.set["strategy"] = "zero"; }), "option strategy is \"zero\", expected");
  has(refused([](Run& r) { r.set["data_axis"] = 1; }), "option data_axis is 1, expected the name");
  has(refused([](Run& r) { r.set["model_axis"] = "Z"; }), "needs the axis 'Z' (model_axis)");
  has(refused([](Run& r) { r.set["model_axis"] = "X"; }), "are both 'X', expected two axes");
  has(refused([](Run& r) { r.set["hidden_dtype"] = "I8"; }), "option hidden_dtype is \"I8\"");
  has(refused([](Run& r) { r.set["tile"] = 1; }), "unknown option 'tile'");
  has(refused([](Run& r) { r.mesh.reset(); }), "the mesh has no axes");
  has(refused([](Run& r) { r.mesh = Mesh::parse("X=3,Y=2"); }), "is not divisible by the 3");
  has(refused([](Run& r) {
        r.in_specs["x"] = P{"Y", "X"};
      }),
      "in_specs.x is P('Y', 'X'), expected P('X', 'Y'), that of strategy fsdp_tp, or none");
  CHECK(refused([](Run& r) {
          r.in_specs["w_out"] = P{"Y", "X"};
          r.in_specs["w_gate"] = P{"X", "Y"};
          r.out_specs["y"] = {P{"X", "Y"}, {}};
        }) == "(not refused)");
  has(refused([](Run& r) { r.out_specs["y"] = {P{}, {}}; }), "out_specs.y is P(), expected P('X'");
  has(refused([](Run& r) { r.in["w_out"] = r.in["w_in"]; }), "in.w_out BF16[16,24], [F, D], has");
  has(refused([](Run& r) {
        r.in["w_in"] = mixed({16, 24}, 1);
      }),
      "in.w_in has element type F32, expected that of in.x, BF16");
  has(refused([](Run& r) {
        r.out["y"] = mixed({8, 16}, 1);
      }),
      "out.y has element type F32, expected that of in.x, BF16");
  has(refused([](Run& r) { r.out.clear(); }), "tensor out.y [B D] is missing");
  has(refused([](Run& r) { r.in.erase("w_out"); }), "tensor in.w_out [F D] is missing");
  has(refused([](Run& r) {
        for (auto& entry : r.in) entry.second = mixed({8, 8}, 1, DType::kF64);
      }),
      "in.x has element type F64, expected F32, BF16 or F16");
  Run vjp = recorded("mlp.vjp-18-X4Y2-f32");
  vjp.out.erase("ct.w_gate");
  has(refusal([&] { find_operation(vjp.op).validate(vjp, true); }),
      "tensor out.ct.w_gate [D F] is missing");
  vjp = recorded("mlp.vjp-03-one-f32");
  vjp.out["ct.w_gate"] = vjp.out.at("ct.w_in");
  has(refusal([&] { find_operation(vjp.op).validate(vjp, true); }),
      "out.ct.w_gate is given, but there is no in.w_gate");
}

}  // namespace
}  // namespace kref
