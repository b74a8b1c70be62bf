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

// What a message must begin with: the grid, and the axis or operand in quotes where there is one to
// name. Expressions and settings belong to no grid, a view of a view to no operand.
bool names_its_subject(const Rule& rule) {
  const std::string begin = rule.contains.front(), chapter = rule.chapter;
  if (chapter == "settings") return true;
  if (chapter == "index maps" && begin.starts_with("index map: ")) return true;
  if (!begin.starts_with("grid 'g': ")) return false;
  return begin.find('\'', 10) != std::string::npos || begin.ends_with("without a name") ||
         begin.find("windows and scratch") != std::string::npos ||
         begin.find("Ref::") != std::string::npos;
}

TEST_CASE("every message: each rule is refused and named") {
  const char* chapter = "";
  for (const std::span<const Rule> rules : {declaration_rules(), block_rules(), memory_rules(),
                                            step_rules(), kind_rules(), check_rules()}) {
    for (const Rule& rule : rules) {
      CAPTURE(rule.breaks);
      const std::string message = refusal(rule.break_it);
      if (std::string(chapter) != rule.chapter) std::printf("\n%s\n", chapter = rule.chapter);
      std::printf("- %s\n    %s\n", rule.breaks, message.c_str());
      CHECK_MESSAGE(names_its_subject(rule), message);
      CHECK_MESSAGE(message.starts_with(rule.contains.front()), message);
      for (const char* part : rule.contains) {
        CAPTURE(part);
        CHECK_MESSAGE(message.find(part) != std::string::npos, message);
      }
    }
  }
}

}  // namespace
}  // namespace kref
