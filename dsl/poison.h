// SPDX-License-Identifier: Apache-2.0
// Filling and copying blocks whose element type is known at run time only. Internal to dsl/.
#pragma once

#include <span>

#include "dsl/ref.h"

namespace kref::detail {

// What uninitialised memory holds. kPoison is poison<T>(). kOther differs from it in every element:
// large numbers of either sign for floats, so that also max() and comparisons that drop a NaN give
// something else; the maximum for integers; true.
enum class Pattern : std::uint8_t { kPoison, kOther };

// `count` elements one after the other.
void fill_pattern(void* data, DType type, Index count, Pattern pattern);
// A strided block; the last dimension is contiguous.
void fill_pattern(void* data, DType type, std::span<const Index> extents, const Index* strides,
                  Pattern pattern);
// True when the element holds one of the values of the pattern.
bool is_pattern(const void* element, DType type, Pattern pattern);

// Element by element from one strided block to another of the same extents; they do not overlap.
void copy_block(void* to, const Index* to_strides, const void* from, const Index* from_strides,
                std::span<const Index> extents, std::size_t element);

// Do two strided blocks hold the same bytes?
bool same_block(const void* a, const Index* a_strides, const void* b, const Index* b_strides,
                std::span<const Index> extents, std::size_t element);

}  // namespace kref::detail
