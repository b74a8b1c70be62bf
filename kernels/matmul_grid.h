// SPDX-License-Identifier: Apache-2.0
// The grid of matmul, between its checks and its instantiations.
#pragma once

#include "kernels/matmul.h"

namespace kref::detail {

// x [B, M, K], y [B or 1, K, N], z [B, M, N] as stored, checked; K > 0, tile sizes positive.
void matmul_grid(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
                 const MatmulOptions& options);

}  // namespace kref::detail
