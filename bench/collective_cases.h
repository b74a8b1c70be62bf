// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of collectives run, here and with MPI: shared, so that both time the same.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kref::bench {

// Of one device: the larger of operand and result.
inline constexpr std::int64_t kBytes[] = {1 << 10, 64 << 10, 4 << 20, 64 << 20};
inline constexpr std::int64_t kDevices[] = {2, 4, 8};

// Collectives timed as one, so that the start of a launch does not count.
constexpr std::int64_t repetitions(std::int64_t bytes) {
  return std::clamp<std::int64_t>((std::int64_t{128} << 20) / bytes, 2, 500);
}

}  // namespace kref::bench
