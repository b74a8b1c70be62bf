// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "golden/judge.h"

namespace kref {
namespace {

namespace fs = std::filesystem;

fs::path runs() { return fs::path(std::getenv("KREF_SOURCE_ROOT")) / "tests/runs"; }

const Operation& operation() { return find_operation("matmul"); }

Array array(DType type, std::vector<Index> shape) { return Array(type, shape); }

Run run_of(Array x, Array y, nlohmann::json set = nlohmann::json::object()) {
  Run run;
  run.origin = "test";
  run.op = "matmul";
  run.set = std::move(set);
  run.in.emplace("x", std::move(x));
  run.in.emplace("y", std::move(y));
  return run;
}

std::string refusal(const Run& run, bool with_outputs = false) {
  try {
    operation().validate(run, with_outputs);
  } catch (const Error& e) {
    REQUIRE(std::string(e.what()).starts_with(run.origin + ": matmul: "));
    return std::string(e.what()).substr(run.origin.size() + 10);
  }
  return "accepted";
}

TEST_CASE("what cannot be a matmul is refused by name") {
  const auto f32 = [](std::vector<Index> s) { return array(DType::kF32, std::move(s)); };
  const Array x = f32({4, 6}), y = f32({6, 5});
  const auto with = [&](const char* set) {
    return refusal(run_of(x, y, nlohmann::json::parse(set)));
  };
  CHECK(refusal(run_of(x, y)) == "accepted");
  CHECK(refusal(run_of(f32({6}), y)) == "in.x is F32[6], expected rank 2 or more");
  CHECK(refusal(run_of(x, f32({6}))) == "in.y is F32[6], expected rank 2 or the rank of x, 2");
  CHECK(refusal(run_of(x, f32({5, 6}))) ==
        "in.x F32[4,6] has the contracting axis k = 6, in.y F32[5,6] has k = 5");
  CHECK(
      with(R"({"trans_x": true})") ==
      "in.x F32[4,6] (stored transposed) has the contracting axis k = 4, in.y F32[6,5] has k = 6");
  CHECK(refusal(run_of(f32({2, 4, 6}), f32({3, 6, 5}))) ==
        "in.x F32[2,4,6] has 2 along batch axis 0, in.y F32[3,6,5] has 3");
  CHECK(refusal(run_of(f32({2, 3, 4, 6}), f32({3, 6, 5}))) ==
        "in.y is F32[3,6,5], expected rank 2 or the rank of x, 4");
  CHECK(refusal(run_of(x, f32({1, 6, 5}))) ==
        "in.y is F32[1,6,5], expected rank 2 or the rank of x, 2");
  CHECK(refusal(run_of(x, array(DType::kBF16, {6, 5}))) ==
        "in.y has element type BF16, expected that of in.x, F32");
  for (const DType type : {DType::kBool, DType::kI64, DType::kI32, DType::kI16, DType::kU32}) {
    CHECK(refusal(run_of(array(type, {4, 6}), array(type, {6, 5})))
              .starts_with(std::string("in.x has element type ") + name_of(type)));
  }
  CHECK(with(R"({"precision": "tf32"})")
            .starts_with("option precision is \"tf32\", expected one of"));
  CHECK(with(R"({"precison": "f32"})").ends_with("did you mean 'precision'?"));
  CHECK(with(R"({"tile": [8, 8]})")
            .starts_with("option tile is [8,8], expected a list of 3 integers"));
  CHECK(with(R"({"tile": [8, -1, 8]})").starts_with("option tile"));
  CHECK(with(R"({"tile": [8, 8.0, 8]})").starts_with("option tile"));
  CHECK(with(R"({"out_dtype": "I32"})").starts_with("option out_dtype is \"I32\""));
  CHECK(with(R"({"out_dtype": "BF16"})") == "accepted");
  CHECK(with(R"({"out_dtype": "BF16\u0000"})").starts_with("option out_dtype is \"BF16\\u0000\""));
  CHECK(with(R"({"precision": "bf16\u0000"})").starts_with("option precision is"));

  const Array b = array(DType::kBF16, {4, 4}), i = array(DType::kI8, {4, 4}),
              f8 = array(DType::kF8E5M2, {4, 4});
  CHECK(refusal(run_of(b, b, {{"precision", "f32"}})) ==
        "option precision is for F32 inputs only, in.x is BF16");
  CHECK(refusal(run_of(f8, f8)) == "option out_dtype is missing; F8_E5M2 inputs require it");
  CHECK(refusal(run_of(f8, f8, {{"out_dtype", "F8_E5M2"}})) == "accepted");
  CHECK(refusal(run_of(i, i, {{"out_dtype", "F32"}})).starts_with("option out_dtype is \"F32\""));
  CHECK(refusal(run_of(i, i, {{"out_dtype", "I32"}})) == "accepted");

  Run run = run_of(x, y);
  CHECK(refusal(run, true) == "tensor out.z [*B M N] is missing");
  run.out.emplace("z", f32({5, 4}));
  CHECK(refusal(run, true) == "out.z has shape [5,4], expected [4,5]");
  run.out["z"] = array(DType::kF16, {4, 5});
  CHECK(refusal(run, true) ==
        "out.z has element type F16, expected F32, that of in.x; option out_dtype is not given: "
        "out_dtype=F16 if z is meant to be so");
  run.set["out_dtype"] = "BF16";
  CHECK(refusal(run, true) == "out.z has element type F16, expected BF16");
  run.set.erase("out_dtype");
  run.out["z"] = array(DType::kI32, {4, 5});
  CHECK(refusal(run, true) == "out.z has element type I32, expected F32");
  run.out["z"] = f32({4, 5});
  CHECK(refusal(run, true) == "accepted");
  run.out.emplace("w", f32({4, 5}));
  CHECK(refusal(run, true) == "unknown tensor 'out.w'; known: out.z; did you mean 'out.z'?");
  run.out.erase("w");
  run.in.erase("y");
  CHECK(refusal(run, true) == "tensor in.y [*B K N] is missing");
}

TEST_CASE("every run of refuse/ is refused in one line") {
  int files = 0;
  for (const char* folder : {"refuse", "sharded/refuse"}) {
    for (const auto& entry : fs::directory_iterator(runs() / folder)) {
      const Run run = read_run(entry.path());
      CAPTURE(run.metadata.at("expect"));
      CHECK(refusal(run, true).find('\n') == std::string::npos);
      CHECK(refusal(run, true) != "accepted");
      ++files;
    }
  }
  CHECK(files >= 21);
}

// The runs of a folder: each is right as recorded and right as computed here; zeros are right for
// at most `most_zeros` of them (those that are zero, empty, subnormal, or cancel to nothing).
void judge_folder(const fs::path& folder, int least, int most_zeros) {
  int files = 0, zeros_pass = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path().filename());
    Run run = read_run(entry.path());
    operation().validate(run, true);
    const std::vector<Expectation> expected = operation().expect(run);
    REQUIRE(expected.size() == 1);
    REQUIRE(expected[0].output == "z");
    const Array& recorded = run.out.at("z");
    CHECK_MESSAGE(judge(expected[0], recorded).ok(), report(judge(expected[0], recorded)));

