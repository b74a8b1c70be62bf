// SPDX-License-Identifier: Apache-2.0
// 8-bit integers four at a time, for machines with AVX512_VNNI: vpdpbusd adds four products of an
// unsigned and a signed byte to an s32, without saturation. It takes half the instructions and half
// the panel bytes of pairs of s16.
//
// One side has to be of the other sign: y is stored with its upper bit turned, which makes y + 128
// (unsigned) of s8 and y - 128 (signed) of u8. What that adds, 128 times the sum of the row of x,
// is taken off again when a row's sums are loaded; s32 wraps, so the bits are those of the exact
// sum.

#if defined(KREF_KERNELS_DOT_QUADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_QUADS_INL_H_
#undef KREF_KERNELS_DOT_QUADS_INL_H_
#else
#define KREF_KERNELS_DOT_QUADS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/dot_panels-inl.h"

#if HWY_TARGET == HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One panel element holds the values of k to k + 3. I is the element type of both sides.
template <class I>
struct QuadFamily {
  using Lane = std::int32_t;
  using D = hn::ScalableTag<std::int32_t>;
  using V = hn::Vec<D>;
  static constexpr bool kSigned = std::is_signed_v<I>;

  // As assembly: Highway's target has no AVX512_VNNI among its features though it requires it.
  static HWY_INLINE V Step(D, V x, V y, V acc) {
    if constexpr (kSigned) {
      asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(y.raw), "v"(x.raw));
    } else {
      asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(x.raw), "v"(y.raw));
    }
    return acc;
  }
  // The sums of a row less what turning the bit adds to them; it stands behind the row's values.
  static HWY_INLINE V Start(D d, V acc, const Lane* x) {
    return hn::Add(acc, hn::Set(d, x[kDepth]));
  }
};

// As the general one, for quads. Rows of x carry what Start adds.
template <class I>
struct Packer<QuadFamily<I>, I> {
  using Lane = std::int32_t;
  static constexpr Index kPair = 4, kTurned = 48;

  Terms terms;
  Index k_step() const { return kDepth * kPair; }
  Index depth(Index k) const { return cdiv(k, kPair); }
  bool plain() const { return true; }

  void rows(const Side<I>& side, Index r0, Index count, Index k0, Index k, const signed char*,
            Lane* out, Index stride) const {
    const Index bytes = depth(k) * kPair;
    const auto row = [&](Index i) { return reinterpret_cast<I*>(out + i * stride); };
    if (side.along_k) {
      for (Index i = 0; i < count; ++i) {
        const I* src = side.data + (r0 + i) * side.stride + k0;
        if (i + 4 < count) PrefetchRow(src + 4 * side.stride, k);
        std::memcpy(row(i), src, static_cast<std::size_t>(k));
      }
    } else {
      for (Index l = 0; l < k; ++l) {
        const I* src = side.data + (k0 + l) * side.stride + r0;
        for (Index i = 0; i < count; ++i) row(i)[l] = src[i];
      }
    }
    for (Index i = 0; i < count; ++i) {
      std::memset(row(i) + k, 0, static_cast<std::size_t>(bytes - k));  // makes any y count nothing
      std::int32_t sum = 0;
      for (Index l = 0; l < k; ++l) sum += row(i)[l];
      out[i * stride + kDepth] = QuadFamily<I>::kSigned ? -128 * sum : 128 * sum;
    }
  }

  void panel(const Side<I>& side, Index j0, Index count, Index k0, Index k, const signed char*,
             Lane* out) const {
    const auto width = static_cast<Index>(hn::Lanes(hn::ScalableTag<Lane>())) * kColumnVectors;
    auto* to = reinterpret_cast<std::uint8_t*>(out);
    const auto turned = [](I v) {
      return static_cast<std::uint8_t>(static_cast<std::uint8_t>(v) ^ 0x80);
    };
    Index l = 0;
    if (side.along_k) {
      for (Index j = 0; j < count; ++j) {
        const I* src = side.data + (j0 + j) * side.stride + k0;
        for (Index i = 0; i < k; ++i)
          to[(i / kPair * width + j) * kPair + i % kPair] = turned(src[i]);
      }
      return;
    }
    const I* first = side.data + k0 * side.stride + j0;
    if (count == width) {
      for (; l + kPair <= k; l += kPair, first += kPair * side.stride, to += width * kPair)
        for (Index j = 0; j < width; j += 16) Weave(first + j, side.stride, to + j * kPair);
    }
    for (; l < k; l += kPair, first += kPair * side.stride, to += width * kPair)
      for (Index i = 0; i < std::min(kPair, k - l); ++i)
        for (Index j = 0; j < count; ++j) to[j * kPair + i] = turned(first[i * side.stride + j]);
  }

  // 16 columns of four rows: bytes woven in twos, then twos in fours.
  static HWY_INLINE void Weave(const I* first, Index stride, std::uint8_t* to) {
    const hn::Full128<std::uint8_t> d8;
    const hn::Full128<std::uint16_t> d16;
    const auto* src = reinterpret_cast<const std::uint8_t*>(first);
    const auto bit = hn::Set(d8, 0x80);
    const auto row = [&](Index i)
                         HWY_ATTR { return hn::Xor(hn::LoadU(d8, src + i * stride), bit); };
    const auto a = row(0), b = row(1), c = row(2), e = row(3);
    const auto low = [&](auto p, auto q)
                         HWY_ATTR { return hn::BitCast(d16, hn::InterleaveLower(d8, p, q)); };
    const auto high = [&](auto p, auto q)
                          HWY_ATTR { return hn::BitCast(d16, hn::InterleaveUpper(d8, p, q)); };
    const auto ab0 = low(a, b), ce0 = low(c, e), ab1 = high(a, b), ce1 = high(c, e);
    hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(d16, ab0, ce0)), d8, to);
    hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(d16, ab0, ce0)), d8, to + 16);
    hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(d16, ab1, ce1)), d8, to + 32);
    hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(d16, ab1, ce1)), d8, to + 48);
  }
};

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_AVX3_DL
#endif  // toggle
