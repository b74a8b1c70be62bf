// SPDX-License-Identifier: Apache-2.0
// Plain arithmetic on whole arrays of one device: what typed bodies compute between collectives.
#pragma once

#include <span>
#include <vector>

#include "dsl/array.h"

namespace kref {

// What is done to each element, or to each pair of them.
enum class UnaryOp { kNeg, kSin, kCos, kExp, kLog, kTanh };
enum class BinaryOp { kAdd, kSub, kMul, kDiv };
// "neg", "add".
const char* to_string(UnaryOp op);
const char* to_string(BinaryOp op);

// Element by element; a and b have one shape and type. Floats narrower than f64 compute in f32 and
// round once; integers wrap. Error: anything but +, -, * and neg of integers and bool.
Array unary(UnaryOp op, const Array& x);
Array binary(BinaryOp op, const Array& a, const Array& b);
// Error for what integers are not multiplied by: no integer, or one that an Index does not hold.
void check_factor(DType type, double factor);
// x * factor, rounded once; of integers as check_factor says.
Array scaled(const Array& x, double factor);
// x / divisor, rounded once; floats only.
Array divided(const Array& x, Index divisor);
// To another element type, rounded once.
Array converted(const Array& x, DType dtype);

// Sums over dimensions (ascending), which are dropped; index ascending, in f32 for narrow floats.
Array sum_over(const Array& x, std::span<const Index> dimensions);
// Element i of the result is x at the places i * strides + offsets name: every change of shape is
// one of these, see value_shape.cc. `strides` in elements of x, one a dimension of the result.
Array gathered(const Array& x, std::span<const Index> shape, std::span<const Index> strides,
               Index offset);

}  // namespace kref
