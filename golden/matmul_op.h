// SPDX-License-Identifier: Apache-2.0
// The matmul operation of run files (spec/runs.md section 3): its declaration and its rules.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "golden/operation.h"
#include "kernels/dot.h"
#include "sharding/matmul_placement.h"

namespace kref {

// The declaration that operations() lists.
Operation matmul_operation();

// What a matmul run asks for, out of its tensors and options.
struct MatmulRun {
  bool trans_x = false, trans_y = false;
  Precision precision = Precision::kF32;  // of F32 inputs
  DType out_dtype = DType::kF32;
  // m, n, k of a grid step: the option, else kref's choice for what one device multiplies.
  std::array<Index, 3> tile{};
  std::vector<Index> batch;  // leading dimensions of x and z; y may have none
  Index m = 0, n = 0, k = 0;
  bool shared_y = false;                     // y is [K, N], whatever the batch
  std::optional<MatmulPlacement> placement;  // with a mesh: the case and its steps

  // Of z: [*batch, m, n], behind a leading dimension for each unreduced axis.
  std::vector<Index> z_shape() const;
};

// Reads and checks everything but the outputs. Error that names what is wrong.
MatmulRun read_matmul(const Run& run);

// Refuses an out.z of another element type or shape than the run asks for.
void check_matmul_output(const Run& run, const MatmulRun& matmul);

}  // namespace kref
