// SPDX-License-Identifier: Apache-2.0
// What a matmul gives when its sums stop early: the fault that the judge can simulate.
#pragma once

#include "golden/expectation.h"
#include "golden/matmul_bound.h"

namespace kref {

// "last k block dropped": choice c is that every sum stops after c + 1 of the k products. x, y and
// product as in expect_product, with k > 1 and a tile; the hypothesis keeps views that own them.
Hypothesis last_block_dropped(const Array& x, const Array& y, const Product& product);

// An integer of at most 53 bits taken modulo 2^32 into the range of I32.
double wrapped_i32(double v);

}  // namespace kref