    const Array computed = operation().compute(run).at("z");
    CHECK(to_string(computed) == to_string(recorded));
    CHECK_MESSAGE(judge(expected[0], computed).ok(), report(judge(expected[0], computed)));

    zeros_pass += judge(expected[0], Array(recorded.dtype(), recorded.shape())).ok() ? 1 : 0;
    ++files;
  }
  CHECK(files >= least);
  CHECK(zeros_pass <= most_zeros);
}

TEST_CASE("the runs of a TPU kernel author are judged right") { judge_folder(runs(), 60, 9); }

TEST_CASE("the sharded runs are judged right") { judge_folder(runs() / "sharded", 19, 0); }

// The verdict on a sharded run whose output has one element replaced by `value`.
Verdict verdict_with(const char* file, Index element, double value) {
  const Run run = read_run(runs() / "sharded" / file);
  const Array& recorded = run.out.at("z");
  Array wrong(recorded.dtype(), recorded.shape());
  with_dtype(wrong.dtype(), [&]<class T>() {
    const auto to = wrong.mutable_elements<T>();
    std::copy_n(static_cast<const T*>(recorded.data()), to.size(), to.begin());
    to[static_cast<std::size_t>(element)] = static_cast<T>(value);
  });
  return judge(operation().expect(run).at(0), wrong);
}

TEST_CASE("a wrong element of a sharded run is traced to its device and that device's tile") {
  // z (16, 32) over X=2, Y=4: shards of (8, 8).
  const Verdict cut = verdict_with("matmul-01-X2Y4-s8.safetensors", 9 * 32 + 17, 1e6);
  CHECK(cut.wrong == 1);
  CHECK(cut.worst.index == std::vector<Index>{9, 17});
  CHECK(cut.worst.device == "(X=1, Y=2)");
  CHECK(cut.worst.tile == std::vector<Index>{0, 0});
  // One partial sum of (8, 12) a device; the third one is wrong.
  const Verdict partial = verdict_with("matmul-12-Y4-f32.safetensors", 2 * 96 + 5, 1e6);
  CHECK(partial.wrong == 1);
  CHECK(partial.worst.index == std::vector<Index>{2, 0, 5});
  CHECK(partial.worst.device == "(Y=2)");
  CHECK(partial.worst.tile == std::vector<Index>{0, 0});
  CHECK(partial.tile_axes == std::vector<std::string>{"i", "j"});
  CHECK(partial.tiles == 4);
}

TEST_CASE("the tile of a run is its option, or that of what one device multiplies") {
  const Run given = read_run(runs() / "m03-primes-tiles.safetensors");
  CHECK(read_matmul(given).tile == std::array<Index, 3>{8, 8, 8});
  const Run sharded = read_run(runs() / "sharded" / "matmul-09-Y4-f32.safetensors");
  CHECK(read_matmul(sharded).tile == std::array<Index, 3>{8, 12, 8});  // K = 32 over Y=4
}

}  // namespace
}  // namespace kref
