// SPDX-License-Identifier: Apache-2.0
// threefry2x32 on vectors of counters.
#if defined(KREF_KERNELS_THREEFRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_THREEFRY_INL_H_
#undef KREF_KERNELS_THREEFRY_INL_H_
#else
#define KREF_KERNELS_THREEFRY_INL_H_
#endif

#include "kernels/lanes-inl.h"
#include "kernels/random_bits.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

template <int kBy, class V>
HWY_INLINE void ThreefryRound(V& a, V& b) {
  a = hn::Add(a, b);
  b = hn::Xor(hn::Or(hn::ShiftLeft<kBy>(b), hn::ShiftRight<32 - kBy>(b)), a);
}

// Four rounds and the next words of the key schedule.
template <int kA, int kB, int kC, int kD, class D, class V>
HWY_INLINE void ThreefryRounds(D d, V& a, V& b, std::uint32_t key_a, std::uint32_t key_b,
                               std::uint32_t number) {
  ThreefryRound<kA>(a, b);
  ThreefryRound<kB>(a, b);
  ThreefryRound<kC>(a, b);
  ThreefryRound<kD>(a, b);
  a = hn::Add(a, hn::Set(d, key_a));
  b = hn::Add(b, hn::Set(d, key_b + number));
}

template <class D, class V>
HWY_INLINE void Threefry(D d, RandomKey key, V& a, V& b) {
  const std::uint32_t k0 = key.high, k1 = key.low, k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  a = hn::Add(a, hn::Set(d, k0));
  b = hn::Add(b, hn::Set(d, k1));
  ThreefryRounds<13, 15, 26, 6>(d, a, b, k1, k2, 1);
  ThreefryRounds<17, 29, 16, 24>(d, a, b, k2, k0, 2);
  ThreefryRounds<13, 15, 26, 6>(d, a, b, k0, k1, 3);
  ThreefryRounds<17, 29, 16, 24>(d, a, b, k1, k2, 4);
  ThreefryRounds<13, 15, 26, 6>(d, a, b, k2, k0, 5);
}

// The two words of n counters from `first` on.
void ThreefryWords(RandomKey key, std::uint64_t first, std::size_t n, std::uint32_t* HWY_RESTRICT a,
                   std::uint32_t* HWY_RESTRICT b) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto steps = hn::Iota(d, 0);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::uint64_t counter = first + i;
    const auto start = hn::Set(d, static_cast<std::uint32_t>(counter));
    auto low = hn::Add(start, steps);
    // A low word that is less than the first one has wrapped, and carries into the high word.
    const auto wraps = hn::VecFromMask(d, hn::Lt(low, start));
    auto high = hn::Sub(hn::Set(d, static_cast<std::uint32_t>(counter >> 32)), wraps);
    Threefry(d, key, high, low);
    const std::size_t m = n - i < lanes ? n - i : lanes;
    if (m == lanes) {
      hn::StoreU(high, d, a + i);
      hn::StoreU(low, d, b + i);
    } else {
      StoreN(high, d, a + i, m);
      StoreN(low, d, b + i, m);
    }
  }
}

// n numbers of [low, low + range): the upper 23 bits of a ^ b behind the leading 1 of [1, 2).
void UniformWords(const std::uint32_t* HWY_RESTRICT a, const std::uint32_t* HWY_RESTRICT b,
                  std::size_t n, float low, float range, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::uint32_t> du;
  const std::size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0f), least = hn::Set(d, low), width = hn::Set(d, range);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t m = n - i < lanes ? n - i : lanes;
    const auto bits = hn::Xor(LoadN(du, a + i, m), LoadN(du, b + i, m));
    const auto in_two = hn::Or(hn::ShiftRight<9>(bits), hn::BitCast(du, one));
    const auto unit = hn::Sub(hn::BitCast(d, in_two), one);
    StoreN(hn::Max(least, FusedMulAdd(d, unit, width, least)), d, out + i, m);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_THREEFRY_INL_H_
