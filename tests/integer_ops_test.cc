// SPDX-License-Identifier: Apache-2.0
// Verbs on whole numbers, every type, against arithmetic on 64 bits.
#include "kernels/integer_ops.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "dsl/dsl.h"
#include "kernels/random_bits.h"

namespace kref {
namespace {

// Random numbers with the ends, 0, 1 and -1 among them.
template <class T>
Tensor<T, 2> numbers(std::uint64_t seed, Index n) {
  Tensor<T, 2> x({3, n});
  random_bits(random_key(seed), x.ref());
  const T ends[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T{0}, T{1},
                    static_cast<T>(-1)};
  for (Index i = 0; i < x.size(); i += 3) x.data()[i] = ends[static_cast<std::size_t>(i / 3) % 5];
  return x;
}

template <class T>
void check_type() {
  using U = std::make_unsigned_t<T>;
  constexpr int kBits = 8 * sizeof(T);
  for (const Index n : {1, 5, 16, 31, 67}) {
    const Tensor<T, 2> x = numbers<T>(1, n), y = numbers<T>(2, n);
    Tensor<T, 2> by({3, n});  // -2 to 65 or so
    for (Index i = 0; i < by.size(); ++i) by.data()[i] = static_cast<T>(i % (kBits + 6) - 2);
    Tensor<T, 2> a({3, n}), o({3, n}), e({3, n}), c({3, n}), l({3, n}), r({3, n}), s({3, n}),
        m({3, n});
    bitwise_and(x, y, a.ref());
    bitwise_or(x, y, o.ref());
    bitwise_xor(x, y, e.ref());
    bitwise_not(x, c.ref());
    shift_left(x, by, l.ref());
    shift_right_logical(x, by, r.ref());
    shift_right_arithmetic(x, by, s.ref());
    rem(x, y, m.ref());
    for (Index i = 0; i < x.size(); ++i) {
      const T p = x.data()[i], q = y.data()[i], k = by.data()[i];
      REQUIRE(a.data()[i] == static_cast<T>(p & q));
      REQUIRE(o.data()[i] == static_cast<T>(p | q));
      REQUIRE(e.data()[i] == static_cast<T>(p ^ q));
      REQUIRE(c.data()[i] == static_cast<T>(~p));
      const bool all = k < T{0} || k >= static_cast<T>(kBits);
      T left = p, logical = p, arithmetic = p;
      for (int step = 0; !all && step < static_cast<int>(k); ++step) {
        left = static_cast<T>(static_cast<U>(left) * 2u);
        logical = static_cast<T>(static_cast<U>(logical) / 2u);
        const bool negative = static_cast<std::make_signed_t<T>>(arithmetic) < 0;
        arithmetic = static_cast<T>(static_cast<U>(arithmetic) / 2u);
        if (negative) arithmetic = static_cast<T>(static_cast<U>(arithmetic) | U{1} << (kBits - 1));
      }
      const bool negative = static_cast<std::make_signed_t<T>>(p) < 0;
      REQUIRE(l.data()[i] == (all ? T{0} : left));
      REQUIRE(r.data()[i] == (all ? T{0} : logical));
      REQUIRE(s.data()[i] == (all ? static_cast<T>(negative ? -1 : 0) : arithmetic));
      T rest = p;
      if (q != 0 && !(std::is_signed_v<T> && q == static_cast<T>(-1))) {
        rest = static_cast<T>(p - static_cast<T>(p / q) * q);
      } else if (q != 0) {
        rest = 0;
      }
      REQUIRE(m.data()[i] == rest);
    }
  }
}

TEST_CASE("bits, shifts and remainders of every integer type") {
  check_type<std::int8_t>();
  check_type<std::uint8_t>();
  check_type<std::int16_t>();
  check_type<std::int32_t>();
  check_type<std::uint32_t>();
  check_type<std::int64_t>();
}

TEST_CASE("bools; a number, a row and a column go together; the output may be an input") {
  Tensor<bool, 1> p({4}, false), q({4}, false), z({4});
  p(1) = p(3) = q(2) = q(3) = true;
  bitwise_and(p, q, z.ref());
  CHECK((!z(0) && !z(1) && !z(2) && z(3)));
  bitwise_or(p, q, z.ref());
  CHECK((!z(0) && z(1) && z(2) && z(3)));
  bitwise_xor(p, q, z.ref());
  CHECK((!z(0) && z(1) && z(2) && !z(3)));
  bitwise_not(z, z.ref());
  CHECK((z(0) && !z(1) && !z(2) && z(3)));
  Tensor<std::int32_t, 2> rows({3, 1}), all({3, 5});
  Tensor<std::int32_t, 1> columns({5});
  for (Index r = 0; r < 3; ++r) rows(r, 0) = static_cast<std::int32_t>(r);
  for (Index c = 0; c < 5; ++c) columns(c) = static_cast<std::int32_t>(c);
  shift_left(columns, rows, all.ref());
  rem(all, 3, all.ref());
  for (Index r = 0; r < 3; ++r) {
    for (Index c = 0; c < 5; ++c) CHECK(all(r, c) == (c << r) % 3);
  }
  CHECK_THROWS_WITH_AS(bitwise_or(p, Tensor<bool, 1>({3}, true), z.ref()),
                       "bitwise_or: y is BOOL[3], which does not fit out BOOL[4]", Error);
}

}  // namespace
}  // namespace kref
