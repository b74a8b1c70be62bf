// SPDX-License-Identifier: Apache-2.0
// log x and tanh x in f32.
#if defined(KREF_KERNELS_LOG_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_LOG_TANH_INL_H_
#undef KREF_KERNELS_LOG_TANH_INL_H_
#else
#define KREF_KERNELS_LOG_TANH_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

// c[0] x^(n-1) + ... + c[n-1].
template <class D, std::size_t kN, class V = hn::Vec<D>>
HWY_INLINE V Horner(D d, V x, const float (&c)[kN]) {
  V p = hn::Set(d, c[0]);
  for (std::size_t i = 1; i < kN; ++i) p = FusedMulAdd(d, p, x, hn::Set(d, c[i]));
  return p;
}

// x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log x = k ln 2 + f - f^2/2 + f^3 p(f). k ln 2
// and f are added with their rounding error kept, so that only the last addition rounds at the
// scale of the result.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V v) {
  static_assert(std::is_same_v<hn::TFromD<D>, float>);
  using K = ExpConstants<float>;
  // p at the Chebyshev nodes of the range of f, interpolated; error 2^-28.1 of the result.
  static constexpr float kP[] = {0x1.1d8ea6p-4f,  -0x1.d635bcp-4f, 0x1.dea282p-4f,
                                 -0x1.fcf4c6p-4f, 0x1.23d21ap-3f,  -0x1.555b4ap-3f,
                                 0x1.999d5ap-3f,  -0x1.fffffcp-3f, 0x1.555554p-2f};
  const hn::RebindToSigned<D> di;
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const auto small = hn::Lt(v, hn::Set(d, std::numeric_limits<float>::min()));
  const V x = hn::IfThenElse(small, hn::Mul(v, hn::Set(d, 0x1p25f)), v);
  // Of the bits of sqrt(1/2), so that the exponent of the difference is k.
  constexpr std::int32_t kRoot = 0x3F3504F3;
  const auto above = hn::Sub(hn::BitCast(di, x), hn::Set(di, kRoot));
  const auto k_int = hn::ShiftRight<23>(above);
  const V m = hn::BitCast(d, hn::Sub(hn::BitCast(di, x), hn::ShiftLeft<23>(k_int)));
  const V k = hn::Sub(hn::ConvertTo(d, k_int), hn::IfThenElse(small, hn::Set(d, 25.0f), zero));
  const V f = hn::Sub(m, one);  // exact

  const V hi = hn::Mul(k, hn::Set(d, K::kLn2Hi));  // exact
  const V sum = hn::Add(hi, f);
  const V rest = hn::IfThenElse(hn::Eq(k, zero), zero, hn::Add(hn::Sub(hi, sum), f));
  const V squares = hn::Mul(f, f);
  const V cubic =
      FusedMulAdd(d, squares, hn::Set(d, -0.5f), hn::Mul(hn::Mul(squares, f), Horner(d, f, kP)));
  const V tail = hn::Add(FusedMulAdd(d, k, hn::Set(d, K::kLn2Lo), rest), cubic);
  V log = hn::Add(sum, tail);

  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  log = hn::IfThenElse(hn::Eq(v, infinity), infinity, log);
  log = hn::IfThenElse(hn::Eq(v, zero), hn::Neg(infinity), log);
  log = hn::IfThenElse(hn::Lt(v, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), log);
  return hn::IfThenElse(hn::Eq(v, v), log, v);
}

// Up to 1: x + x^3 q(x^2). Beyond: 1 - 2 / (e^2x + 1), whose second term is small enough there to
// bring its error near half a unit of the result.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V v) {
  static_assert(std::is_same_v<hn::TFromD<D>, float>);
  // The constant is -1/3 rounded; the others interpolate at Chebyshev nodes of [0.1, 1] what it
  // leaves. Error 2^-26.5 of the result.
  static constexpr float kQ[] = {0x1.533336p-13f, -0x1.0251f8p-10f, 0x1.aeb32p-9f,
                                 -0x1.1eaa0cp-7f, 0x1.65ef1ap-6f,   -0x1.ba17d6p-5f,
                                 0x1.111118p-3f,  -0x1.555556p-2f};
  const V one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const V x = hn::Abs(v);
  const V squares = hn::Mul(x, x);
  const V near = FusedMulAdd(d, hn::Mul(squares, x), Horner(d, squares, kQ), x);
  const V e = Exp(d, hn::Add(x, x));
  const V far = hn::Sub(one, hn::Div(two, hn::Add(e, one)));
  const V result = hn::IfThenElse(hn::Lt(x, one), near, far);
  return hn::IfThenElse(hn::Eq(v, v), hn::CopySign(result, v), v);
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_LOG_TANH_INL_H_
