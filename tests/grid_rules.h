// SPDX-License-Identifier: Apache-2.0
// The rules of the DSL as programs that break them; see grid_errors_test.cc.
#pragma once

#include <span>
#include <vector>

#include "dsl/grid.h"

namespace kref {

struct Rule {
  const char* chapter;
  const char* breaks;                 // what the program does wrong
  std::vector<const char*> contains;  // parts of the message
  void (*break_it)();
};

// A body for grids that are refused before it runs, and eight elements for their operands.
inline constexpr auto nothing = [](const Step&) {};
inline Tensor<float, 1>& eight() {
  static Tensor<float, 1> x({8}, 1.0f);
  return x;
}

std::span<const Rule> declaration_rules();
std::span<const Rule> block_rules();
std::span<const Rule> memory_rules();
std::span<const Rule> step_rules();
std::span<const Rule> kind_rules();
std::span<const Rule> check_rules();

}  // namespace kref
