// SPDX-License-Identifier: Apache-2.0
// Panels of bf16 pairs from types that are widened to f32 first: f32 in the split precisions, whose
// parts follow each other along k as if they were values, and fp8, all of whose values bf16 has.

#if defined(KREF_KERNELS_DOT_BF16_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_BF16_PARTS_INL_H_
#undef KREF_KERNELS_DOT_BF16_PARTS_INL_H_
#else
#define KREF_KERNELS_DOT_BF16_PARTS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/dot_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using kref::HWY_NAMESPACE::StoreN;

#if HWY_TARGET <= HWY_AVX3

// A piece of k at a time is packed as f32, every second panel element of which then moves in with
// the one before it.
template <class Family, class T>
requires(std::is_base_of_v<BF16Panel, Family> &&
         !std::is_same_v<T, bf16>) struct Packer<Family, T> {
  using Lane = float;
  using V = BF16Panel::V;
  static constexpr Index kPair = 2;
  static constexpr Index kPiece = 16, kMostTerms = 6;  // even, so that pairs end with it
  static constexpr Index kTurned = kRows;  // each takes kPiece * kMostTerms of the stack

  Terms terms;
  Index k_step() const { return kDepth * kPair / terms.count / kPair * kPair; }
  Index depth(Index k) const { return cdiv(k * terms.count, kPair); }
  bool plain() const { return false; }

  void rows(const Side<T>& side, Index r0, Index count, Index k0, Index k, const signed char* ranks,
            Lane* out, Index stride) const {
    const BF16Panel::D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    constexpr Index kWide = kPiece * kMostTerms;
    HWY_ALIGN float wide[kRows * kWide] = {};
    BF16Pairs::Least least[kRows];
    for (Index l = 0; l < k; l += kPiece) {
      const Index kc = std::min(kPiece, k - l), values = kc * terms.count;
      Packer<FloatFamily<float>, T>{terms}.rows(side, r0, count, k0 + l, kc, ranks, wide, kWide);
      for (Index i = 0; i < count; ++i) {
        float* row = wide + i * kWide;
        if (values % kPair != 0) row[values] = -0.0f;
        for (Index e = 0; e < values; e += kPair * lanes) {
          const V a = hn::Load(d, row + e), b = hn::Load(d, row + e + lanes);
          const V pairs = paired(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
          const Index n = std::min(lanes, cdiv(values - e, kPair));
          StoreN(pairs, d, out + i * stride + depth(l) + e / kPair, static_cast<std::size_t>(n));
          least[i].Note(hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(n)), pairs));
        }
      }
    }
    for (Index i = 0; i < count; ++i) Put(out + i * stride + kDepth, 0, least[i].Value());
  }

  void panel(const Side<T>& side, Index j0, Index count, Index k0, Index k,
             const signed char* ranks, Lane* out) const {
    const BF16Panel::D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d)), width = lanes * kColumnVectors;
    HWY_ALIGN float wide[kPiece * kMostTerms * HWY_MAX_BYTES / sizeof(float) * kColumnVectors];
    BF16Pairs::Least least;
    for (Index l = 0; l < k; l += kPiece) {
      const Index kc = std::min(kPiece, k - l), values = kc * terms.count;
      Packer<FloatFamily<float>, T>{terms}.panel(side, j0, count, k0 + l, kc, ranks, wide);
      for (Index e = 0; e < values; e += kPair) {
        const float* first = wide + e * width;
        for (Index j = 0; j < width; j += lanes, out += lanes) {
          const V next = e + 1 < values ? hn::Load(d, first + width + j) : hn::Zero(d);
          const V pairs = paired(hn::Load(d, first + j), next);
          least.Note(pairs);
          hn::Store(pairs, d, out);
        }
      }
    }
    least.Store(out + width * (kDepth - depth(k)));
  }

  // Of bf16 values as f32. A NaN may have nothing but lower bits, which are cut off.
  static HWY_INLINE V paired(V first, V second) {
    const hn::RebindToUnsigned<BF16Panel::D> du;
    const auto quiet = [&](V v) HWY_ATTR {
      const auto bits = hn::BitCast(du, v);
      return hn::BitCast(
          du, hn::IfThenElse(hn::Eq(v, v), v,
                             hn::BitCast(BF16Panel::D(), hn::Or(bits, hn::Set(du, 0x400000)))));
    };
    return hn::BitCast(BF16Panel::D(), hn::Or(hn::And(quiet(first), hn::Set(du, 0xFFFF0000u)),
                                              hn::ShiftRight<16>(quiet(second))));
  }
};

#endif  // HWY_AVX3

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
