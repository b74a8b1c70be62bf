// SPDX-License-Identifier: Apache-2.0
// One element as another type: compared, and cast as tile_ops.h states it.
#pragma once

#include <limits>
#include <type_traits>

#include "dsl/dtype.h"

namespace kref::detail {

// The value as a type with comparisons.
template <class T>
auto comparable(T v) {
  if constexpr (std::is_arithmetic_v<T>) {
    return v;
  } else {
    return static_cast<float>(v);
  }
}

template <ElementType T, ElementType S>
constexpr T convert(S v, bool saturate) {
  constexpr bool kFromInteger = std::is_integral_v<S>;  // bool included
  constexpr bool kNarrowOut = !std::is_arithmetic_v<T>;
  if constexpr (std::is_same_v<S, T>) {
    if constexpr (kNarrowOut) {
      if (saturate) return T::saturated(static_cast<double>(v));
    }
    return v;
  } else if constexpr (std::is_same_v<T, bool>) {
    if constexpr (kFromInteger) {
      return v != 0;
    } else {
      return static_cast<double>(v) != 0;
    }
  } else if constexpr (kNarrowOut) {
    if constexpr (kFromInteger) {
      return saturate ? T::saturated(to_sticky_double(v)) : T(v);
    } else {
      return saturate ? T::saturated(static_cast<double>(v)) : T(static_cast<double>(v));
    }
  } else if constexpr (std::is_floating_point_v<T> || kFromInteger) {
    return static_cast<T>(v);
  } else {
    // Float to integer. 1 + max is a power of two, exact as a double; so is min for every type.
    constexpr double kPastMax = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
    const auto x = static_cast<double>(v);
    if (x >= kPastMax) return std::numeric_limits<T>::max();
    if (x <= static_cast<double>(std::numeric_limits<T>::min()))
      return std::numeric_limits<T>::min();
    return x == x ? static_cast<T>(x) : T{0};
  }
}

}  // namespace kref::detail
