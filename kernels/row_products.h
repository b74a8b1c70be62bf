// SPDX-License-Identifier: Apache-2.0
// The two products of attention for one query a head: k and v are read once, in the order in which
// they lie and in their own type, since reading them is what takes the time.
#pragma once

#include "dsl/array.h"

namespace kref::detail {

// H queries against `keys` rows of G heads, as the vector code sees them; strides in elements.
// Query h goes with key head h / (H / G).
struct HeadRows {
  const float* few;  // (H, columns) or (H, keys)
  Index few_stride;
  const void* many;  // (keys, G, columns)
  Index key_stride, head_stride;
  Index heads, groups, keys, columns;  // H, G
  float* out;
  Index out_stride;
};

// out (H, keys) = q (H, D) times k (keys, G, D), each query with its own key head. An element is
// the sum of sixteen lanes, element d in lane d mod 16, fused; lane l takes l + 8, l + 4, l + 2, l
// + 1. q's rows are followed by zeros up to a multiple of 16. k: any float type but F64.
void head_dots(Ref<const float, 2> q, const ArrayRef& k, Ref<float, 2> out);

// acc (H, E) += p (H, keys) times v (keys, G, E): a chain along keys ascending, fused, as dot_add.
// acc's rows are followed by room up to a multiple of 16. v: any float type but F64.
void add_head_values(Ref<const float, 2> p, const ArrayRef& v, Ref<float, 2> acc);

}  // namespace kref::detail
