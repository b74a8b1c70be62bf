// SPDX-License-Identifier: Apache-2.0
// What the processor could do at most: the denominators of the benchmark table.
#pragma once

#include "dsl/ref.h"

namespace kref::bench {

// `rounds` rounds of independent f32 fused multiply-adds that never leave the registers; returns
// the number of operations done (2 a lane).
double fma_rounds(Index rounds);

// The same with the widest exact 16-bit multiply-and-add-pairs of the target (pmaddwd and paddd;
// vpdpwssd where there is one): 4 operations a 32-bit lane.
double exact_int8_rounds(Index rounds);

// Name of the SIMD target in use.
const char* simd_target();

}  // namespace kref::bench
