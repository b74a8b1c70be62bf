// SPDX-License-Identifier: Apache-2.0
// The f32 values at which a conversion to a narrow float can go wrong.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "dsl/dtype.h"

namespace kref {

// Every pattern of T with its sign.
template <class T>
constexpr std::uint32_t kPatterns = 1u << (8 * sizeof(T));

// Bits of f32 values: every value of T and every middle between two neighbours, each with the two
// f32 above and below it, and one in 4099 of all patterns.
template <class T>
std::vector<std::uint32_t> critical_f32() {
  std::vector<std::uint32_t> out;
  const auto around = [&](double v) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(v));
    for (std::uint32_t b = bits - 2; b != bits + 3; ++b) out.push_back(b);
  };
  const auto value = [](std::uint32_t p) {
    return T::from_bits(static_cast<decltype(T::bits)>(p));
  };
  for (std::uint32_t p = 0; p < kPatterns<T>; ++p) {
    const auto v = static_cast<double>(value(p));
    around(v);
    around((v + static_cast<double>(value(p + 1))) / 2);
  }
  // The border of overflow: the largest value, where the next one would stand, and their middle.
  const T top = T::saturated(1e300);
  const auto largest = static_cast<double>(top);
  const double step = largest - static_cast<double>(value(top.bits - 1u));
  for (const double halves : {0.0, 1.0, 2.0, 3.0}) {
    around(largest + halves / 2 * step), around(-largest - halves / 2 * step);
  }
  for (std::uint64_t b = 0; b < (1ull << 32); b += 4099)
    out.push_back(static_cast<std::uint32_t>(b));
  return out;
}

}  // namespace kref
