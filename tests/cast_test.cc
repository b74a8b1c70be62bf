// SPDX-License-Identifier: Apache-2.0
// Every cast has the bits of the scalar conversion, on every SIMD target. The scalar conversions
// themselves are tested in dtype_test.cc.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dsl/tensor.h"
#include "kernels/reference.h"
#include "kernels/tile_ops.h"
#include "tests/float_samples.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

TEST_CASE_TEMPLATE("narrow floats widen to f32: all patterns", T, f16, bf16, f8_e4m3, f8_e5m2) {
  const Index n = kPatterns<T>;
  Tensor<T, 1> x({n});
  for (Index i = 0; i < n; ++i) x(i) = T::from_bits(static_cast<decltype(T::bits)>(i));
  for_each_target([&] {
    Tensor<float, 1> out({n});
    cast(x.ref(), out.ref());
    for (Index i = 0; i < n; ++i) {
      CAPTURE(i);
      if (!same_bits(out(i), static_cast<float>(x(i)))) FAIL(out(i));
    }
    // The way back gives the pattern itself; of the NaNs only the quiet one remains.
    Tensor<T, 1> back({n});
    cast(out.ref(), back.ref());
    for (Index i = 0; i < n; ++i) {
      CAPTURE(i);
      if (out(i) == out(i) && back(i).bits != i) FAIL(back(i).bits);
      if (out(i) != out(i) && back(i).bits != T(out(i)).bits) FAIL(back(i).bits);
    }
  });
}

TEST_CASE_TEMPLATE("f32 narrows: every border and a sample", T, f16, bf16, f8_e4m3, f8_e5m2) {
  const std::vector<std::uint32_t> bits = critical_f32<T>();
  const auto n = static_cast<Index>(bits.size());
  Tensor<float, 1> x({n});
  std::memcpy(x.data(), bits.data(), bits.size() * sizeof(float));
  for_each_target([&] {
    for (const Overflow overflow : {Overflow::kDefault, Overflow::kSaturate}) {
      Tensor<T, 1> out({n});
      cast(x.ref(), out.ref(), overflow);
      for (Index i = 0; i < n; ++i) {
        const auto v = static_cast<double>(x(i));
        const T expected = overflow == Overflow::kSaturate ? T::saturated(v) : T(v);
        if (out(i).bits != expected.bits) {
          CAPTURE(v);
          REQUIRE(out(i).bits == expected.bits);
        }
      }
    }
  });
}

// `cast_test -ns -tc="*2^32*"`; the scalar conversions go through the same in dtype_test.
TEST_CASE_TEMPLATE("f32 narrows: all 2^32 patterns" * doctest::skip(), T, f16, bf16, f8_e4m3,
                   f8_e5m2) {
  constexpr Index kChunk = 1 << 18;
  Tensor<float, 1> x({kChunk});
  Tensor<T, 1> out({kChunk}), rounded({kChunk}), ended({kChunk});
  Index wrong = 0;
  for (std::uint64_t from = 0; from < std::uint64_t{1} << 32; from += kChunk) {
    for (Index i = 0; i < kChunk; ++i) {
      x(i) = std::bit_cast<float>(static_cast<std::uint32_t>(from + static_cast<std::uint64_t>(i)));
      rounded(i) = T(x(i)), ended(i) = T::saturated(static_cast<double>(x(i)));
    }
    for_each_target([&] {
      for (const Overflow overflow : {Overflow::kDefault, Overflow::kSaturate}) {
        cast(x.ref(), out.ref(), overflow);
        const Tensor<T, 1>& expected = overflow == Overflow::kSaturate ? ended : rounded;
        wrong += std::memcmp(out.data(), expected.data(), kChunk * sizeof(T)) == 0 ? 0 : 1;
      }
    });
  }
  CHECK(wrong == 0);
}

TEST_CASE("L024: f32 to bf16 rounds to even and does not truncate") {
  const std::pair<std::uint32_t, std::uint16_t> cases[] = {{0x3E89CCD5, 0x3E8A},
                                                           {0x3F808000, 0x3F80},
                                                           {0x3F818000, 0x3F82},
                                                           {0x3F808001, 0x3F81},
                                                           {0x7F7FFFFF, 0x7F80}};
  for_each_target([&] {
    for (const auto& [from, to] : cases) {
      Tensor<float, 1> x({19}, std::bit_cast<float>(from));
      Tensor<bf16, 1> out({19});
      cast(x.ref(), out.ref());
      for (Index i = 0; i < 19; ++i) CHECK(out(i).bits == to);
    }
  });
}

