// SPDX-License-Identifier: Apache-2.0
// GridCost: what a grid takes, as numbers of things done, which a model of a chip turns into time.
#pragma once

#include "dsl/trace.h"

namespace kref {

// Counted over all steps, batches of Grid::vmap included, by the rules of jax's pl.estimate_cost
// where it has one (pallas_semantics 4.8).
struct GridCost {
  Index steps = 0;
  Index flops = 0;             // of the body's verbs: one an element of an elementwise operation,
                               // two a product of a dot
  Index product_flops = 0;     // those of dots alone, which the matrix units do
  Index transcendentals = 0;   // exp, exp2, log, tanh: one an element, and no flop
  Index bytes = 0;             // between arrays and windows: a block whose index stays moves once
  Index index_operations = 0;  // of the scalar unit, as sharding/roofline.h has it: for each step 4
                               // a dimension of each block (value, address, comparison), 1 a block
                               // (a transfer) and 1 an axis
  Index block_bytes = 0;       // that bodies touch in VMEM: for each step every block of an input,
                               // scratch twice; each block of an output once
  Index vmem_bytes = 0;        // windows in all their buffers, and scratch, padded to tiles
  Index smem_bytes = 0;        // tables
  std::vector<OperandTrace> operands;  // what each of them moves
};

}  // namespace kref
