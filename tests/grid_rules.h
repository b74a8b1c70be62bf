// SPDX-License-Identifier: Apache-2.0
// The rules of the DSL as programs that break them; see grid_errors_test.cc.
#pragma once

#include <span>
#include <vector>

namespace kref {

struct Rule {
  const char* chapter;
  const char* breaks;                 // what the program does wrong
  std::vector<const char*> contains;  // parts of the message
  void (*break_it)();
};

std::span<const Rule> declaration_rules();
std::span<const Rule> block_rules();
std::span<const Rule> memory_rules();
std::span<const Rule> step_rules();
std::span<const Rule> check_rules();

}  // namespace kref
