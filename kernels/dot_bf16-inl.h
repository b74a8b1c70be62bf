// SPDX-License-Identifier: Apache-2.0
// bf16 two at a time, for machines with AVX512_BF16: vdpbf16ps does two fused multiply-adds of a
// chain in f32, first that of the odd (upper) halves, then that of the even ones. With the value of
// k in the upper half and that of k + 1 in the lower, this is the chain that dot_add promises, at
// twice the rate.
//
// Except that it takes subnormals for zeros, in its operands and in its results. None can occur
// when
//  - each sum that is there is zero or a multiple of 2^-126, the smallest normal number: surely
//    when its magnitude is 2^-103 or more, whose last bit counts 2^-126;
//  - no value of x or y is subnormal;
//  - with ex and ey the exponents of the smallest values of x and y that are not zero, ex + ey - 14
//    is -126 or more: a value is a multiple of 2^(e - 7), so each product is one of 2^-126.
// For then sums of all lengths, rounded or not, are multiples of 2^-126, and one that is smaller is
// zero. Panels carry what is needed to tell; where it does not hold, two multiply-adds of the same
// pairs widened take the instruction's place (BF16PairsByFma), and the bits are the same.

#if defined(KREF_KERNELS_DOT_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_BF16_INL_H_
#undef KREF_KERNELS_DOT_BF16_INL_H_
#else
#define KREF_KERNELS_DOT_BF16_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/dot_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using kref::HWY_NAMESPACE::LoadN;

#if HWY_TARGET <= HWY_AVX3

// Whether each lane is; Highway 1.0.3 compares unsigned lanes for equality only.
template <class D, class V = hn::Vec<D>>
HWY_INLINE bool AtLeast(D d, V v, V bound) {
  return hn::AllTrue(d, hn::Eq(hn::Min(v, bound), bound));
}

// One panel element holds the values of k + 1 and k, as the bits of a float on which nobody
// computes. An odd k at the end is paired with -0 in x and +0 in y, whose product -0 leaves every
// sum as it is, -0 too.
struct BF16Panel {
  using Lane = float;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static HWY_INLINE V Start(D, V acc, const Lane*) { return acc; }
};

struct BF16PairsByFma : BF16Panel {
  static HWY_INLINE V Step(D d, V x, V y, V acc) {
    const hn::RebindToUnsigned<D> du;
    const auto high = [&](V v)
                          HWY_ATTR { return hn::And(v, hn::BitCast(d, hn::Set(du, 0xFFFF0000u))); };
    const auto low = [&](V v)
                         HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(du, v))); };
    return FusedMulAdd(d, low(x), low(y), FusedMulAdd(d, high(x), high(y), acc));
  }
};

struct BF16Pairs : BF16Panel {
  using Careful = BF16PairsByFma;

  // As assembly: Highway 1.0.3 has no target with AVX512_BF16.
  static HWY_INLINE V Step(D, V x, V y, V acc) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc.raw) : "v"(y.raw), "v"(x.raw));
    return acc;
  }

  // The least magnitudes of values other than zero, as 2 |bits| - 1: of a zero the largest number.
  class Least {
   public:
    HWY_INLINE Least()
        : seen_(hn::Set(d16, 0xFFFF)) {}  // spelled out: it has the target's features
    HWY_INLINE void Note(V pairs) {
      const auto bits = hn::BitCast(d16, pairs);
      seen_ = hn::Min(seen_, hn::Sub(hn::Add(bits, bits), hn::Set(d16, 1)));
    }
    HWY_INLINE void Store(Lane* to) const { hn::StoreU(hn::BitCast(D(), seen_), D(), to); }
    HWY_INLINE void Load(const Lane* from) { seen_ = hn::BitCast(d16, hn::LoadU(D(), from)); }
    HWY_INLINE bool Reaches(std::uint32_t bound) const {
      return bound <= 0xFFFF &&
             AtLeast(d16, seen_, hn::Set(d16, static_cast<std::uint16_t>(bound)));
    }
    // Of all lanes.
    std::uint32_t Value() const {
      HWY_ALIGN std::uint16_t lanes[hn::MaxLanes(decltype(d16)())];
      hn::Store(seen_, d16, lanes);
      return *std::min_element(lanes, lanes + hn::Lanes(d16));
    }

   private:
    static constexpr hn::Repartition<std::uint16_t, D> d16{};
    hn::Vec<hn::Repartition<std::uint16_t, D>> seen_;
  };

  // What Least of y has to reach beside these rows of x; 2^16 where nothing will do. The exponent
  // field of 2 |bits| - 1 is that of the value or, of a power of two, one less.
  static HWY_INLINE std::uint32_t BoundOfY(const Lane* x, Index rows) {
    std::uint32_t least = 0xFFFF;
    for (Index i = 0; i < rows; ++i) {
      std::uint32_t of_row;
      std::memcpy(&of_row, x + i * kRowStride + kDepth, sizeof(of_row));
      least = std::min(least, of_row);
    }
    constexpr std::uint32_t kBias = 127, kSum = 2 * kBias + 14 - 126;
    const std::uint32_t exponent = least >> 8;
    if (exponent == 0) return 0x10000;
    return (exponent < kSum ? kSum - exponent : 1) << 8;
  }

  // Whether sums are such that nothing subnormal comes of them.
  template <int R>
  static HWY_INLINE bool Fits(const V (&sums)[R][kColumnVectors]) {
    const hn::RebindToUnsigned<D> du;
    constexpr std::uint32_t kBound = (127 - 103) << 23;
    auto least = hn::Set(du, ~0u);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumnVectors; ++j) {
        const auto bits = hn::BitCast(du, sums[i][j]);
        least = hn::Min(least, hn::Sub(hn::Add(bits, bits), hn::Set(du, 1)));
      }
    }
    return AtLeast(du, least, hn::Set(du, 2 * kBound - 1));
  }
};

