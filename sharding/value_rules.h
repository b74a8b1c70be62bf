// SPDX-License-Identifier: Apache-2.0
// What the operations on Values share: the state of their results, by the rules of
// arithmetic_rules.h (none in unchecked mode), and how they are recorded.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sharding/arithmetic_rules.h"
#include "sharding/graph.h"

namespace kref::detail {

// Of operands that `promoted` brought to one varying set.
ValueState result_state(Arithmetic rule, std::string_view operation,
                        std::span<const ValueState> operands, const Graph& graph);
// Of x by a number of the program.
ValueState scaled_state(const Value& x);

// x / divisor of floats, whatever the state: linear.
Value divided_by(const Value& x, Index divisor, CallSite where);
// The shape of x as one's own.
std::vector<Index> extents_of(const Value& x);
// Dimension d of x, counted from the end when negative; Error when there is no such.
std::size_t dimension(const char* operation, const Value& x, Index d);
// Records a linear operation of one operand on shapes: element type and state stay.
Value record_linear(std::shared_ptr<const Primitive> op, const Value& x, std::vector<Index> shape,
                    CallSite where);

}  // namespace kref::detail
