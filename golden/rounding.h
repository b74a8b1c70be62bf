// SPDX-License-Identifier: Apache-2.0
// Rounding: what storing a number in an element type may change it by.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "dsl/dtype.h"

namespace kref {

// Half the distance between the neighbours of |t| in a float type: the most that rounding to
// nearest changes t by. As if exponents went on past the range, up to that of f64; 0 for integers
// and for t = 0, finite also for infinite t.
inline double half_spacing(DType type, double t) {
  if (t == 0) return 0;
  // The power of two at or below |t|; 0 for subnormal doubles.
  constexpr std::uint64_t kExponent = std::uint64_t{0x7FF} << 52;
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(t) & kExponent);
  return std::clamp(power, smallest_normal(type), 0x1p1023) * unit_roundoff(type);
}

}  // namespace kref
