// SPDX-License-Identifier: Apache-2.0
// How Grid::check goes about it.
#pragma once

#include "dsl/ref.h"

namespace kref {

// What Grid::check does beyond its rules.
struct CheckOptions {
  std::uint64_t seed = 1;       // of the order of the parallel axes' coordinates
  bool tpu_shapes = false;      // refuse block shapes that no TPU accepts (pallas_semantics 4.6)
  std::int64_t vmem_bytes = 0;  // refuse windows (two each where the block moves, or as many as
                                // Buffered says) and scratch that together need more; 0: no limit
  const char* chip = nullptr;   // the same with the VMEM of a chip: v2, v3, v4i, v4, v5e, v5p, v6e,
                                // 7, 7x, 8i, 8t; null: none
  Index cores = 0;  // the second pass shares the points of the parallel axes out among that many
                    // cores, contiguous chunks of as many each, and fills Trace::order; 0: one, no
};

// The seed of the checks that KREF_CHECKS=full makes of every later Grid::run; 1 unless set.
void set_check_seed(std::uint64_t seed);

}  // namespace kref
