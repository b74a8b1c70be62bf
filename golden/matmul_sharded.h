// SPDX-License-Identifier: Apache-2.0
// The expectation of a matmul run on one device or sharded: the bound of the product, cut as the
// placement cuts the sums, with the devices that hold each element.
#pragma once

#include <vector>

#include "golden/expectation.h"
#include "golden/run.h"

namespace kref {

// The expectation of a validated run. Where z is unreduced each leading index is a product of its
// own, over the parts of the contracting dimension that its devices have. Blocks and grid steps are
// those of one device's own grid, in the tile that the run gives, cut at the edge of its part.
std::vector<Expectation> expect_sharded_matmul(const Run& run);

}  // namespace kref
