// SPDX-License-Identifier: Apache-2.0
// The attention operation on run files: what published implementations computed is right, what
// runs.md forbids is refused by name.
#include "golden/attention_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "golden/wrong_attention.h"
#include "tests/op_runs.h"

namespace kref {
namespace {

std::string folder() {
  return std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/attention";
}

const Operation& attention() {
  static const Operation operation = attention_operation();
  return operation;
}

Run good(const char* name) { return read_run(folder() + "/" + name + ".safetensors"); }

std::string refusal(const Run& run, bool with_outputs = true) {
  return refusal_of(attention(), run, with_outputs);
}

template <class T>
Array array(std::vector<Index> shape, const std::vector<T>& values) {
  Array out(dtype_of<T>, shape);
  REQUIRE(out.size() == static_cast<Index>(values.size()));
  std::copy(values.begin(), values.end(), out.mutable_elements<T>().begin());
  return out;
}

TEST_CASE("what jax computed is right") {
  const std::vector<std::string> paths = run_files(folder());
  CHECK(paths.size() >= 25);
  for (const std::string& path : paths) {
    CAPTURE(path);
    for (const Expectation& e : check_right(attention(), read_run(path))) check_bounds(e);
  }
}

TEST_CASE("the definition is right by its own bound, in every file's types") {
  for (const std::string& path : run_files(folder())) {
    CAPTURE(path);
    Run run = read_run(path);
    run.out = attention().compute(run);
    REQUIRE(refusal(run) == "");
    const std::vector<Expectation> expected = attention().expect(run);
    REQUIRE(expected.size() == 2);
    for (const Expectation& e : expected) CHECK(judge(e, run.out.at(e.output)).ok());
  }
}

TEST_CASE("files that break a rule are refused by name") {
  const std::pair<const char*, const char*> rules[] = {
      {"element_types_of_q_and_k_differ", "in.k has element type F16, expected F32"},
      {"h_is_not_a_multiple_of_g", "H = 4 heads, not a multiple of G = 3"},
      {"head_sizes_of_q_and_k_differ", "in.k F32[2,2,6,9], [B, G, S, D], has D = 9, expected 8"},
      {"in_bias__heads_must_be_h_or_1", "has H = 2, expected 4 as in in.q or 1"},
      {"in_bias_must_have_rank_4", "in.bias F32[5,6] has rank 2, expected 4"},
      {"in_kv_lengths_must_be__b_", "in.kv_lengths I32[3], [B], has B = 3, expected 2"},
      {"in_kv_segment_ids_is_missing", "in.kv_segment_ids is missing; in.q_segment_ids needs it"},
      {"in_mask__last_dimension_must_be_s", "in.mask BOOL[2,4,5,7]"},
      {"in_mask_must_be_bool", "in.mask has element type U8, expected BOOL"},
      {"in_q_must_have_rank_4", "in.q F32[2,5,8] has rank 3, expected 4"},
      {"in_sinks_must_be__h_", "in.sinks F32[2], [H], has H = 2, expected 4"},
      {"lengths_of_k_and_v_differ", "in.v F32[2,2,7,8], [B, G, S, E], has S = 7, expected 6"},
      {"missing_in_v", "in.v"},
      {"out_dtype_must_be_a_float_type", "option out_dtype is \"I32\""},
      {"out_o_has_the_wrong_element_type", "out.o has element type F16, expected F32"},
      {"out_o_has_the_wrong_shape", "out.o has shape [2,5,4,8], expected [2,4,5,8]"},
      {"scale_is_required", "option scale is missing"},
      {"scale_must_be_a_number", "option scale is \"half\""},
      {"soft_cap_must_be_positive", "option soft_cap is 0, expected a number above 0"},
      {"unknown_layout", "option layout is \"BHDT\""},
      {"unknown_lse_base", "option lse_base is \"10\""},
      {"unknown_option_softcap", "'softcap'"},
      {"unknown_tensor_in_key", "'in.key'"},
      {"unknown_word_for_causal", "option causal is \"lower\""},
      {"window_needs_two_sides", "option window is [4]"},
      {"window_sides_are_whole_numbers", "option window is [1.5,0]"},
      {"window_sides_must_not_be_negative", "option window is [-1,0]"},
  };
  CHECK(run_files(folder() + "/refuse").size() == std::size(rules));
  for (const auto& [name, part] : rules) {
    const std::string path = folder() + "/refuse/attention-" + name + ".safetensors";
    const std::string message = refusal(read_run(path));
    check_has(message, path + ": attention: ");
    check_has(message, part);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("what no file shows is refused too") {
  const Run plain = good("a001-one-key");  // q [1,2,1,8], k and v [1,2,1,8]
  REQUIRE(refusal(plain) == "");
  Run run = plain;
  run.in["kv_lengths"] = array<std::int32_t>({1}, {2});
  check_has(refusal(run), "in.kv_lengths[0] is 2, expected 0 to S = 1");
  run.in["kv_lengths"] = array<std::int32_t>({1}, {-1});
  check_has(refusal(run), "in.kv_lengths[0] is -1, expected 0 to S = 1");
  run = plain;
  run.in["q_lengths"] = array<std::int32_t>({1}, {2});
  check_has(refusal(run), "in.q_lengths[0] is 2, expected 0 to T = 1");
  run.in["q_lengths"] = Array(DType::kI64, std::vector<Index>{1});
  check_has(refusal(run), "in.q_lengths has element type I64, expected I32");
  run = plain;
  run.in["kv_segment_ids"] = array<std::int32_t>({1, 1}, {0});
  check_has(refusal(run), "in.q_segment_ids is missing; in.kv_segment_ids needs it");
  run = plain;
  run.in["bias"] = Array(DType::kBF16, std::vector<Index>{1, 1, 1, 1});
  check_has(refusal(run), "in.bias has element type BF16, expected F32");
  run = plain;
  run.in["q"] = Array(DType::kI32, plain.in.at("q").shape());
  check_has(refusal(run), "in.q has element type I32");
  run = plain;
  run.mesh = Mesh::parse("X=2");
  check_has(refusal(run), "mesh X=2");
  run = plain;
  run.out["lse"] = Array(DType::kF32, std::vector<Index>{1, 2});
  check_has(refusal(run), "out.lse has shape [1,2], expected [1,2,1]");
  run = plain;
  run.out.clear();
  check_has(refusal(run), "out.o");
  CHECK(refusal(run, false) == "");
  for (const char* name : {"soft_cap", "scale", "causal", "window", "p_dtype", "fully_masked"}) {
    run = plain;
    run.set[name] = nlohmann::json::array({"x"});
    check_has(refusal(run), std::string("option ") + name + " is [\"x\"]");
  }
  run = plain;
  run.set["fully_masked"] = "uniform";
  run.in["k"] = run.in["v"] = Array(DType::kF32, std::vector<Index>{1, 2, 0, 8});
  check_has(refusal(run), "S = 0");
}

TEST_CASE("sizes of zero") {
  for (const std::vector<Index>& sizes : std::vector<std::vector<Index>>{{0, 2, 1, 3, 4, 5, 6},
                                                                         {2, 0, 0, 3, 4, 5, 6},
                                                                         {2, 2, 1, 0, 4, 5, 6},
                                                                         {2, 2, 1, 3, 0, 5, 6},
                                                                         {2, 2, 1, 3, 4, 0, 6},
                                                                         {2, 2, 1, 3, 4, 5, 0}}) {
    const Index B = sizes[0], H = sizes[1], G = sizes[2], T = sizes[3], S = sizes[4];
    Run run;
    run.origin = "test", run.op = "attention";
    run.set["scale"] = 1;
    run.in["q"] = Array(DType::kF32, std::vector<Index>{B, H, T, sizes[5]});
    run.in["k"] = Array(DType::kF32, std::vector<Index>{B, G, S, sizes[5]});
    run.in["v"] = Array(DType::kF32, std::vector<Index>{B, G, S, sizes[6]});
    REQUIRE(refusal(run, false) == "");
    run.out = attention().compute(run);
    REQUIRE(refusal(run) == "");
    CHECK(run.out.at("lse").size() == B * H * T);
    for (const Expectation& e : attention().expect(run)) {
      CHECK(judge(e, run.out.at(e.output)).ok());
    }
  }
}

TEST_CASE("a wrong element is placed in its batch, head and q block") {
  Run run;
  run.origin = "test", run.op = "attention";
  run.set = {{"scale", 1}, {"layout", "BTHD"}};
  const std::vector<Index> shape{2, 300, 3, 2};
  for (const char* name : {"q", "k", "v"}) {
    run.in[name] = Array(DType::kF32, shape);
    float next = 0.5f;
    for (float& v : run.in[name].mutable_elements<float>()) v = next = 3.7f * next * (1 - next);
  }
  run.out = attention().compute(run);
  const Index at = ((1 * 300 + 260) * 3 + 2) * 2;
  run.out["o"].mutable_elements<float>()[static_cast<std::size_t>(at)] += 1;
  for (const Expectation& e : attention().expect(run)) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    if (e.output == "lse") {
      CHECK(verdict.ok());
      continue;
    }
    CHECK(verdict.wrong == 1);
    CHECK(verdict.worst.step == "batch=1, iq=2, head=2, e=0, ik=0..2");
  }
}

TEST_CASE("a window that is as good as none has faults as one that reaches all keys") {
  Run run;
  run.origin = "test", run.op = "attention";
  run.set = {{"scale", 1}, {"window", {std::numeric_limits<Index>::max(), 2}}};
  run.in["q"] = Array(DType::kF32, std::vector<Index>{1, 1, 3, 2});
  run.in["k"] = run.in["v"] = Array(DType::kF32, std::vector<Index>{1, 1, 5, 2});
  const Sight sight = right_attention(read_attention(run)).sight;
  CHECK(sight.left == 3 + 5);
  CHECK(sight.right == 2);
}

TEST_CASE("scores past the range of f32 may become NaN") {
  Run run;
  run.origin = "test", run.op = "attention";
  run.set["scale"] = 1e-38;
  run.in["q"] = array<float>({1, 1, 1, 1}, {3e25f});
  run.in["k"] = array<float>({1, 1, 2, 1}, {3e25f, 1});
  run.in["v"] = array<float>({1, 1, 2, 1}, {1, 2});
  run.out["o"] = array<float>({1, 1, 1, 1}, {std::numeric_limits<float>::quiet_NaN()});
  CHECK(judge(attention().expect(run)[0], run.out["o"]).ok());
  run.in["q"] = array<float>({1, 1, 1, 1}, {3});
  CHECK(!judge(attention().expect(run)[0], run.out["o"]).ok());
}

}  // namespace
}  // namespace kref
