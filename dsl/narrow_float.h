// SPDX-License-Identifier: Apache-2.0
// The float formats narrower than f32 and their conversions, which round to nearest, ties to even,
// and round once, also from double.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace kref {

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

  // The same of an f32. bf16 is its upper half: half a unit is added, a carry runs into the
  // exponent.
  static constexpr std::uint32_t encode(float v) {
    if constexpr (kExponentBits == 8 && kMantissaBits == 7) {
      const auto wide = std::bit_cast<std::uint32_t>(v);
      if ((wide & 0x7FFFFFFFu) > 0x7F800000u) return (wide >> 31 != 0 ? kSign : 0) | kNan;
      return (wide + 0x7FFFu + (wide >> 16 & 1)) >> 16;
    } else {
      return encode(static_cast<double>(v));
    }
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
  constexpr explicit Narrow(float v) : bits(static_cast<Bits>(Format::encode(v))) {}
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

}  // namespace kref
