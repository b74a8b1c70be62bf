// SPDX-License-Identifier: Apache-2.0
// Trace: what a run moved between arrays and windows, counted as the Pallas contract has it: one
// core, steps in order, whatever the threads did and whether a block was copied or viewed in place.
#pragma once

#include <string>
#include <vector>

#include "dsl/ref.h"

namespace kref {

// What one operand moved. Scratch moves nothing and has no entry.
struct OperandTrace {
  std::string name;
  Index fetches = 0;      // in, in_out: times the block changed, the first included
  Index write_backs = 0;  // out, in_out: times a block was left, the end included
  Index bytes = 0;        // of elements inside the array, both directions
};

struct Trace {
  Index steps = 0;
  std::vector<OperandTrace> operands;  // in, out and in_out, in the order of their declaration
  // The entry of that name; Error when there is none.
  const OperandTrace& operator[](const char* name) const;
};

}  // namespace kref
