// SPDX-License-Identifier: Apache-2.0
// Conversions of element types against an oracle that knows the formats by their definition and
// looks for the nearest neighbours. `dtype_test -ns -tc="*2^32*"` goes through every f32.
#include "dsl/dtype.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/float_samples.h"

namespace kref {
namespace {

// The formats in numbers of their own: IEEE 754-2019 for binary16 and the formats cut from it, OCP
// 8-bit floating point (2023) for the other two.
template <class T>
struct Format;
template <>
struct Format<f16> {
  static constexpr int kExponent = 5, kMantissa = 10, kBias = 15;
  static constexpr unsigned kLargest = 0x7BFF, kPast = 0x7C00, kNaN = 0x7E00, kSign = 0x8000;
};
template <>
struct Format<bf16> {
  static constexpr int kExponent = 8, kMantissa = 7, kBias = 127;
  static constexpr unsigned kLargest = 0x7F7F, kPast = 0x7F80, kNaN = 0x7FC0, kSign = 0x8000;
};
template <>
struct Format<f8_e4m3> {  // without infinities: past the largest lies NaN
  static constexpr int kExponent = 4, kMantissa = 3, kBias = 7;
  static constexpr unsigned kLargest = 0x7E, kPast = 0x7F, kNaN = 0x7F, kSign = 0x80;
};
template <>
struct Format<f8_e5m2> {
  static constexpr int kExponent = 5, kMantissa = 2, kBias = 15;
  static constexpr unsigned kLargest = 0x7B, kPast = 0x7C, kNaN = 0x7E, kSign = 0x80;
};

// The magnitudes of a format in ascending order, by code; behind the largest the value that would
// come next, which decides where overflow begins.
template <class T>
class Oracle {
  using F = Format<T>;
  static_assert(1 + F::kExponent + F::kMantissa == 8 * sizeof(T));
  static_assert(F::kBias == (1 << (F::kExponent - 1)) - 1);

 public:
  Oracle() {
    for (unsigned code = 0; code <= F::kLargest + 1; ++code) {
      const int exponent = static_cast<int>(code >> F::kMantissa);
      const int mantissa = static_cast<int>(code) - (exponent << F::kMantissa);
      values_.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - F::kBias - F::kMantissa)
                                      : std::ldexp(mantissa + (1 << F::kMantissa),
                                                   exponent - F::kBias - F::kMantissa));
    }
  }
  double value(unsigned code) const { return values_[code]; }
  // Exact: one bit more than a value has.
  double middle(unsigned code) const { return (values_[code] + values_[code + 1]) / 2; }

  // The pattern nearest to v. long double holds every f64 and every 64-bit integer.
  unsigned bits(long double v, bool saturate = false) const {
    const unsigned sign = std::signbit(v) ? F::kSign : 0;
    if (std::isnan(v)) return sign | F::kNaN;
    const long double a = std::fabs(v);
    unsigned code = F::kLargest + 1;
    if (a < values_.back()) {
      const auto above = std::upper_bound(values_.begin(), values_.end(), a);
      const auto low = static_cast<unsigned>(above - values_.begin()) - 1;
      const long double m = middle(low);
      code = a < m ? low : a > m ? low + 1 : low + low % 2;  // a tie: the even one
    }
    if (code <= F::kLargest) return sign | code;
    return sign | (saturate ? F::kLargest : F::kPast);
  }

 private:
  std::vector<double> values_;
};

template <class T>
T pattern(unsigned bits) {
  return T::from_bits(static_cast<decltype(T::bits)>(bits));
}

#define NARROW_FLOATS f16, bf16, f8_e4m3, f8_e5m2

TEST_CASE_TEMPLATE("all patterns: their value as f32 and f64, and the way back", T, NARROW_FLOATS) {
  using F = Format<T>;
  const Oracle<T> oracle;
  unsigned numbers = 0, infinities = 0, nans = 0;
  for (unsigned p = 0; p < kPatterns<T>; ++p) {
    CAPTURE(p);
    const unsigned code = p % F::kSign;
    const bool negative = p >= F::kSign;
    const auto f = static_cast<float>(pattern<T>(p));
    const auto d = static_cast<double>(pattern<T>(p));
    bool right = std::signbit(f) == negative && std::signbit(d) == negative;
    if (code <= F::kLargest) {
      ++numbers;
      right = right && std::fabs(f) == oracle.value(code) && std::fabs(d) == oracle.value(code) &&
              T(f).bits == p && T(d).bits == p && T::saturated(d).bits == p;
    } else if (code == F::kPast && F::kPast != F::kNaN) {
      ++infinities;
      right = right && std::isinf(f) && std::isinf(d) && T(f).bits == p && T(d).bits == p &&
              T::saturated(d).bits == p - 1;
    } else {
      ++nans;
      const unsigned quiet = F::kNaN + (negative ? F::kSign : 0);
      right = right && std::isnan(f) && std::isnan(d) && T(f).bits == quiet && T(d).bits == quiet &&
              T::saturated(d).bits == quiet;
    }
    REQUIRE(right);
  }
  CHECK(numbers == 2 * (F::kLargest + 1));
  CHECK(infinities == (F::kPast == F::kNaN ? 0 : 2));
  CHECK(numbers + infinities + nans == kPatterns<T>);
}

