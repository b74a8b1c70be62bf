// SPDX-License-Identifier: Apache-2.0
// Every input that a fuzzer found worth keeping, through the reader it was found with: it is read
// or refused, and nothing else happens.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/targets.h"

namespace kref {
namespace {

int run(const char* name, void (*target)(const std::uint8_t*, std::size_t)) {
  int inputs = 0;
  const std::filesystem::path root = std::getenv("KREF_SOURCE_ROOT");
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/fuzz/corpus" / name)) {
    std::ifstream in(entry.path(), std::ios::binary);
    REQUIRE(in);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    target(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    ++inputs;
  }
  return inputs;
}

TEST_CASE("the fuzzers' corpus is read or refused") {
  CHECK(run("npy", fuzz::npy) >= 20);
  CHECK(run("npz", fuzz::npz) >= 20);
  CHECK(run("safetensors", fuzz::safetensors) >= 20);
  CHECK(run("json", fuzz::json) >= 20);
  CHECK(run("metadata", fuzz::metadata) >= 20);
  CHECK(run("specs", fuzz::specs) >= 20);
}

}  // namespace
}  // namespace kref
