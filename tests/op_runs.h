// SPDX-License-Identifier: Apache-2.0
// Recorded runs of an operation and what the judge says of them, for tests of operations.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "golden/judge.h"
#include "golden/operation.h"

namespace kref {

// The run files in a folder, sorted.
inline std::vector<std::string> run_files(const std::string& where) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(where)) {
    if (entry.path().extension() == ".safetensors") out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The message with which the operation refuses the run, "" when it does not.
inline std::string refusal_of(const Operation& operation, const Run& run, bool with_outputs) {
  try {
    operation.validate(run, with_outputs);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

inline void check_has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  CHECK(text.find(part) != std::string::npos);
}

// Every output of a legal run is there and right by either bound; gives what was expected.
inline std::vector<Expectation> check_right(const Operation& operation, const Run& run) {
  REQUIRE(refusal_of(operation, run, true) == "");
  const std::vector<Expectation> expected = operation.expect(run);
  REQUIRE(expected.size() == run.out.size());
  for (const Expectation& e : expected) {
    CAPTURE(e.output);
    for (const BoundKind kind : {BoundKind::kLikely, BoundKind::kWorst}) {
      const Verdict verdict = judge(e, run.out.at(e.output), kind);
      CAPTURE(report(verdict));
      CHECK(verdict.ok());
    }
  }
  return expected;
}

// What surely holds is no tighter than what is likely.
inline void check_bounds(const Expectation& e) {
  CAPTURE(e.output);
  for (std::size_t i = 0; i < e.value.size(); ++i) {
    if (!(e.likely[i] >= 0 && e.likely[i] <= e.worst[i])) FAIL("bounds of element ", i);
  }
}

}  // namespace kref
