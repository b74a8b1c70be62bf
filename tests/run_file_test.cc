// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "golden/array_file.h"
#include "golden/options.h"
#include "golden/run.h"

namespace kref {
namespace {

namespace fs = std::filesystem;

using Metadata = std::map<std::string, std::string>;

fs::path source_root() { return std::getenv("KREF_SOURCE_ROOT"); }

// A file of its own that goes away with the test.
struct TemporaryFile {
  fs::path path;
  explicit TemporaryFile(const char* name)
      : path(fs::temp_directory_path() / (std::to_string(getpid()) + "-" + name)) {}
  ~TemporaryFile() { fs::remove(path); }
};

Array one() {
  Array a(DType::kF32, {});
  a.mutable_elements<float>()[0] = 1.5f;
  return a;
}

// What reading a run file of this metadata and one tensor of this name says.
std::string message(const Metadata& metadata, const std::string& tensor = "in.x") {
  const TemporaryFile file("message.safetensors");
  const Array array = one();
  write_safetensors(file.path, std::vector<NamedArray>{{tensor, array.ref()}}, metadata);
  try {
    read_run(file.path);
  } catch (const Error& e) {
    const std::string text = e.what(), path = file.path;
    REQUIRE(text.find('\n') == std::string::npos);
    REQUIRE(text.starts_with(path + ": "));
    return text.substr(path.size() + 2);
  }
  return "read";
}

bool same(const Array& a, const Array& b) {
  return to_string(a) == to_string(b) &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

TEST_CASE("every run file reads, and writes back as the same run") {
  const TemporaryFile copy("round.safetensors");
  int files = 0;
  for (const char* folder : {"tests/runs", "tests/runs/sharded", "tests/runs/refuse"}) {
    for (const auto& entry : fs::directory_iterator(source_root() / folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      CAPTURE(entry.path());
      const Run run = read_run(entry.path());
      write_run(copy.path, run);
      const Run again = read_run(copy.path);
      CHECK(again.op == run.op);
      CHECK(again.set == run.set);
      CHECK(again.metadata.at("source") == run.metadata.at("source"));
      CHECK(again.mesh.has_value() == run.mesh.has_value());
      if (run.mesh) CHECK(to_string(*again.mesh) == run.metadata.at("mesh"));
      for (const char* key : {"in_specs", "out_specs"}) {
        const auto at = run.metadata.find(key);
        if (at == run.metadata.end()) continue;
        CHECK(nlohmann::json::parse(again.metadata.at(key)) == nlohmann::json::parse(at->second));
      }
      REQUIRE(again.in.size() == run.in.size());
      REQUIRE(again.out.size() == run.out.size());
      for (const auto& [name, array] : run.in) CHECK(same(array, again.in.at(name)));
      for (const auto& [name, array] : run.out) CHECK(same(array, again.out.at(name)));
      ++files;
    }
  }
  CHECK(files >= 90);
}

TEST_CASE("metadata: unknown keys are kept, an absent set is empty") {
  const TemporaryFile file("kept.safetensors"), again("kept2.safetensors");
  const Array array = one();
  write_safetensors(file.path, std::vector<NamedArray>{{"out.ct.z", array.ref()}},
                    {{"kref", "1"}, {"op", "matmul.vjp"}, {"ticket", "b/12"}});
  const Run run = read_run(file.path);
  CHECK(run.set == nlohmann::json::object());
  CHECK(run.out.at("ct.z").elements<float>()[0] == 1.5f);
  write_run(again.path, run);
  CHECK(read_run(again.path).metadata.at("ticket") == "b/12");
}

TEST_CASE("metadata: specs in every form") {
  const TemporaryFile file("specs.safetensors");
  const Array array = one();
  write_safetensors(file.path, std::vector<NamedArray>{{"in.x", array.ref()}},
                    {{"kref", "1"},
                     {"op", "matmul"},
                     {"mesh", "X=2,Y=4"},
                     {"in_specs", R"({"x": ["X", null, ["Y", "Z"]], "y": [[]]})"},
                     {"out_specs", R"({"z": {"spec": [null], "unreduced": ["Y"]}})"}});
  const Run run = read_run(file.path);
  CHECK(run.in_specs.at("x") == P{"X", none, axes("Y", "Z")});
  CHECK(run.in_specs.at("x").entries.size() == 3);
  CHECK(run.in_specs.at("y") == P{});
  CHECK(run.out_specs.at("z").unreduced == std::vector<std::string>{"Y"});
  CHECK(run.out_specs.at("z").spec.entries.size() == 1);
}

TEST_CASE("what runs.md does not allow is refused by name") {
  const Metadata good = {{"kref", "1"}, {"op", "matmul"}};
  const auto with = [&](const char* key, const char* value) {
    Metadata m = good;
    m[key] = value;
    return message(m);
  };
  CHECK(message(good) == "read");
  CHECK(message({{"op", "matmul"}}) == "not a run file: no metadata key 'kref', expected '1'");
  CHECK(with("kref", "2") == "run file version is '2', expected '1'");
  CHECK(with("op", "").starts_with("no metadata key 'op'"));
  CHECK(message({{"kref", "1"}}).starts_with("no metadata key 'op'"));
  CHECK(with("set", "[1]") == "metadata set is [1], expected a JSON object");
  CHECK(with("set", "{").starts_with("metadata set"));
  CHECK(with("set", R"({"a": 1, "a": 2})").find("metadata set") == 0);
  CHECK(with("mesh", "X=0").find("X") != std::string::npos);
  CHECK(with("mesh", "X").find("mesh") != std::string::npos);
  CHECK(with("in_specs", R"({"x": "X"})").starts_with("in_specs 'x' is \"X\", expected a list"));
  CHECK(with("in_specs", R"({"x": [1]})").starts_with("in_specs 'x' holds 1, expected null"));
  CHECK(with("in_specs", R"({"x": [["X", null]]})")
            .starts_with("in_specs 'x' holds null, expected the name"));
  CHECK(with("in_specs", R"({"x": {"spec": []}})").starts_with("in_specs 'x' is {"));
  CHECK(with("out_specs", R"({"z": {"unreduced": "Y"}})")
            .starts_with("out_specs 'z' unreduced is \"Y\""));
  CHECK(with("out_specs", R"({"z": {"reduced": []}})")
            .starts_with("out_specs 'z' has an unknown key 'reduced'"));
  CHECK(with("out_specs", "null") == "metadata out_specs is null, expected a JSON object");
  CHECK(message(good, "x") == "unknown tensor 'x', expected in.NAME or out.NAME");
  CHECK(message(good, "in.") == "unknown tensor 'in.', expected in.NAME or out.NAME");
}

TEST_CASE("a run file is safetensors") {
  const TemporaryFile file("array.npy");
  const Array array = one();
  write_npy(file.path, array);
  CHECK_THROWS_WITH_AS(read_run(file.path), doctest::Contains("not a run file: it is .npy"), Error);
  CHECK_THROWS_AS(read_run(source_root()), Error);
  CHECK_THROWS_AS(read_run("no such file"), Error);
}

TEST_CASE("options: values, fallbacks, refusals") {
  Run run;
  run.origin = "r";
  run.op = "op";
  run.set = nlohmann::json::parse(
      R"({"flag": true, "word": "b", "two": 2, "x": 0.5, "type": "bfloat16", "sizes": [1, 2],
          "zero": [0, 1], "wide": [1, 18446744073709551615], "null": null})");
  const Options o(run);
  CHECK(o.flag("flag", false));
  CHECK(o.flag("absent", true));
  CHECK(o.choice("word", "a", {"a", "b"}) == "b");
  CHECK(o.choice("absent", "a", {"a", "b"}) == "a");
  CHECK(*o.number("x") == 0.5);
  CHECK(*o.number("two") == 2);
  CHECK_FALSE(o.number("null"));
  CHECK(*o.dtype("type", {DType::kBF16}) == DType::kBF16);
  CHECK(*o.sizes("sizes", 2) == std::vector<Index>{1, 2});
  CHECK_FALSE(o.sizes("absent", 2));
  CHECK_THROWS_WITH_AS(o.flag("word", true), "r: op: option word is \"b\", expected true or false",
                       Error);
  CHECK_THROWS_WITH_AS(o.choice("two", "2", {"e", "2"}),
                       "r: op: option two is 2, expected one of \"e\", \"2\"", Error);
  CHECK_THROWS_WITH_AS(o.choice("absent", nullptr, {"a"}),
                       "r: op: option absent is missing, expected one of \"a\"", Error);
  CHECK_THROWS_WITH_AS(o.required_number("absent"),
                       "r: op: option absent is missing, expected a number (it has no default)",
                       Error);
  CHECK_THROWS_WITH_AS(o.number("flag"), "r: op: option flag is true, expected a number", Error);
  CHECK_THROWS_WITH_AS(
      o.dtype("type", {DType::kF32, DType::kF64}),
      "r: op: option type is \"bfloat16\", expected an element type among \"F32\", \"F64\"", Error);
  for (const char* name : {"zero", "wide", "x", "word"}) {
    CHECK_THROWS_WITH_AS(o.sizes(name, 2), doctest::Contains("expected a list of 2 integers"),
                         Error);
  }
  CHECK_THROWS_AS(o.sizes("sizes", 3), Error);
}

}  // namespace
}  // namespace kref
