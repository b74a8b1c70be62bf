// SPDX-License-Identifier: Apache-2.0
// How many different magnitudes the vectors of a product hold: whether its rounding errors may be
// taken as independent.
#pragma once

#include <vector>

#include "dsl/array.h"

namespace kref {

// The number of different |v| other than 0 in each vector along the contracted dimension of
// x [*B, R, K] (columns: [*B, K, R]), in the order of [*B, R]; at least 1. Counting stops early:
// above 128 the number is K.
std::vector<Index> distinct_magnitudes(const ArrayRef& x, bool columns, Index k);

}  // namespace kref
