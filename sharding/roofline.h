// SPDX-License-Identifier: Apache-2.0
// What one chip takes for a product or an attention, unit by unit (sharding_semantics 6.1, 6.4):
// the time is at least that of the slowest unit and at most the sum of all.
#pragma once

#include <string>

#include "dsl/dtype.h"
#include "dsl/grid_cost.h"
#include "sharding/chip.h"

namespace kref {

// Seconds of each unit of a chip.
struct Roofline {
  double flops = 0;            // operations; a multiply-add counts 2
  double transcendentals = 0;  // exp, tanh, ..: of the vector units, not among the flops
  double hbm_bytes = 0;        // to and from HBM
  double compute = 0;          // the matrix units, or the vector units where they take longer
  double hbm = 0;              // moving blocks between HBM and VMEM
  double vmem = 0;             // reading and writing blocks in VMEM
  double scalar = 0;           // the scalar unit: index maps of the grid
  Index steps = 0;             // of the grid
  Index index_operations = 0;  // of the scalar unit, over all steps

  // When all units work at the same time; and one after the other.
  double lower() const;
  double upper() const { return compute + hbm + vmem + scalar; }
  // The unit that lower() is the time of: "compute", "hbm", "vmem", "scalar".
  const char* bound_by() const;
  // Operations a byte of HBM.
  double intensity() const { return flops / hbm_bytes; }

  Roofline& operator+=(const Roofline& other);
};

// One product, or a batch of them: z [m, n] = x [m, k] y [k, n].
struct MatmulCost {
  double m = 0, n = 0, k = 0;
  double batch = 1;
  bool shared_y = false;  // one y for the batch
  bool adds = false;      // to a z that is read first
  DType x = DType::kBF16, y = DType::kBF16, z = DType::kBF16;
  // The MXU multiplies in this type: y of s8 with x of bf16 is converted first. An f32 product is
  // `passes` of bf16.
  DType compute = DType::kBF16;
  int passes = 1;
  // Blocks of the grid; 0: the whole dimension. x is fetched again for each block of columns and y
  // for each block of rows. Without any tile: each array moves once, no VMEM nor scalar time.
  double tile_m = 0, tile_n = 0, tile_k = 0;
};

// Error for sizes and tiles that are negative, and for a type that the chip does not multiply.
Roofline matmul_roofline(const Chip& chip, const MatmulCost& cost);

// Attention between projections: scores and their product with v. Or its gradients, which form the
// scores again from the lse of the forward pass: s and dp = do v^T, then dv, dq and dk.
struct AttentionCost {
  double batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0;
  double depth = 0, width = 0;  // of a head of q and k; of v
  DType type = DType::kBF16;    // of q and o
  DType kv_type = DType::kBF16;
  // Of the scores that are visible: 1, or a half under a causal mask that skips blocks.
  double visible = 1;
  double other_bytes = 0;  // of HBM, once: a bias, a mask
  // Rows of a q block, keys of a block; 0: k and v move once, no VMEM nor scalar time.
  double query_block = 0, key_block = 0;
  bool soft_cap = false;       // a tanh beside the exp of each score
  bool backward = false;       // the gradients; without blocks
  bool bias_gradient = false;  // of backward: a second pass, which forms s and dp once more
};

// q, o and what else there is once; k and v once for all query heads that share them, or with
// blocks once a q block. Backward: q, k, v, o, do, dq, dk and dv once, and of each row its lse in
// f32; q, k, v, do and lse again for the gradient of the bias (which is other_bytes). Each visible
// score takes an exp. Error as matmul_roofline, and for blocks of a backward pass.
Roofline attention_roofline(const Chip& chip, const AttentionCost& cost);

// A grid of the DSL, by what Grid::cost counted with its body. Products are of that type, f32 ones
// in `passes` of bf16; what else the body computes is the vector units', a transcendental as one
// operation, and counts as computing where it takes longer. Error as operation_rate.
Roofline grid_roofline(const Chip& chip, const GridCost& cost, DType compute = DType::kBF16,
                       int passes = 1);

// Operations a byte of the two, without the weights' projections (bf16): T G / (G + 1) for S = T
// queries, S G / (S + G) for one.
double attention_intensity(double queries, double keys, double group);

}  // namespace kref
