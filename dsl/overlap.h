// SPDX-License-Identifier: Apache-2.0
// Whether views share memory.
#pragma once

#include "dsl/array.h"

namespace kref {

// True when some element of a and some element of b have a byte in common; for views of any rank,
// strides and element types. The search is exact and ends after a bounded number of steps: where
// strides are so intricate that it would take longer the answer is true. Error on strides that
// reach further than 2^60 bytes.
bool overlap(const ArrayRef& a, const ArrayRef& b);

namespace detail {

// The bytes that a view's elements span, relative to its data pointer; 0:0 without elements.
struct Reach {
  Index begin = 0, end = 0;
};
// Error that starts with `who` and names the dimension as in overlap.
Reach reach_of(const char* who, const ArrayRef& view);

}  // namespace detail
}  // namespace kref