TEST_CASE_TEMPLATE("f32 to narrow: every value, middle and border with its neighbours", T,
                   NARROW_FLOATS) {
  const Oracle<T> oracle;
  unsigned ties = 0;
  for (const std::uint32_t bits : critical_f32<T>()) {
    const auto v = std::bit_cast<float>(bits);
    const unsigned expected = oracle.bits(v), ended = oracle.bits(v, true);
    if (T(v).bits != expected || T::saturated(v).bits != ended) {
      CAPTURE(bits);
      REQUIRE(T(v).bits == expected);
      REQUIRE(T::saturated(v).bits == ended);
    }
    const unsigned code = expected % Format<T>::kSign;
    ties += code < Format<T>::kLargest && std::fabs(v) == oracle.middle(code) ? 1 : 0;
  }
  // One above each even pattern below the largest, of either sign.
  CHECK(ties >= Format<T>::kLargest);
}

TEST_CASE_TEMPLATE("f64 to narrow: rounded once, where twice by way of f32 would be wrong", T,
                   NARROW_FLOATS) {
  using F = Format<T>;
  const Oracle<T> oracle;
  unsigned twice_is_wrong = 0;
  const auto check = [&](double v) {
    for (const double s : {v, -v}) {
      const unsigned expected = oracle.bits(s);
      if (T(s).bits != expected || T::saturated(s).bits != oracle.bits(s, true)) {
        CAPTURE(s);
        REQUIRE(T(s).bits == expected);
        REQUIRE(T::saturated(s).bits == oracle.bits(s, true));
      }
      twice_is_wrong += T(static_cast<float>(s)).bits != expected ? 1 : 0;
    }
  };
  for (unsigned code = 0; code <= F::kLargest; ++code) {
    for (const double v : {oracle.value(code), oracle.middle(code), oracle.value(code + 1)}) {
      check(v);
      check(std::nextafter(v, 0.0)), check(std::nextafter(v, 1e300));
      // Less than half the distance of f32's neighbours: f32 would land on v itself.
      check(v * (1 + 0x1p-26)), check(v * (1 - 0x1p-26));
      check(v * (1 + 0x1p-40)), check(v * (1 - 0x1p-40));
    }
  }
  // Each middle has a side on which rounding to f32 first makes a tie that goes the wrong way.
  CHECK(twice_is_wrong > 2 * F::kLargest);
  for (const double v : {0x1p-1074, 0x1p-1022, 0x1.8p-150, 0x1p-134, 1e39, 1e300, 0x1p128, 0x1p1023,
                         std::numeric_limits<double>::infinity()}) {
    check(v);
  }
}

TEST_CASE_TEMPLATE("integers to narrow: rounded once, also past 2^53", T, NARROW_FLOATS) {
  const Oracle<T> oracle;
  const auto check = [&](auto v) {
    CAPTURE(v);
    REQUIRE(T(v).bits == oracle.bits(static_cast<long double>(v)));
  };
  using I64 = std::int64_t;
  unsigned double_is_wrong = 0;
  for (int e = 0; e < 63; ++e) {
    for (int drop = 0; drop <= 14; ++drop) {
      // 2^e, a value or a middle near it, and one more or less.
      const I64 step = e >= drop ? I64{1} << (e - drop) : 0;
      for (const I64 odd : {0, 1, 3}) {
        for (const I64 off : {-1, 0, 1}) {
          const auto magnitude =
              static_cast<std::uint64_t>((I64{1} << e)) +
              static_cast<std::uint64_t>(odd) * static_cast<std::uint64_t>(step) +
              static_cast<std::uint64_t>(off);
          const auto v = static_cast<I64>(magnitude % (std::uint64_t{1} << 63));
          check(v), check(-v), check(static_cast<std::int32_t>(v % (I64{1} << 31)));
          check(static_cast<std::uint32_t>(v)), check(static_cast<std::int16_t>(v % (1 << 15)));
          double_is_wrong += T(v).bits != T(static_cast<double>(v)).bits ? 1 : 0;
        }
      }
    }
  }
  check(std::numeric_limits<I64>::min()), check(std::numeric_limits<I64>::max());
  for (int v = -128; v < 256; ++v) check(v), check(static_cast<std::uint8_t>(v));
  check(true), check(false);
  // Only a type with values past 2^53 can show the difference.
  CHECK((double_is_wrong > 0) == (oracle.value(Format<T>::kLargest) > 0x1p54));
}

