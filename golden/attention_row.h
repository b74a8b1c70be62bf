// SPDX-License-Identifier: Apache-2.0
// Rows of attention, put into the expectations of its outputs.
#pragma once

#include <cstddef>

#include "golden/attention_bound.h"

namespace kref {

// Of an output of that many elements with bounds, all 0 as yet.
Expectation bounded_output(const char* name, std::size_t size);

// Value, bounds and overflow of a row's E elements of o, from element `first` on.
void put_o(Expectation& o, std::size_t first, const reference::AttentionRow& row,
           const RowBounds& bounds);
// The same of its one element of lse.
void put_lse(Expectation& lse, std::size_t at, const reference::AttentionRow& row,
             const RowBounds& bounds);

}  // namespace kref