// Pairs from two vectors of values, columns in order: those of k and of k + 1.
HWY_INLINE void WeaveBF16(hn::Vec<hn::ScalableTag<std::uint16_t>> first,
                          hn::Vec<hn::ScalableTag<std::uint16_t>> second, BF16Panel::V* out) {
  const BF16Panel::D d;
  const hn::ScalableTag<std::uint16_t> d16;
  // Both halves of a vector side by side in each block, where interleaving finds them.
  const hn::Repartition<std::uint64_t, decltype(d16)> d64;
  HWY_ALIGN static constexpr std::uint64_t kOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const auto order = hn::SetTableIndices(d64, kOrder);
  const auto spread = [&](auto v) HWY_ATTR {
    return hn::BitCast(d16, hn::TableLookupLanes(hn::BitCast(d64, v), order));
  };
  const auto a = spread(first), b = spread(second);
  out[0] = hn::BitCast(d, hn::InterleaveLower(d16, b, a));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(d16, b, a));
}

// As the general one, for pairs. Rows of x and panels of y carry their Least behind them.
template <class Family>
requires std::is_base_of_v<BF16Panel, Family>
struct Packer<Family, bf16> {
  using Lane = float;
  static constexpr Index kPair = 2, kTurned = 48;
  static constexpr std::uint16_t kMinusZero = 0x8000;

  Terms terms;
  Index k_step() const { return kDepth * kPair; }
  Index depth(Index k) const { return cdiv(k, kPair); }
  bool plain() const { return true; }

  void rows(const Side<bf16>& side, Index r0, Index count, Index k0, Index k, const signed char*,
            Lane* out, Index stride) const {
    const BF16Panel::D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    if (side.along_k) {
      for (Index i = 0; i < count; ++i) {
        const bf16* src = side.data + (r0 + i) * side.stride + k0;
        if (i + 4 < count) PrefetchRow(src + 4 * side.stride, k);
        turned(src, k, out + i * stride);
      }
    } else {
      for (Index l = 0; l < k; l += kPair) {
        const bf16* src = side.data + (k0 + l) * side.stride + r0;
        for (Index i = 0; i < count; i += kPair * lanes) {
          HWY_ALIGN Lane piece[HWY_MAX_BYTES / sizeof(Lane) * kColumnVectors];
          const Index n = std::min(kPair * lanes, count - i);
          woven(src + i, l + 1 < k ? src + side.stride + i : nullptr, n, piece);
          for (Index j = 0; j < n; ++j) Put(out + (i + j) * stride, l / 2, piece[j]);
        }
      }
    }
    for (Index i = 0; i < count; ++i, out += stride) {
      if (k % kPair != 0) Put(out, k - 1, kMinusZero);
      BF16Pairs::Least least;
      Index l = 0;
      for (; l + lanes <= depth(k); l += lanes) least.Note(hn::LoadU(d, out + l));
      least.Note(LoadN(d, out + l, static_cast<std::size_t>(depth(k) - l)));
      Put(out + kDepth, 0, least.Value());
    }
  }

