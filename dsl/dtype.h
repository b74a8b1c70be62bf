// SPDX-License-Identifier: Apache-2.0
// Element types: their names, sizes, poison values and conversions. Every conversion rounds to
// nearest, ties to even, and rounds once, also from double.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

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

// A binary float format narrower than f32. kFinite: no infinities, the all-ones pattern is NaN
// (e4m3fn); otherwise IEEE 754 rules.
template <int kExponentBits, int kMantissaBits, bool kFinite>
struct NarrowFormat {
  static constexpr int kExponentWidth = kExponentBits, kMantissaWidth = kMantissaBits;
  static constexpr bool kHasInfinity = !kFinite;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kMinExponent = 1 - kBias;  // of the smallest normal number
  static constexpr std::uint32_t kExponentMask = (1u << kExponentBits) - 1;
  static constexpr std::uint32_t kMantissaMask = (1u << kMantissaBits) - 1;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kInfinity = kExponentMask << kMantissaBits;  // unless kFinite
  static constexpr std::uint32_t kNan =
      kFinite ? (kSign - 1) : (kInfinity | (1u << (kMantissaBits - 1)));
  static constexpr std::uint32_t kLargest = kFinite ? kSign - 2 : kInfinity - 1;

  // Bits of the value nearest to v, ties to even. Past the largest finite value: infinity (NaN in a
  // format without one), or the largest value when saturate. A NaN keeps its sign and becomes
  // quiet.
  static constexpr std::uint32_t encode(double v, bool saturate = false) {
    const auto bits = std::bit_cast<std::uint64_t>(v);
    const std::uint32_t sign = (bits >> 63) != 0 ? kSign : 0;
    const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
    if (magnitude > (std::uint64_t{0x7FF} << 52)) return sign | kNan;
    const std::uint32_t overflow = sign | (saturate ? kLargest : kFinite ? kNan : kInfinity);
    if (magnitude == (std::uint64_t{0x7FF} << 52)) return overflow;
    const int biased = static_cast<int>(magnitude >> 52);
    if (biased == 0) return sign;  // a subnormal double is far below half of any narrow value
    const int exponent = biased - 1023;
    const std::uint64_t mantissa =
        (magnitude & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
    // Keep kMantissaBits after the leading one, fewer when the result is subnormal.
    const int drop = 52 - kMantissaBits + (exponent < kMinExponent ? kMinExponent - exponent : 0);
    if (drop > 53) return sign;
    const std::uint64_t half = std::uint64_t{1} << (drop - 1);
    std::uint64_t kept = mantissa >> drop;
    const std::uint64_t rest = mantissa & ((half << 1) - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    // A carry out of the mantissa runs into the exponent, which is what rounding up means.
    const std::uint64_t field =
        exponent < kMinExponent
            ? kept
            : kept + (static_cast<std::uint64_t>(exponent - kMinExponent) << kMantissaBits);
    return field > kLargest ? overflow : sign | static_cast<std::uint32_t>(field);
  }

  // The value of the bits: exact, every narrow value is an f32.
  static constexpr float decode(std::uint32_t bits) {
    const std::uint32_t sign = (bits & kSign) != 0 ? 0x80000000u : 0u;
    const std::uint32_t exponent = (bits >> kMantissaBits) & kExponentMask;
    const std::uint32_t mantissa = bits & kMantissaMask;
    if constexpr (kFinite) {
      if ((bits & (kSign - 1)) == kNan) return std::bit_cast<float>(sign | 0x7FC00000u);
    } else if (exponent == kExponentMask) {
      const std::uint32_t payload = mantissa << (23 - kMantissaBits);
      return std::bit_cast<float>(sign | 0x7F800000u | payload);
    }
    if (exponent == 0) {
      // mantissa * 2^(kMinExponent - kMantissaBits); bf16's subnormals are f32 subnormals.
      if constexpr (kExponentBits == 8)
        return std::bit_cast<float>(sign | (mantissa << (23 - kMantissaBits)));
      const float unit = std::bit_cast<float>(
          static_cast<std::uint32_t>(kMinExponent - kMantissaBits + 127) << 23);
      const float magnitude = static_cast<float>(mantissa) * unit;
      return sign != 0 ? -magnitude : magnitude;
    }
    const auto wide = static_cast<std::uint32_t>(static_cast<int>(exponent) - kBias + 127);
    return std::bit_cast<float>(sign | (wide << 23) | (mantissa << (23 - kMantissaBits)));
  }
};

// v as a double that rounds to every narrow format as v itself does. A 64-bit integer may need more
// than 53 bits; its last 11 are then replaced by one that says whether any of them was set.
template <class I>
constexpr double to_sticky_double(I v) {
  if constexpr (sizeof(I) == 8) {
    constexpr I kLow = 0x7FF;
    constexpr I kExact = I{1} << 53;
    if (v > kExact || (std::is_signed_v<I> && v < I{0} - kExact)) {
      return static_cast<double>((v & ~kLow) | ((v & kLow) != 0 ? kLow + 1 : 0));
    }
  }
  return static_cast<double>(v);
}

// Storage of one narrow float; arithmetic is done in float or double.
template <class Format, class Bits>
struct Narrow {
  Bits bits;

  Narrow() = default;
  // Rounds to nearest even; one rounding, also from double.
  constexpr explicit Narrow(double v) : bits(static_cast<Bits>(Format::encode(v))) {}
  constexpr explicit Narrow(float v) : Narrow(static_cast<double>(v)) {}
  template <class I>
  requires std::is_integral_v<I>
  constexpr explicit Narrow(I v) : Narrow(to_sticky_double(v)) {}

  // As the constructor, but values past the largest become the largest ("saturating" casts).
  static constexpr Narrow saturated(double v) {
    return from_bits(static_cast<Bits>(Format::encode(v, true)));
  }
  static constexpr Narrow from_bits(Bits b) {
    Narrow n;
    n.bits = b;
    return n;
  }
  constexpr explicit operator float() const { return Format::decode(bits); }
  constexpr explicit operator double() const { return static_cast<double>(Format::decode(bits)); }
};

}  // namespace detail

using bf16 = detail::Narrow<detail::NarrowFormat<8, 7, false>, std::uint16_t>;
using f16 = detail::Narrow<detail::NarrowFormat<5, 10, false>, std::uint16_t>;
using f8_e4m3 = detail::Narrow<detail::NarrowFormat<4, 3, true>, std::uint8_t>;  // e4m3fn
using f8_e5m2 = detail::Narrow<detail::NarrowFormat<5, 2, false>, std::uint8_t>;

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

}  // namespace kref
