// SPDX-License-Identifier: Apache-2.0
// How many products of bf16 a TPU makes of one product.
#pragma once

#include "kernels/dot.h"

namespace kref {

// Of f32 operands 1, 3 or 6 by the algorithm, F32 being six passes; of all others 1.
constexpr int product_passes(DType type, Precision precision) {
  if (type != DType::kF32) return 1;
  switch (precision) {
    case Precision::kBF16:
      return 1;
    case Precision::kBF16x3:
      return 3;
    default:
      return 6;
  }
}

}  // namespace kref
