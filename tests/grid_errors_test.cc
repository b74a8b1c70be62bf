// SPDX-License-Identifier: Apache-2.0
// One tiny grid for each rule of the DSL, which breaks it, and what the message must contain.
// `grid_errors_test -tc="*every message*"` prints them all as a list.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "tests/grid_rules.h"
#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("every message: each rule is refused and named") {
  const char* chapter = "";
  for (const std::span<const Rule> rules :
       {declaration_rules(), block_rules(), memory_rules(), step_rules(), check_rules()}) {
    for (const Rule& rule : rules) {
      CAPTURE(rule.breaks);
      const std::string message = refusal(rule.break_it);
      if (std::string(chapter) != rule.chapter) std::printf("\n%s\n", chapter = rule.chapter);
      std::printf("- %s\n    %s\n", rule.breaks, message.c_str());
      for (const char* part : rule.contains) {
        CAPTURE(part);
        CHECK_MESSAGE(message.find(part) != std::string::npos, message);
      }
    }
  }
}

}  // namespace
}  // namespace kref
