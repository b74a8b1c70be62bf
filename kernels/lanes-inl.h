// SPDX-License-Identifier: Apache-2.0
// What every family of verbs needs of vectors: parts of a vector at the end of a row, a fused
// multiply-add on every target, and element types read and written as the type computed in.
#if defined(KREF_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_LANES_INL_H_
#undef KREF_KERNELS_LANES_INL_H_
#else
#define KREF_KERNELS_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "dsl/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
inline constexpr bool kPortable = true;
#else
inline constexpr bool kPortable = false;
#endif

// Highway 1.0.3 loads 8- and 16-bit lanes whole and blends afterwards (AVX2, portable), which
// touches memory past the end. Native masks do not.
template <class T>
inline constexpr bool kMaskedAccess =
    !kPortable && HWY_ARCH_X86 && (sizeof(T) >= 4 || HWY_TARGET <= HWY_AVX3);

// The first n lanes from p, the others 0; 0 <= n < Lanes(d). Reads n elements, not one more.
// Upstream has these two from 1.0.6 on.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadN(D d, const T* p, std::size_t n) {
  if constexpr (kMaskedAccess<T>) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)] = {};
    std::memcpy(lanes, p, n * sizeof(T));
    return hn::Load(d, lanes);
  }
}

// The first n lanes to p; writes n elements, not one more.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreN(hn::Vec<D> v, D d, T* p, std::size_t n) {
  if constexpr (kMaskedAccess<T>) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(v, d, lanes);
    std::memcpy(p, lanes, n * sizeof(T));
  }
}

// a * b + c rounded once. hn::MulAdd rounds twice on the portable target.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FusedMulAdd(D d, V a, V b, V c) {
  if constexpr (kPortable) {
    using T = hn::TFromD<D>;
    HWY_ALIGN T la[hn::MaxLanes(D())], lb[hn::MaxLanes(D())], lc[hn::MaxLanes(D())];
    hn::Store(a, d, la), hn::Store(b, d, lb), hn::Store(c, d, lc);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) la[i] = std::fma(la[i], lb[i], lc[i]);
    return hn::Load(d, la);
  } else {
    return hn::MulAdd(a, b, c);
  }
}

// IEEE 754-2019 maximum and minimum: NaN when either is NaN, -0 < +0. Equal lanes differ at most in
// the sign of a zero, which the bitwise operation settles.
template <class V>
HWY_INLINE V Maximum(V a, V b) {
  const V unequal = hn::IfThenElse(hn::Gt(a, b), a, hn::IfThenElse(hn::Lt(a, b), b, hn::Add(a, b)));
  return hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), unequal);
}
template <class V>
HWY_INLINE V Minimum(V a, V b) {
  const V unequal = hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Gt(a, b), b, hn::Add(a, b)));
  return hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), unequal);
}

template <class T>
struct NarrowTraits;
template <class F, class B>
struct NarrowTraits<detail::Narrow<F, B>> {
  using Format = F;
  using Bits = B;
};

// Bits of the narrow values nearest to v, as Format::encode, in lanes of 32 bits.
template <class Format, bool kSaturate, class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> EncodeNarrow(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  constexpr int kDrop = 23 - Format::kMantissaWidth;
  constexpr bool kSameExponents = Format::kBias == 127;  // bf16
  const auto i32 = [](std::uint32_t x) { return static_cast<std::int32_t>(x); };

  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<31 - (Format::kExponentWidth + Format::kMantissaWidth)>(
      hn::Xor(bits, magnitude));
  // Half a unit less one, plus the last kept bit: ties go to even. A carry runs into the exponent.
  const auto odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, (1u << (kDrop - 1)) - 1)), odd);
  auto field = hn::BitCast(di, hn::ShiftRight<kDrop>(rounded));
  const auto wide = hn::BitCast(di, magnitude);
  if constexpr (!kSameExponents) {
    field = hn::Sub(field, hn::Set(di, (127 - Format::kBias) << Format::kMantissaWidth));
    // Below the smallest normal value: the unit of `unit` is that of the subnormals, so the sum
    // rounds to it and holds the field in its last bits.
    constexpr std::uint32_t kUnit =
        static_cast<std::uint32_t>(127 + 23 + Format::kMinExponent - Format::kMantissaWidth) << 23;
    const auto unit = hn::BitCast(df, hn::Set(du, kUnit));
    const auto sum = hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), unit));
    const auto small = hn::Lt(wide, hn::Set(di, (127 + Format::kMinExponent) << 23));
    field = hn::IfThenElse(small, hn::Sub(sum, hn::Set(di, i32(kUnit))), field);
  }
  if constexpr (!kSameExponents || kSaturate) {
    const std::uint32_t overflow = kSaturate               ? Format::kLargest
                                   : !Format::kHasInfinity ? Format::kNan
                                                           : Format::kInfinity;
    field = hn::IfThenElse(hn::Gt(field, hn::Set(di, i32(Format::kLargest))),
                           hn::Set(di, i32(overflow)), field);
  }
  field =
      hn::IfThenElse(hn::Gt(wide, hn::Set(di, 0x7F800000)), hn::Set(di, i32(Format::kNan)), field);
  return hn::Or(field, hn::BitCast(di, sign));
}

