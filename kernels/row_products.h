// SPDX-License-Identifier: Apache-2.0
// The two products of attention for few rows of queries: k and v are read once, where they lie and
// in their own type, since reading them is what takes the time.
#pragma once

#include "dsl/array.h"

namespace kref::detail {

// A matrix as the vector code sees it; stride in elements.
struct RowsOf {
  const void* data;
  Index stride;
  Index rows, columns;
};

// out (rows, keys) = x (rows, D) k (keys, D)^T. Each element is the sum of sixteen lanes, element d
// in lane d mod 16, fused; lane l takes l + 8, l + 4, l + 2, l + 1. x's rows are followed by zeros
// up to a multiple of 16. k: any float type but F64.
void row_dots(Ref<const float, 2> x, const ArrayRef& k, Ref<float, 2> out);

// acc (rows, E) += p (rows, keys) v (keys, E): a chain along keys ascending, fused, as dot_add.
// acc's rows are followed by room up to a multiple of 16. v: any float type but F64.
void add_rows(Ref<const float, 2> p, const ArrayRef& v, Ref<float, 2> acc);

}  // namespace kref::detail
