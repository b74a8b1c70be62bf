// SPDX-License-Identifier: Apache-2.0
// The register-blocked heart of dot_add: rows x (2 vectors of columns), along k.

#if defined(KREF_KERNELS_DOT_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_MICRO_INL_H_
#undef KREF_KERNELS_DOT_MICRO_INL_H_
#else
#define KREF_KERNELS_DOT_MICRO_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/dot_args.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using kref::HWY_NAMESPACE::FusedMulAdd;

// A family whose Step is good for most values only: Family::Careful is the one that does the same
// for all, from the same panels. Least, BoundOfY and Fits tell which to take (dot_bf16-inl.h).
template <class Family>
concept HasCareful = requires {
  typename Family::Careful;
};
struct NoLeast {
  template <class V>
  HWY_INLINE void Note(V) {}
  template <class Lane>
  HWY_INLINE void Store(Lane*) const {}
};
template <class Family>
struct LeastOfFamily {
  using type = NoLeast;
};
template <HasCareful Family>
struct LeastOfFamily<Family> {
  using type = typename Family::Least;
};
template <class Family>
using LeastOf = typename LeastOfFamily<Family>::type;

// Two vectors wide. Rows: as many as leave registers for two vectors of y and one of x: AVX-512 has
// 32 (12 rows: 24 accumulators; 14 measured no better and leave a larger remainder), AVX2 16 (6
// rows: 12).
inline constexpr int kColumnVectors = 2;
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kRows = 12;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kRows = 6;
#else
inline constexpr int kRows = 4;
#endif

// The floats' family: one panel element is one value. Start: what a row's sums begin with, given
// what they were and the row of x.
template <class T>
struct FloatFamily {
  using Lane = T;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<D> Start(D, hn::Vec<D> acc, const Lane*) { return acc; }
  static HWY_INLINE hn::Vec<D> Step(D d, hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> acc) {
    return FusedMulAdd(d, x, y, acc);
  }
};

// Integers: one panel element holds the s16 values of k and k + 1; their products are added in s32,
// which cannot overflow (2 * 2^15 * 2^15 is not reached by 8-bit values), and the chain wraps.
struct PairFamily {
  using Lane = std::int32_t;
  using D = hn::ScalableTag<std::int32_t>;
  static HWY_INLINE hn::Vec<D> Start(D, hn::Vec<D> acc, const Lane*) { return acc; }
  static HWY_INLINE hn::Vec<D> Step(D d, hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> acc) {
#if HWY_TARGET <= HWY_AVX2
    const hn::Repartition<std::int16_t, D> d16;
    auto unused = hn::Zero(d);
    acc = hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, x), hn::BitCast(d16, y), acc, unused);
    // g++ 12 would form the products of several steps first and keep the sums in memory meanwhile:
    // 210 spills for 120 products, half the rate. This holds each sum in its register.
    asm("" : "+v"(acc.raw));
    return acc;
#else
    const auto low = [&](hn::Vec<D> v) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
    const auto high = [&](hn::Vec<D> v) { return hn::ShiftRight<16>(v); };
    acc = hn::Add(acc, hn::Mul(low(x), low(y)));
    static_cast<void>(d);
    return hn::Add(acc, hn::Mul(high(x), high(y)));
#endif
  }
};

// Panel depth: panel elements along k. A y panel of 256 f32 rows of 32 columns is 32 KiB and stays
// in the first-level cache while the x panels pass by.
inline constexpr Index kDepth = 256;
// Rows of an x panel lie this far apart: a little more than the depth, so that the rows which the
// micro-kernel reads side by side do not fall into the same set of the cache.
inline constexpr Index kRowStride = kDepth + 16;

// Values of l that the micro-kernel takes at once.
inline constexpr Index kUnroll = 4;

// Memory that is wanted soon, `rows` rows of row_bytes: the micro-kernel asks for it line by line
// while it computes, so that packing, which has nothing to compute, need not wait for it.
struct Ahead {
  const char* at = nullptr;
  Index stride = 0;  // bytes between rows
  Index row_bytes = 0;
  Index rows = 0;
  Index byte = 0;   // how much of the row in hand has been asked for
  Index quota = 0;  // lines at a time

  // Spreads the requests evenly over `depth` rows of y, since asking for all at once waits for fill
  // buffers, and where there are none any more a request comes to nothing.
  HWY_INLINE void Spread(Index depth) {
    quota = cdiv(cdiv(row_bytes, 64) * rows, std::max<Index>(1, depth / kUnroll));
  }
  // Asks for the next lines. Into the second level: the first is full of panels.
  HWY_INLINE void Fetch() {
    for (Index count = quota; count > 0 && rows > 0; --count) {
      __builtin_prefetch(at + byte, 0, 2);
      byte += 64;
      if (byte >= row_bytes) at += stride, --rows, byte = 0;
    }
  }
};

// What a call of the micro-kernel works on.
template <class Family>
struct MicroArgs {
  const typename Family::Lane* x;  // rows of `depth` values, kRowStride apart
  typename Family::Lane* y;        // `depth` rows of 2 vectors, aligned
  Index depth;
  typename Family::Lane* c;  // rows of 2 vectors, c_stride apart
  Index c_stride;
  const typename Family::Lane* c_next;  // the sums that the next call works on, c_stride apart
  bool from_zero;                       // c = x y instead of c += x y
};

