// SPDX-License-Identifier: Apache-2.0
// The verbs exp, exp2, log, tanh between their checks and their vector code.
#pragma once

#include "kernels/tile_ops.h"
#include "kernels/tile_plan.h"

namespace kref::detail {

// Side 0 to side 1, both of that float type (kExp, kExp2), F64 excepted (kLog, kTanh).
void transcendental(DType type, Unary op, const Plane& plane);

}  // namespace kref::detail