TEST_CASE_TEMPLATE("f32 to narrow: all 2^32 patterns" * doctest::skip(), T, NARROW_FLOATS) {
  using F = Format<T>;
  const Oracle<T> oracle;
  std::vector<double> middles;
  for (unsigned code = 0; code <= F::kLargest; ++code) middles.push_back(oracle.middle(code));
  std::int64_t wrong = 0;
  const auto check = [&](std::uint32_t bits, unsigned expected, unsigned ended) {
    for (const bool negative : {false, true}) {
      const auto v = std::bit_cast<float>(bits | (negative ? 0x80000000u : 0));
      const unsigned sign = negative ? F::kSign : 0;
      wrong += T(v).bits == (sign | expected) && T::saturated(v).bits == (sign | ended) ? 0 : 1;
    }
  };
  unsigned code = 0;  // rises with v
  for (std::uint32_t bits = 0; bits <= 0x7F800000u; ++bits) {
    const auto v = static_cast<double>(std::bit_cast<float>(bits));
    while (code <= F::kLargest && (v > middles[code] || (v == middles[code] && code % 2 != 0)))
      ++code;
    const bool inside = code <= F::kLargest;
    check(bits, inside ? code : F::kPast, inside ? code : F::kLargest);
  }
  for (std::uint32_t bits = 0x7F800001u; bits <= 0x7FFFFFFFu; ++bits) check(bits, F::kNaN, F::kNaN);
  CHECK(wrong == 0);
}

TEST_CASE("L024: f32 to bf16 rounds to nearest even") {
  CHECK(bf16(std::bit_cast<float>(0x3E89CCD5u)).bits == 0x3E8A);
  CHECK(static_cast<float>(bf16(0.2691408770292272)) == 0.26953125f);
  CHECK(bf16(std::bit_cast<float>(0x3F808000u)).bits == 0x3F80);
  CHECK(bf16(std::bit_cast<float>(0x3F818000u)).bits == 0x3F82);
  CHECK(bf16(std::bit_cast<float>(0x3F808001u)).bits == 0x3F81);
  CHECK(bf16(std::bit_cast<float>(0x7F7FFFFFu)).bits == 0x7F80);
  static_assert(bf16(1.0f).bits == 0x3F80 && f16(65520.0).bits == 0x7C00);
  static_assert(f8_e4m3(464.0).bits == 0x7E && f8_e4m3(465.0).bits == 0x7F);
}

TEST_CASE("element types: names, sizes, poison, roundoff") {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto type = static_cast<DType>(i);
    const std::string name = name_of(type);
    CAPTURE(name);
    DType found = type == DType::kF64 ? DType::kBool : DType::kF64;
    CHECK((parse_dtype(name.c_str(), found) && found == type));
    with_dtype(type, [&]<class T>() {
      CHECK(dtype_of<T> == type);
      CHECK(size_of(type) == sizeof(T));
      const std::string digits = std::to_string(8 * sizeof(T));
      CHECK((name == "BOOL" || name.find(digits) != std::string::npos));
      CHECK(is_float(type) == (name.find('F') != std::string::npos));
      CHECK(is_integer(type) == (name[0] == 'I' || name[0] == 'U'));
      if constexpr (std::is_integral_v<T>) {
        CHECK(poison<T>() == std::numeric_limits<T>::min());
      } else {
        CHECK(std::isnan(static_cast<double>(poison<T>())));
        // 1 + u is the middle of 1 and its neighbour, so that anything above it goes up.
        const double u = unit_roundoff(type);
        CHECK(static_cast<double>(T(1 + u)) == 1);
        if constexpr (!std::is_same_v<T, double>)
          CHECK(static_cast<double>(T(1 + u * (1 + 0x1p-20))) == 1 + 2 * u);
        // Its neighbours above lie as far away as those below, which are half as far from zero.
        const double s = smallest_normal(type), gap = 2 * u * s;
        if constexpr (!std::is_same_v<T, double>) {
          CHECK(static_cast<double>(T(s + gap)) == s + gap);
          CHECK(static_cast<double>(T(s - gap)) == s - gap);
          CHECK(static_cast<double>(T(s / 2 + gap)) == s / 2 + gap);
          CHECK(static_cast<double>(T(s + 0.5 * gap)) == s);
          CHECK(static_cast<double>(T(2 * s + gap)) == 2 * s);
        } else {
          CHECK(s == std::numeric_limits<double>::min());
        }
      }
    });
    if (!is_float(type)) CHECK(unit_roundoff(type) + smallest_normal(type) == 0);
  }
  CHECK(1 + 1.5 * unit_roundoff(DType::kF64) == 1 + 0x1p-52);
  DType type = DType::kF64;
  CHECK((parse_dtype("float8_e4m3fn", type) && type == DType::kF8E4M3));
  CHECK((parse_dtype("bfloat16", type) && type == DType::kBF16));
  CHECK_FALSE(parse_dtype("F8", type));
  CHECK_FALSE(parse_dtype("", type));
}

}  // namespace
}  // namespace kref