// Where Micro takes the rows of y from: a panel that is there.
template <class Family>
struct FromPanel {
  static constexpr bool kPacks = false;
  HWY_INLINE void Load(typename Family::Lane* HWY_RESTRICT y, Index l,
                       hn::Vec<typename Family::D>* out) {
    const typename Family::D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j)
      out[j] = hn::Load(d, y + (l * kColumnVectors + j) * lanes);
  }
  HWY_INLINE void Advance(Index) {}
  HWY_INLINE void Finish(typename Family::Lane*) const {}
};

// Whether Family::Step is good for R rows of x and the panel of y.
template <class Family, int R>
HWY_INLINE bool PanelsFit(const MicroArgs<Family>& a) {
  const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
  typename Family::Least least;
  least.Load(a.y + width * kDepth);
  return least.Reaches(Family::BoundOfY(a.x, R));
}

// The same call for another family of the same panels.
template <class Other, class Family>
HWY_INLINE MicroArgs<Other> As(const MicroArgs<Family>& a) {
  return {a.x, a.y, a.depth, a.c, a.c_stride, a.c_next, a.from_zero};
}

// One row of y times R values of x, `l` rows further on.
template <class Family, int R, class Source, class V>
HWY_INLINE void MicroStep(const typename Family::Lane* HWY_RESTRICT x,
                          typename Family::Lane* HWY_RESTRICT y, Index l, Source& source,
                          V (&acc)[R][kColumnVectors]) {
  const typename Family::D d;
  V yv[kColumnVectors];
  source.Load(y, l, yv);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    const V xv = hn::Set(d, x[i * kRowStride + l]);
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) acc[i][j] = Family::Step(d, xv, yv[j], acc[i][j]);
  }
}

// c (R, 2 vectors) += x y, and meanwhile a share of what lies ahead is fetched.
template <class Family, int R, class Source = FromPanel<Family>>
HWY_NOINLINE void Micro(const MicroArgs<Family>& a, Ahead& first, Ahead& second,
                        Source source = {}) {
  const typename Family::D d;
  using V = hn::Vec<typename Family::D>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const typename Family::Lane* HWY_RESTRICT x = a.x;
  typename Family::Lane* HWY_RESTRICT y = a.y;
  typename Family::Lane* HWY_RESTRICT c = a.c;
  V acc[R][kColumnVectors];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) {
      acc[i][j] = a.from_zero ? hn::Zero(d) : hn::LoadU(d, c + i * a.c_stride + j * lanes);
      acc[i][j] = Family::Start(d, acc[i][j], x + i * kRowStride);
    }
  }
  if constexpr (HasCareful<Family>) {
    if (!Family::Fits(acc) || !(Source::kPacks || PanelsFit<Family, R>(a)))
      return Micro<typename Family::Careful, R>(As<typename Family::Careful>(a), first, second,
                                                source);
  }
  constexpr Index kRound = 16;
  const typename Family::Lane* next = a.c_next;
  const Index rounds = a.depth / kRound;
  for (Index round = 0; round < rounds; ++round) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) hwy::Prefetch(next + j * lanes);
    next += a.c_stride;
    for (Index l = 0; l < kRound; l += kUnroll) {
      first.Fetch();
      second.Fetch();
#pragma GCC unroll 4
      for (Index u = 0; u < kUnroll; ++u) MicroStep<Family, R>(x, y, u, source, acc);
      x += kUnroll;
      source.Advance(kUnroll);
      y += kUnroll * kColumnVectors * lanes;
    }
  }
  for (Index l = 0; l < a.depth % kRound; ++l) MicroStep<Family, R>(x, y, l, source, acc);
  source.Finish(a.y);
  if constexpr (HasCareful<Family> && Source::kPacks) {
    // The panel is there now and the sums are still what they were.
    if (!PanelsFit<Family, R>(a))
      return Micro<typename Family::Careful, R>(As<typename Family::Careful>(a), first, second,
                                                FromPanel<typename Family::Careful>());
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j)
      hn::StoreU(acc[i][j], d, c + i * a.c_stride + j * lanes);
  }
}

// Micro for 1 to kRows rows.
template <class Family>
HWY_INLINE void MicroRows(Index rows, const MicroArgs<Family>& a, Ahead& first, Ahead& second) {
  if (rows >= kRows) return Micro<Family, kRows>(a, first, second);
  MicroArgs<Family> part = a;
  Index done = 0;
  const auto take = [&](auto count) HWY_ATTR {
    constexpr int kCount = decltype(count)::value;
    if constexpr (kCount < kRows) {
      if (rows - done >= kCount) {
        Micro<Family, kCount>(part, first, second);
        part.x += kCount * kRowStride;
        part.c += kCount * a.c_stride;
        done += kCount;
      }
    }
  };
  // Any number below 12 is a sum of some of these.
  take(std::integral_constant<int, 8>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 2>());
  take(std::integral_constant<int, 1>());
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
