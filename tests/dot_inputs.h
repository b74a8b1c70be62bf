// SPDX-License-Identifier: Apache-2.0
// Inputs of the dot and matmul tests, and the chain that dot_add promises, spelled out.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/dot.h"

namespace kref {

// A generator whose sequence is the same everywhere.
struct Random {
  std::uint32_t state;
  explicit Random(Index seed) : state(static_cast<std::uint32_t>(seed) * 2654435761u + 1) {}
  std::uint32_t next() { return (state = state * 1664525u + 1013904223u) >> 8; }
};

// Small integers: every sum of the tests is exact in every accumulator.
template <class T>
T small_integer(Random& r) {
  const int v = static_cast<int>(r.next() % 9) - 4;
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return static_cast<T>(v + 4);
  else
    return static_cast<T>(v);
}

// Values that round in every sum: in (-4, 4) with all mantissa bits; whole range of an integer
// type.
template <class T>
T rounding(Random& r) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(r.next());
  } else {
    const double v = (static_cast<double>(r.next() & 0xFFFFFF) / 0x800000 - 1.0) * 4.0;
    return static_cast<T>(static_cast<float>(v));
  }
}

// The three bfloat16 parts of a value, by their definition.
struct BF16Parts {
  float part[3];
  explicit BF16Parts(float v) {
    for (float& p : part) {
      p = static_cast<float>(bf16(v));
      v -= p;
    }
  }
};

// acc after adding x y in the order that dot_add states.
template <class T>
Accumulator<T> chain(Accumulator<T> acc, T x, T y, Precision precision) {
  if constexpr (std::is_integral_v<T>) {
    const auto product =
        static_cast<std::uint32_t>(static_cast<std::int32_t>(x) * static_cast<std::int32_t>(y));
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(acc) + product);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::fma(x, y, acc);
  } else {
    const auto a = static_cast<float>(x), b = static_cast<float>(y);
    if (precision == Precision::kF32) return std::fma(a, b, acc);
    const BF16Parts p(a), q(b);
    const auto add = [&](int i, int j) { acc = std::fma(p.part[i], q.part[j], acc); };
    if (precision == Precision::kBF16x6) add(2, 0), add(1, 1), add(0, 2);
    if (precision != Precision::kBF16) add(1, 0), add(0, 1);
    add(0, 0);
    return acc;
  }
}

// Bit for bit, so that -0 and NaN count.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace kref
