// SPDX-License-Identifier: Apache-2.0
// Packing, stochastic rounding and the approximate reciprocal: lanes of 32 bits, a plane at a time.
#if defined(KREF_KERNELS_BIT_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_BIT_OPS_INL_H_
#undef KREF_KERNELS_BIT_OPS_INL_H_
#else
#define KREF_KERNELS_BIT_OPS_INL_H_
#endif

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

using DU = hn::ScalableTag<std::uint32_t>;
using DI = hn::ScalableTag<std::int32_t>;
using DF = hn::ScalableTag<float>;
using VU = hn::Vec<DU>;

// The bits of a row of T, or of the one that is broadcast.
template <class T>
struct Words {
  const T* p;
  bool moves;
  explicit Words(const detail::Side& side, Index r)
      : p(side.row<const T>(r)), moves(side.step != 0) {}
  HWY_INLINE VU Load(std::size_t i, std::size_t n) const {
    const hn::ScalableTag<T> d;
    const auto v = !moves              ? hn::Set(d, *p)
                   : n == hn::Lanes(d) ? hn::LoadU(d, p + i)
                                       : LoadN(d, p + i, n);
    return hn::BitCast(DU(), v);
  }
};

// The first n lanes to out, as elements of T.
template <class T>
HWY_INLINE void StoreWords(VU v, T* out, std::size_t n) {
  const hn::ScalableTag<T> d;
  n == hn::Lanes(d) ? hn::StoreU(hn::BitCast(d, v), d, out) : StoreN(hn::BitCast(d, v), d, out, n);
}

// One source goes into the words: out = or_in ? out | lanes : lanes. F32 becomes bf16 first.
template <class T>
void PackPlane(const detail::Plane& p, int shift, std::uint32_t mask, bool or_in) {
  const DU d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const Words<T> x(p.side[0], r);
    auto* out = p.side[1].row<std::uint32_t>(r);
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = NextPart(n - i, lanes);
      VU v = x.Load(i, m);
      if constexpr (std::is_same_v<T, float>) {
        using Format = typename NarrowTraits<bf16>::Format;
        v = hn::BitCast(d, EncodeNarrow<Format, false>(DF(), hn::BitCast(DF(), v)));
      }
      v = hn::ShiftLeftSame(hn::And(v, hn::Set(d, mask)), shift);
      if (or_in) v = hn::Or(v, m == lanes ? hn::LoadU(d, out + i) : LoadN(d, out + i, m));
      StoreWords(v, out + i, m);
    }
  }
}

void Pack(bool from_float, int shift, std::uint32_t mask, bool or_in, const detail::Plane& p) {
  from_float ? PackPlane<float>(p, shift, mask, or_in)
             : PackPlane<std::uint32_t>(p, shift, mask, or_in);
}

// The bits below `left` positions from the top go to the top, then down to the bottom with their
// sign or without; those of bf16 stay at the top, less what came with them from below.
template <class T>
void UnpackPlane(int left, int right, bool sign, const detail::Plane& p) {
  const DU d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const Words<std::uint32_t> x(p.side[0], r);
    T* out = p.side[1].row<T>(r);
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = NextPart(n - i, lanes);
      const VU top = hn::ShiftLeftSame(x.Load(i, m), left);
      if constexpr (std::is_same_v<T, float>) {
        StoreWords(hn::And(top, hn::Set(d, 0xFFFF0000u)), out + i, m);
      } else {
        StoreWords(sign ? hn::BitCast(d, hn::ShiftRightSame(hn::BitCast(DI(), top), right))
                        : hn::ShiftRightSame(top, right),
                   out + i, m);
      }
    }
  }
}

void Unpack(bool to_float, int left, int right, bool sign, const detail::Plane& p) {
  to_float ? UnpackPlane<float>(left, right, sign, p)
           : UnpackPlane<std::uint32_t>(left, right, sign, p);
}

void StochasticRound(const detail::Plane& p) {
  const DU d;
  const hn::Rebind<std::uint16_t, DU> dn;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  const VU low = hn::Set(d, 0xFFFFu), infinity = hn::Set(d, 0x7F800000u);
  for (Index r = 0; r < p.rows; ++r) {
    const Words<float> x(p.side[0], r);
    const Words<std::uint32_t> random(p.side[1], r);
    auto* out = reinterpret_cast<std::uint16_t*>(p.side[2].row<bf16>(r));
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = NextPart(n - i, lanes);
      const VU v = x.Load(i, m);
      const VU magnitude = hn::And(v, hn::Set(d, 0x7FFFFFFFu));
      const VU rounded = hn::Add(v, hn::And(random.Load(i, m), low));
      const VU quiet = hn::Or(hn::AndNot(magnitude, v), hn::Set(d, 0x7FC00000u));
      // Signed comparisons: magnitudes have no top bit.
      const auto is = [&](VU a, VU b) {
        return hn::RebindMask(d, hn::Gt(hn::BitCast(DI(), a), hn::BitCast(DI(), b)));
      };
      const VU finite = hn::IfThenElse(is(infinity, magnitude), rounded, v);
      const VU result = hn::ShiftRight<16>(hn::IfThenElse(is(magnitude, infinity), quiet, finite));
      const auto bits = hn::DemoteTo(dn, hn::BitCast(DI(), result));
      m == lanes ? hn::StoreU(bits, dn, out + i) : StoreN(bits, dn, out + i, m);
    }
  }
}

// bf16(1 / bf16(x)).
struct ReciprocalOp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using Format = typename NarrowTraits<bf16>::Format;
    const auto narrow = [&](V v) HWY_ATTR {
      return DecodeNarrow<Format>(d, EncodeNarrow<Format, false>(d, v));
    };
    return narrow(hn::Div(hn::Set(d, 1.0f), narrow(x)));
  }
};

void ApproxReciprocal(const detail::Plane& p) { MapUnary<float, ReciprocalOp>(p); }

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_BIT_OPS_INL_H_
