// SPDX-License-Identifier: Apache-2.0
// The decode_attention operation on run files: what published implementations computed is right and
// so is what kref computes, caches are compared exactly, what runs.md forbids is refused by name.
#include "golden/decode_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/op_runs.h"

namespace kref {
namespace {

std::string folder() { return std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/decode"; }

const Operation& decode() { return find_operation("decode_attention"); }

Run good(const char* name) { return read_run(folder() + "/" + name + ".safetensors"); }

std::string refusal(const Run& run, bool with_outputs = true) {
  return refusal_of(decode(), run, with_outputs);
}

TEST_CASE("what jax and the paged kernels computed is right") {
  const std::vector<std::string> paths = run_files(folder());
  CHECK(paths.size() >= 22);
  for (const std::string& path : paths) {
    CAPTURE(path);
    check_right(decode(), read_run(path));
  }
}

TEST_CASE("what kref computes is right, in every file's types, on a mesh too") {
  for (const std::string& path : run_files(folder())) {
    CAPTURE(path);
    Run run = read_run(path);
    run.out = decode().compute(run);
    check_right(decode(), run);
  }
}

TEST_CASE("a cache is compared exactly, and on a mesh the device is named") {
  Run run = good("d020-mesh-4-new");  // X=4, caches [4, 12, 4, 8]
  Array cache(DType::kF32, run.out.at("k_cache").shape());
  const auto from = run.out.at("k_cache").elements<float>();
  std::copy(from.begin(), from.end(), cache.mutable_elements<float>().begin());
  const std::size_t at = ((2 * 12 + 0) * 4 + 1) * 8 + 3;  // every sequence has a slot 0
  cache.mutable_elements<float>()[at] = std::nextafter(from[at], 100.0f);
  run.out["k_cache"] = cache;
  for (const Expectation& e : decode().expect(run)) {
    const Verdict verdict = judge(e, run.out.at(e.output));
    CAPTURE(e.output);
    if (e.output != "k_cache") {
      CHECK(verdict.ok());
      continue;
    }
    CHECK(verdict.wrong == 1);
    CHECK(verdict.worst.element == static_cast<Index>(at));
    check_has(verdict.worst.device, "X=2");
  }
}

TEST_CASE("a missing key, and one too many, is found") {
  for (const char* name : {"d002-lengths", "d005-gqa-rpa", "d018-mesh-4"}) {
    const Run run = good(name);
    for (const int off : {-1, 1}) {
      Run wrong = run;
      Array lengths(DType::kI32, run.in.at("lengths").shape());
      bool changed = false;
      for (std::size_t b = 0; b < static_cast<std::size_t>(lengths.size()); ++b) {
        const std::int32_t was = run.in.at("lengths").elements<std::int32_t>()[b];
        const bool fits = was + off > 0 && was + off <= run.in.at("k_cache").extent(1);
        lengths.mutable_elements<std::int32_t>()[b] = fits ? was + off : was;
        changed = changed || fits;
      }
      REQUIRE(changed);
      wrong.in["lengths"] = lengths;
      wrong.out = decode().compute(wrong);
      wrong.in["lengths"] = run.in.at("lengths");
      const Expectation expected = decode().expect(wrong).at(0);
      CAPTURE(name);
      CAPTURE(off);
      CHECK(!judge(expected, wrong.out.at("o")).ok());
    }
  }
}

TEST_CASE("files that break a rule are refused by name") {
  const std::pair<const char*, const char*> rules[] = {
      {"batch_is_not_divisible_by_x", "size 4 is not divisible by the 3 devices of axis X"},
      {"in_v_new_is_missing", "in.v_new is missing; in.k_new needs it"},
      {"lengths_exceed_s", "in.lengths[1] is 7, expected 0 to S = 6"},
      {"missing_in_lengths", "tensor in.lengths [B] is missing"},
      {"negative_length", "in.lengths[2] is -1, expected 0 to S = 6"},
      {"o_must_leave_with_the_spec_of_q", "out_specs.o is P('X'), expected P(None, 'X')"},
      {"q_and_the_caches_must_use_one_axis", "in_specs.k_cache is P('X'), expected P('Y')"},
      {"unknown_mesh_axis", "names axis 'Z' in dimension 0, which is not in the mesh X=2"},
      {"unknown_option_causal", "unknown option 'causal'"},
  };
  CHECK(run_files(folder() + "/refuse").size() == std::size(rules));
  for (const auto& [name, part] : rules) {
    const std::string path = folder() + "/refuse/" + name + ".safetensors";
    const std::string message = refusal(read_run(path));
    check_has(message, path + ": decode_attention: ");
    check_has(message, part);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("what no file shows is refused too") {
  const Run fresh = good("d011-new"), plain = good("d001-full"), mesh = good("d017-mesh-2");
  Run run = fresh;
  Array zero(DType::kI32, fresh.in.at("lengths").shape());
  run.in["lengths"] = zero;
  check_has(refusal(run), "in.lengths[0] is 0, but in.k_new is given");
  run = fresh;
  run.out.erase("v_cache");
  check_has(refusal(run), "out.v_cache is missing: in.k_new is given");
  run = plain;
  run.out["k_cache"] = run.in["k_cache"];
  check_has(refusal(run), "out.k_cache is given without in.k_new");
  run = plain;
  run.in["lengths"] = Array(DType::kI32, plain.in.at("lengths").shape());
  run.set["fully_masked"] = "uniform";
  check_has(refusal(run), "in.lengths[0] is 0, which leaves no key to average");
  run = plain;
  run.in["v_cache"] = Array(DType::kBF16, plain.in.at("v_cache").shape());
  check_has(refusal(run), "in.v_cache has element type BF16, expected F32, that of in.q");
  run = mesh;
  run.in_specs["q"] = PartitionSpec();
  check_has(refusal(run), "in_specs.q is P(), expected P(None, AXIS)");
  run = mesh;
  run.out_specs.erase("lse");  // replicated
  CHECK(refusal(run) == "");
  run.out_specs["lse"] = OutSpec{PartitionSpec{"X"}, {}};
  check_has(refusal(run), "out_specs.lse is P('X'), expected P(None, 'X')");
  run = mesh;
  run.in_specs["lengths"] = PartitionSpec{"X"};
  check_has(refusal(run), "in_specs.lengths is P('X'), expected P()");
}

}  // namespace
}  // namespace kref
