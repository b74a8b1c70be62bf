// SPDX-License-Identifier: Apache-2.0
// What the vector code of dot_add is handed: checked sizes, raw pointers, scratch memory.
#pragma once

#include <cstddef>

#include "kernels/dot.h"

namespace kref::detail {

struct DotArgs {
  DType type;
  const void* x;
  Index x_stride;
  bool trans_x;
  const void* y;
  Index y_stride;
  bool trans_y;
  void* acc;
  Index acc_stride;
  Index m, n, k;
  Precision precision;
  bool from_zero;  // the sums start at zero whatever acc holds
};

// Memory of this thread that stays between calls, at least `bytes`, aligned to 64; one for each
// slot, whose earlier contents are lost when it grows. 0: widened rows of x; 1: what the inner loop
// walks through in order, panels of y where it is packed, else the rows of x woven in groups.
void* dot_scratch(int slot, std::size_t bytes);

// One for each accumulator; kernels/dot_*.cc.
void dot_add_f32(const DotArgs& args);
void dot_add_f64(const DotArgs& args);
void dot_add_s32(const DotArgs& args);

}  // namespace kref::detail
