// SPDX-License-Identifier: Apache-2.0
// Partial results whose types and shapes fit their run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "golden/partial.h"

namespace kref {

// Views the arrays of a PartialStates. Either values is o, and m and l are null, or it is acc, and
// they are not.
struct CheckedStates {
  Index count = 0, block = 0;  // N, keys a block
  bool assumed = false;        // block is S / N, since none was given
  const Array* values = nullptr;
  const Array *lse = nullptr, *m = nullptr, *l = nullptr;
};

// inputs: names and dimensions of those that o and lse take their sizes from; keys: S. Error that
// names the array, its dimension, what was expected and what was found.
CheckedStates check_states(const Run& run, const PartialStates& states, Index keys,
                           const std::vector<std::pair<std::string, std::string>>& inputs,
                           const std::string& o_dims, const std::string& lse_dims);

}  // namespace kref