// By way of the views that the verb works on: one copy of this for all 169 pairs.
ArrayRef block_of(const ArrayRef& a, Index width) {
  ArrayRef out = a;
  out.extents[1] = width;
  out.data = static_cast<const unsigned char*>(a.data) + size_of(a.dtype);  // from column 1 on
  return out;
}

double element(const ArrayRef& a, Index r, Index c) {
  return with_dtype(a.dtype, [&]<class T>() {
    return static_cast<double>(static_cast<const T*>(a.data)[r * a.strides[0] + c]);
  });
}

constexpr double kValues[] = {0,       -0.0, 1,    -1,     2.5,   -2.5,  1.75,  126.5,
                              -129.25, 255,  256,  65504,  70000, 1e5,   -1e10, 1e19,
                              -1e19,   3e38, 1e39, 1e300,  1e-5,  1e-8,  1e-46, -1e-320,
                              NAN,     -NAN, 0.1,  -33.33, 448,   464.5, 1000,  -57344};
constexpr Index kCount = std::size(kValues);

// kValues as elements of a type, over and over.
void fill_with_values(Array& x) {
  const Index flat[] = {kCount};
  const std::vector<double> as = reference::cast(ArrayRef(DType::kF64, flat, kValues), x.dtype());
  with_dtype(x.dtype(), [&]<class S>() {
    const auto to = x.mutable_elements<S>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      const double v = as[i % kCount];
      to[i] = v == 0x1p63 ? S(std::numeric_limits<std::int64_t>::max()) : static_cast<S>(v);
    }
  });
}

void test_pair(const Array& x, Array& out, Index width) {
  std::memset(out.mutable_data(), 0x55, out.bytes());
  const ArrayRef xb = block_of(x, width);
  MutableArrayRef ob = out.mutable_ref();
  ob.extents[1] = width;
  ob.data = static_cast<unsigned char*>(ob.data) + size_of(ob.dtype);
  detail::cast(xb, ob, Overflow::kDefault);
  const std::vector<double> expected = reference::cast(xb, out.dtype());
  for (Index r = 0; r < 3; ++r) {
    for (Index c = 0; c < width; ++c) {
      const double got = element(ob, r, c);
      const double want = expected[static_cast<std::size_t>(r * width + c)];
      if (!(got == want || (std::isnan(got) && std::isnan(want)))) {
        CAPTURE(element(xb, r, c));
        REQUIRE(got == want);
      }
      REQUIRE(std::signbit(got) == std::signbit(want));
    }
    const auto* after = static_cast<const unsigned char*>(ob.data) +
                        static_cast<std::size_t>(r * (kCount + 2) + width) * size_of(ob.dtype);
    REQUIRE(*after == 0x55);
  }
}

TEST_CASE("every pair of element types, blocks of every width") {
  const Index shape[] = {3, kCount + 2};
  for_each_target([&] {
    for (int s = 0; s <= static_cast<int>(DType::kBool); ++s) {
      for (int t = 0; t <= static_cast<int>(DType::kBool); ++t) {
        Array x(static_cast<DType>(s), shape), out(static_cast<DType>(t), shape);
        fill_with_values(x);
        CAPTURE(std::string(name_of(x.dtype())));
        CAPTURE(std::string(name_of(out.dtype())));
        for (Index width = 0; width <= kCount; ++width) test_pair(x, out, width);
      }
    }
  });
}

TEST_CASE("saturating to a type without a limit of its own is refused") {
  const Tensor<float, 1> x({1}, 1.0f);
  Tensor<double, 1> out({1});
  CHECK_THROWS_WITH_AS(
      cast(x.ref(), out.ref(), Overflow::kSaturate),
      "cast: saturating to F64 has no meaning, expected F16, BF16, F8_E4M3 or F8_E5M2", Error);
}

}  // namespace
}  // namespace kref
