// SPDX-License-Identifier: Apache-2.0
// What a matmul run computes and what it ought to give, on one device or sharded: the part of the
// operation that knows how the sums of a sharded product are cut.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "golden/expectation.h"
#include "golden/matmul_op.h"

namespace kref {

// The outputs of a validated run, by kref's kernel. Where the contracting dimension is sharded on
// both sides, the partial sums are added in the accumulator's type in the order of the devices and
// rounded once: the bits of an honest all-reduce or reduce-scatter.
std::map<std::string, Array> compute_matmul(const Run& run);

// Elements begin .. end - 1 of the contracting dimension of x (k_last unless trans_x) or y (k_last
// when trans_y): a view, nothing is copied.
ArrayRef contraction_view(const ArrayRef& operand, bool k_last, ContractionRange range);

// Several such ranges side by side: a dense copy.
Array contraction_copy(const Array& operand, bool k_last,
                       const std::vector<ContractionRange>& ranges);

}  // namespace kref