// The values of the bits, as Format::decode. The bits come in lanes of 32 bits.
template <class Format, class DF>
HWY_INLINE hn::Vec<DF> DecodeNarrow(DF df, hn::Vec<hn::RebindToSigned<DF>> bits) {
  const hn::RebindToSigned<DF> di;
  constexpr int kShift = 23 - Format::kMantissaWidth;
  if constexpr (Format::kBias == 127) {
    return hn::BitCast(df, hn::ShiftLeft<kShift>(bits));
  } else {
    const auto magnitude = hn::And(bits, hn::Set(di, static_cast<std::int32_t>(Format::kSign - 1)));
    const auto sign = hn::ShiftLeft<31 - (Format::kExponentWidth + Format::kMantissaWidth)>(
        hn::Xor(bits, magnitude));
    const auto shifted = hn::ShiftLeft<kShift>(magnitude);
    auto wide = hn::Add(shifted, hn::Set(di, (127 - Format::kBias) << 23));
    if constexpr (!Format::kHasInfinity) {
      const auto nan = hn::Eq(magnitude, hn::Set(di, static_cast<std::int32_t>(Format::kNan)));
      wide = hn::IfThenElse(nan, hn::Set(di, 0x7FC00000), wide);
    } else {
      const auto special =
          hn::Gt(magnitude, hn::Set(di, static_cast<std::int32_t>(Format::kInfinity - 1)));
      wide = hn::IfThenElse(special, hn::Or(shifted, hn::Set(di, 0x7F800000)), wide);
    }
    constexpr auto kUnit =
        static_cast<std::uint32_t>(127 + Format::kMinExponent - Format::kMantissaWidth) << 23;
    const auto unit = hn::BitCast(df, hn::Set(di, static_cast<std::int32_t>(kUnit)));
    const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(df, magnitude), unit));
    const auto small = hn::Lt(magnitude, hn::Set(di, 1 << Format::kMantissaWidth));
    return hn::BitCast(df, hn::Or(hn::IfThenElse(small, subnormal, wide), sign));
  }
}

// The type that elements of T are computed in.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

// Lanes(d) elements from p, or the first n < Lanes(d), as lanes of the wide type.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadWide(D d, const T* p) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return hn::LoadU(d, p);
  } else {
    using Traits = NarrowTraits<T>;
    const hn::Rebind<typename Traits::Bits, D> db;
    const auto bits = hn::LoadU(db, reinterpret_cast<const typename Traits::Bits*>(p));
    return DecodeNarrow<typename Traits::Format>(d, hn::PromoteTo(hn::RebindToSigned<D>(), bits));
  }
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadWideN(D d, const T* p, std::size_t n) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return LoadN(d, p, n);
  } else {
    using Traits = NarrowTraits<T>;
    const hn::Rebind<typename Traits::Bits, D> db;
    const auto bits = LoadN(db, reinterpret_cast<const typename Traits::Bits*>(p), n);
    return DecodeNarrow<typename Traits::Format>(d, hn::PromoteTo(hn::RebindToSigned<D>(), bits));
  }
}

// The other way round: rounded once to T where it is narrower.
template <bool kSaturate = false, class D, class T>
HWY_INLINE void StoreWide(hn::Vec<D> v, D d, T* p) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    hn::StoreU(v, d, p);
  } else {
    using Traits = NarrowTraits<T>;
    const hn::Rebind<typename Traits::Bits, D> db;
    const auto bits = hn::DemoteTo(db, EncodeNarrow<typename Traits::Format, kSaturate>(d, v));
    hn::StoreU(bits, db, reinterpret_cast<typename Traits::Bits*>(p));
  }
}
template <bool kSaturate = false, class D, class T>
HWY_INLINE void StoreWideN(hn::Vec<D> v, D d, T* p, std::size_t n) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    StoreN(v, d, p, n);
  } else {
    using Traits = NarrowTraits<T>;
    const hn::Rebind<typename Traits::Bits, D> db;
    const auto bits = hn::DemoteTo(db, EncodeNarrow<typename Traits::Format, kSaturate>(d, v));
    StoreN(bits, db, reinterpret_cast<typename Traits::Bits*>(p), n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_LANES_INL_H_
