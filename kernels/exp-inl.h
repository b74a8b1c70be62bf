// SPDX-License-Identifier: Apache-2.0
// e^x and 2^x in f32 and f64. x = n ln 2 + r with |r| <= ln 2 / 2 + tiny, e^x = 2^n e^r.
//
// r is kept as two numbers. hi = x - n kLn2Hi is exact: kLn2Hi has so few bits that n kLn2Hi needs
// no rounding, and the difference fits. lo = -n kLn2Lo. Then e^r = 1 + r + r^2 q(r), and 1 + hi is
// kept as a sum with its rounding error, so that only the last addition rounds at the scale of the
// result. Without the two pairs the error was near 1 unit in the last place; the pairs cost four
// operations. 2^x has r ln 2 with r = x - n, exact, in the place of r.
#if defined(KREF_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_EXP_INL_H_
#undef KREF_KERNELS_EXP_INL_H_
#else
#define KREF_KERNELS_EXP_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

template <class T>
struct ExpConstants;

// kQ: q at the Chebyshev nodes of |r| <= 0.3468, interpolated, highest power first.
template <>
struct ExpConstants<float> {
  using Int = std::int32_t;
  // Below kLow e^x is less than half the smallest subnormal, above kHigh it is past the largest
  // value.
  static constexpr float kLow = -105.0f, kHigh = 89.0f;
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2Hi = 0x1.62e4p-1f;  // 16 bits; n has 8
  static constexpr float kLn2Lo = 0x1.7f7d1cp-20f;
  // Of 2^x: the ends of its range; ln 2 to the nearest and what is left of it.
  static constexpr float kLow2 = -151.0f, kHigh2 = 129.0f;
  static constexpr float kLn2 = 0x1.62e43p-1f, kLn2Rest = -0x1.05c61p-29f;
  static constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer, in the last bits
  static constexpr int kMantissa = 23, kBias = 127;
  static constexpr float kQ[] = {0x1.a12532p-13f, 0x1.6d436ep-10f, 0x1.1110ep-7f,  // error 2^-30.3
                                 0x1.5554e8p-5f,  0x1.555556p-3f,  0x1p-1f};
};

template <>
struct ExpConstants<double> {
  using Int = std::int64_t;
  static constexpr double kLow = -746.0, kHigh = 710.0;
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2Hi = 0x1.62e42fefa38p-1;  // 42 bits; n has 11
  static constexpr double kLn2Lo = 0x1.ef35793c7673p-45;
  static constexpr double kLow2 = -1076.0, kHigh2 = 1025.0;
  static constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Rest = 0x1.abc9e3b39803fp-56;
  static constexpr double kRound = 0x1.8p52;
  static constexpr int kMantissa = 52, kBias = 1023;
  static constexpr double kQ[] = {0x1.1f7323eb1b00fp-29,
                                  0x1.af4e229b10f1fp-26,
                                  0x1.27e4db54baef7p-22,
                                  0x1.71de021620098p-19,
                                  0x1.a01a01a6dd7cdp-16,
                                  0x1.a01a01abf0a80p-13,
                                  0x1.6c16c16c162cbp-10,
                                  0x1.11111111100ccp-7,
                                  0x1.5555555555556p-5,
                                  0x1.5555555555557p-3,
                                  0x1p-1};  // error 2^-61.4
};

// 2^n for n within the exponents of normal values.
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, VI n) {
  using K = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  const auto biased = hn::Add(n, hn::Set(di, static_cast<typename K::Int>(K::kBias)));
  return hn::BitCast(d, hn::ShiftLeft<K::kMantissa>(biased));
}

// x within [low, high]; NaN stays what it is.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Within(D d, V x, hn::TFromD<D> low, hn::TFromD<D> high) {
  const V lo = hn::Set(d, low), hi = hn::Set(d, high);
  return hn::IfThenElse(hn::Lt(x, lo), lo, hn::IfThenElse(hn::Gt(x, hi), hi, x));
}

// 2^n e^(hi + lo).
template <class D, class VI, class V = hn::Vec<D>>
HWY_INLINE V ScaledExp(D d, VI n, V hi, V lo) {
  using K = ExpConstants<hn::TFromD<D>>;
  const V r = hn::Add(hi, lo);
  V q = hn::Set(d, K::kQ[0]);
  for (std::size_t i = 1; i < std::size(K::kQ); ++i) q = FusedMulAdd(d, q, r, hn::Set(d, K::kQ[i]));

  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V sum = hn::Add(one, hi);
  const V rest = hn::Sub(hi, hn::Sub(sum, one));  // exact, since |hi| < 1
  const V tail = hn::Add(rest, FusedMulAdd(d, hn::Mul(r, r), q, lo));
  const V e = hn::Add(sum, tail);

  // 2^n in two steps: n may lie outside the exponents of normal values on either side. The first
  // product is exact, the second rounds a subnormal result.
  const auto half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(e, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(n, half)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V v) {
  using K = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  const V x = Within(d, v, K::kLow, K::kHigh);
  const V round = hn::Set(d, K::kRound);
  const V shifted = FusedMulAdd(d, x, hn::Set(d, K::kLog2E), round);
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round));
  const V minus_n = hn::Sub(round, shifted);
  const V hi = FusedMulAdd(d, minus_n, hn::Set(d, K::kLn2Hi), x);
  const V lo = hn::Mul(minus_n, hn::Set(d, K::kLn2Lo));
  return hn::IfThenElse(hn::Eq(v, v), ScaledExp(d, n, hi, lo), v);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V v) {
  using K = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  const V x = Within(d, v, K::kLow2, K::kHigh2);
  const V round = hn::Set(d, K::kRound);
  const V shifted = hn::Add(x, round);
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round));
  const V r = hn::Sub(x, hn::Sub(shifted, round));  // exact
  const V ln2 = hn::Set(d, K::kLn2);
  const V hi = hn::Mul(r, ln2);
  const V lo = FusedMulAdd(d, r, hn::Set(d, K::kLn2Rest), FusedMulAdd(d, r, ln2, hn::Neg(hi)));
  return hn::IfThenElse(hn::Eq(v, v), ScaledExp(d, n, hi, lo), v);
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_EXP_INL_H_
