// SPDX-License-Identifier: Apache-2.0
// Element types: their names, sizes, poison values and conversions. Every conversion rounds to
// nearest, ties to even, and rounds once, also from double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dsl/narrow_float.h"

namespace kref {

// The element types of run files (spec/runs.md section 1), named as safetensors names them.
enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU32,
  kU8,
  kBool,
};

namespace detail {

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f8_e4m3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<f8_e5m2> {
  static constexpr DType value = DType::kF8E5M2;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

}  // namespace detail

// A C++ type that is the storage of a DType.
template <class T>
concept ElementType = requires {
  detail::DTypeOf<std::remove_const_t<T>>::value;
};

// The DType of a C++ type, const or not.
template <ElementType T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_const_t<T>>::value;

// Calls f.template operator()<T>() with the C++ type of `type`; returns what f returns.
template <class F>
constexpr decltype(auto) with_dtype(DType type, F&& f) {
  switch (type) {
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF16:
      return f.template operator()<f16>();
    case DType::kBF16:
      return f.template operator()<bf16>();
    case DType::kF8E4M3:
      return f.template operator()<f8_e4m3>();
    case DType::kF8E5M2:
      return f.template operator()<f8_e5m2>();
    case DType::kI64:
      return f.template operator()<std::int64_t>();
    case DType::kI32:
      return f.template operator()<std::int32_t>();
    case DType::kI16:
      return f.template operator()<std::int16_t>();
    case DType::kI8:
      return f.template operator()<std::int8_t>();
    case DType::kU32:
      return f.template operator()<std::uint32_t>();
    case DType::kU8:
      return f.template operator()<std::uint8_t>();
    case DType::kBool:
      break;
  }
  return f.template operator()<bool>();
}

// Bytes of one element.
constexpr std::size_t size_of(DType type) {
  return with_dtype(type, []<class T>() { return sizeof(T); });
}

// Of all widths; BOOL is neither.
constexpr bool is_float(DType type) { return type <= DType::kF8E5M2; }
constexpr bool is_integer(DType type) { return type >= DType::kI64 && type <= DType::kU8; }

// The safetensors name: "F32", "BF16", "F8_E4M3", "I32", "BOOL", ...
const char* name_of(DType type);

// The type of that name, in any case, "bf16" as "BF16"; also JAX's spellings ("float32",
// "bfloat16", "int8", "float8_e4m3fn"). False when there is none.
bool parse_dtype(const char* name, DType& type);

// What an element holds before anyone wrote it, and outside the array in an edge block: NaN,
// the minimum of an integer type, false (Pallas: the HLO interpreter's choice).
template <ElementType T>
constexpr T poison() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::quiet_NaN();
  } else if constexpr (std::is_integral_v<T>) {
    return std::numeric_limits<T>::min();
  } else {
    return T(std::numeric_limits<double>::quiet_NaN());
  }
}

// Unit of rounding of a float type: half the distance between neighbours just above 1. 0 for
// integers. e4m3fn: 2^-4, e5m2: 2^-3, bf16: 2^-8, f16: 2^-11.
constexpr double unit_roundoff(DType type) {
  switch (type) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF8E4M3:
      return 0x1p-4;
    case DType::kF8E5M2:
      return 0x1p-3;
    default:
      return 0;
  }
}

// The smallest normal number of a float type; 0 for integers.
constexpr double smallest_normal(DType type) {
  switch (type) {
    case DType::kF64:
      return 0x1p-1022;
    case DType::kF32:
    case DType::kBF16:
      return 0x1p-126;
    case DType::kF16:
    case DType::kF8E5M2:
      return 0x1p-14;
    case DType::kF8E4M3:
      return 0x1p-6;
    default:
      return 0;
  }
}

}  // namespace kref