  void panel(const Side<bf16>& side, Index j0, Index count, Index k0, Index k, const signed char*,
             Lane* out) const {
    const BF16Panel::D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d)), width = lanes * kColumnVectors;
    if (side.along_k) {  // one stored row is one panel column
      if (count < width) std::fill(out, out + width * depth(k), Lane{});
      alignas(64) Lane row[kDepth];
      for (Index j = 0; j < count; ++j) {
        turned(side.data + (j0 + j) * side.stride + k0, k, row);
        for (Index l = 0; l < depth(k); ++l) out[l * width + j] = row[l];
      }
    } else {
      const bf16* first = side.data + k0 * side.stride + j0;
      for (Index l = 0; l < k; l += kPair, first += kPair * side.stride)
        woven(first, l + 1 < k ? first + side.stride : nullptr, count, out + l / 2 * width);
    }
    BF16Pairs::Least least;
    for (Index l = 0; l < width * depth(k); l += lanes) least.Note(hn::Load(d, out + l));
    least.Store(out + width * kDepth);
  }

  // k values in pairs, the first of each in the upper half; whole vectors, zeros after the last.
  static HWY_INLINE void turned(const bf16* src, Index k, Lane* out) {
    const hn::ScalableTag<std::uint16_t> d16;
    const hn::Repartition<std::uint32_t, decltype(d16)> d32;
    const auto lanes = static_cast<Index>(hn::Lanes(d16));
    const auto* values = reinterpret_cast<const std::uint16_t*>(src);
    for (Index l = 0; l < k; l += lanes, out += lanes / kPair) {
      const auto n = static_cast<std::size_t>(std::min(lanes, k - l));
      const auto v = hn::BitCast(d32, LoadN(d16, values + l, n));
      hn::StoreU(hn::BitCast(BF16Panel::D(), hn::RotateRight<16>(v)), BF16Panel::D(), out);
    }
  }

  // The first n columns of two rows, or of one and zeros, as 2 vectors of pairs; then zeros.
  static HWY_INLINE void woven(const bf16* first, const bf16* second, Index n, Lane* out) {
    const BF16Panel::D d;
    const hn::ScalableTag<std::uint16_t> d16;
    const auto row = [&](const bf16* src) HWY_ATTR {
      return LoadN(d16, reinterpret_cast<const std::uint16_t*>(src), static_cast<std::size_t>(n));
    };
    BF16Panel::V pairs[kColumnVectors];
    WeaveBF16(row(first), second == nullptr ? hn::Zero(d16) : row(second), pairs);
    hn::Store(pairs[0], d, out);
    hn::Store(pairs[1], d, out + hn::Lanes(d));
  }
};

// Whether the instruction does what is said above, which is known of AMD's Zen 5 by trying and of
// Intel by its manual: chains of random values that just may be multiplied by it, against Careful.
inline bool BF16PairsDo() {
  const BF16Panel::D d;
  const hn::RebindToUnsigned<BF16Panel::D> du;
  constexpr std::size_t kLanes = hn::MaxLanes(BF16Panel::D());
  std::uint32_t state = 1;
  // Exponent fields from 71 on: the sum of two is 142 or more.
  const auto pair = [&](std::uint32_t exponents) {
    const auto half = [&] {
      state = state * 1664525u + 1013904223u;
      return (state >> 8 & 0x807Fu) | (71u + (state >> 24) % exponents) << 7;
    };
    const std::uint32_t high = half() << 16;
    return high | half();
  };
  HWY_ALIGN std::uint32_t x[kLanes], y[kLanes];
  auto sum = hn::Zero(d);
  for (int step = 0; step < 512; ++step) {
    if (step % 16 == 0) sum = hn::Set(d, step % 32 == 0 ? 0.0f : -0.0f);
    // One exponent only: sums which cancel to a few units or to zero. More: sums that are rounded.
    const std::uint32_t exponents = step % 32 < 16 ? 1 : 60;
    for (std::size_t i = 0; i < kLanes; ++i) x[i] = pair(exponents), y[i] = pair(exponents);
    if (step % 16 == 0) x[0] = 0x80008000u, y[0] = 0;  // what an odd k is paired with
    const auto xv = hn::BitCast(d, hn::Load(du, x)), yv = hn::BitCast(d, hn::Load(du, y));
    const auto expected = BF16PairsByFma::Step(d, xv, yv, sum);
    sum = BF16Pairs::Step(d, xv, yv, sum);
    if (!hn::AllTrue(du, hn::Eq(hn::BitCast(du, sum), hn::BitCast(du, expected)))) return false;
  }
  return true;
}

// Whether bf16 can be multiplied in pairs here; tried once.
inline bool HasBF16Pairs() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && BF16PairsDo();
  return has;
}

#endif  // HWY_AVX3

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
