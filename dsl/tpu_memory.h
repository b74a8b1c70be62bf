// SPDX-License-Identifier: Apache-2.0
// The memories of one TensorCore of each TPU, by the names of jax/_src/tpu_info.py.
#pragma once

#include <string_view>

#include "dsl/ref.h"

namespace kref {

// VMEM, SMEM, and what rank-1 blocks must be multiples of.
struct TpuMemory {
  const char* name;
  int generation;
  Index vmem_mib, smem_kib, row;
};
inline constexpr TpuMemory kTpuMemories[] = {
    {"v2", 2, 16, 16, 1024},     {"v3", 3, 16, 16, 1024},     {"v4i", 4, 16, 1024, 1024},
    {"v4", 4, 16, 1024, 1024},   {"v5e", 5, 128, 1024, 1024}, {"v5p", 5, 64, 1024, 1024},
    {"v6e", 6, 128, 1024, 1024}, {"7", 7, 64, 1024, 1024},    {"7x", 7, 64, 1024, 1024},
    {"8i", 8, 192, 1024, 1024},  {"8t", 8, 128, 1024, 2048}};

// That of a chip; null for a name that none has.
constexpr const TpuMemory* find_tpu_memory(std::string_view name) {
  for (const TpuMemory& one : kTpuMemories) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

}  // namespace kref
