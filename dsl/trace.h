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
  Index fetches = 0;      // in, in_out: times the block changed, the first included; of a table: 1
                          // where there are steps; of an out with Revisit::kAny: times it came back
  Index write_backs = 0;  // out, in_out: times a block was left, the end included
  Index bytes = 0;        // of elements inside the array, both directions
};

// A step of a checked run, and the core that a chip with CheckOptions::cores of them runs it on.
struct GridPoint {
  Index core = 0, step = 0;
};

// Something that the TPU compiler would refuse, or that costs memory there: what rule, and a
// sentence that names grid and operand.
struct TpuWarning {
  std::string rule;  // "rank", "no grid", "rank 1", "tile", "element", "padding", "vmem", "smem"
  std::string text;
};

struct Trace {
  Index steps = 0;
  std::vector<OperandTrace> operands;  // in, out and in_out, in the order of their declaration
  std::vector<TpuWarning> warnings;    // of check: Grid::tpu_report of its chip
  std::vector<GridPoint> order;        // of check with CheckOptions::cores: that of its second pass
  // The entry of that name; Error when there is none.
  const OperandTrace& operator[](const char* name) const;
};

}  // namespace kref
