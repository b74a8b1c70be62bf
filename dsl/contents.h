// SPDX-License-Identifier: Apache-2.0
// The contents of the arrays that a program writes, kept and put back. Internal to dsl/.
#pragma once

#include <cstring>
#include <vector>

#include "dsl/program.h"

namespace kref::detail {

// The elements of one array, dense; empty where none were wanted.
struct SavedArray {
  Bytes memory;
  std::size_t size = 0;
  const std::byte* data() const { return static_cast<const std::byte*>(memory.get()); }
  bool operator==(const SavedArray& other) const {
    return size == other.size && (size == 0 || std::memcmp(data(), other.data(), size) == 0);
  }
};
using Contents = std::vector<SavedArray>;  // one an operand

inline constexpr std::uint64_t kAllOperands = ~std::uint64_t{0};

// Of the operands (bits) that are written.
Contents save(const Program& program, std::uint64_t operands = kAllOperands);
void restore(const Program& program, const Contents& contents);

}  // namespace kref::detail
