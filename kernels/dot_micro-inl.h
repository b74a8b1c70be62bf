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

#include <cmath>

#include "kernels/dot_args.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a * b + c, rounded once. Highway's portable targets round twice; they take the C library's fma.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FusedMulAdd([[maybe_unused]] D d, V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  using T = hn::TFromD<D>;
  HWY_ALIGN T la[16 / sizeof(T)], lb[16 / sizeof(T)], lc[16 / sizeof(T)];
  hn::Store(a, d, la);
  hn::Store(b, d, lb);
  hn::Store(c, d, lc);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lc[i] = std::fma(la[i], lb[i], lc[i]);
  return hn::Load(d, lc);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Two vectors wide. Rows: as many as leave registers for two vectors of y and one of x: AVX-512 has
// 32 (12 rows: 24 accumulators; 14 measured no better and leave a larger remainder), AVX2 16 (6
// rows: 12).
inline constexpr int kColumnVectors = 2;
#if HWY_TARGET == HWY_AVX3
inline constexpr int kRows = 12;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kRows = 6;
#else
inline constexpr int kRows = 4;
#endif

// The floats' family: one panel element is one value.
template <class T>
struct FloatFamily {
  using Lane = T;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<D> Step(D d, hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> acc) {
    return FusedMulAdd(d, x, y, acc);
  }
};

// Integers: one panel element holds the s16 values of k and k + 1; their products are added in s32,
// which cannot overflow (2 * 2^15 * 2^15 is not reached by 8-bit values), and the chain wraps.
struct PairFamily {
  using Lane = std::int32_t;
  using D = hn::ScalableTag<std::int32_t>;
  static HWY_INLINE hn::Vec<D> Step(D d, hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> acc) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    const hn::Repartition<std::int16_t, D> d16;
    auto unused = hn::Zero(d);
    return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, x), hn::BitCast(d16, y), acc, unused);
#else
    const auto low = [&](hn::Vec<D> v) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
    const auto high = [&](hn::Vec<D> v) { return hn::ShiftRight<16>(v); };
    acc = hn::Add(acc, hn::Mul(low(x), low(y)));
    static_cast<void>(d);
    return hn::Add(acc, hn::Mul(high(x), high(y)));
#endif
  }
};

// c (R, 2 vectors) += x y. x: R rows of `depth` values, x_stride apart; y: `depth` rows of 2
// vectors. c_next: the sums that the next call works on, c_stride apart as well.
// from_zero: c = x y.
template <class Family, int R>
HWY_NOINLINE void Micro(const typename Family::Lane* HWY_RESTRICT x, Index x_stride,
                        const typename Family::Lane* HWY_RESTRICT y, Index depth,
                        typename Family::Lane* HWY_RESTRICT c, Index c_stride,
                        const typename Family::Lane* c_next, bool from_zero) {
  const typename Family::D d;
  using V = hn::Vec<typename Family::D>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V acc[R][kColumnVectors];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) {
      acc[i][j] = from_zero ? hn::Zero(d) : hn::LoadU(d, c + i * c_stride + j * lanes);
    }
  }
  // The sums that come next are far away. They are asked for a line at a time, since asking for all
  // at once waits for fill buffers, and where there are none any more the request comes to nothing.
  constexpr Index kRound = 8;
  const typename Family::Lane* next = c_next;
  for (Index l0 = 0; l0 < depth; l0 += kRound) {
    hwy::Prefetch(next);
    next += (l0 / kRound) % kColumnVectors == 0 ? lanes : c_stride - lanes;
    const Index end = HWY_MIN(l0 + kRound, depth);
    for (Index l = l0; l < end; ++l) {
      V yv[kColumnVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kColumnVectors; ++j) yv[j] = hn::Load(d, y + j * lanes);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const V xv = hn::Set(d, x[i * x_stride + l]);
#pragma GCC unroll 2
        for (int j = 0; j < kColumnVectors; ++j) acc[i][j] = Family::Step(d, xv, yv[j], acc[i][j]);
      }
      y += kColumnVectors * lanes;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) hn::StoreU(acc[i][j], d, c + i * c_stride + j * lanes);
  }
}

// Micro for 1 to kRows rows.
template <class Family>
HWY_INLINE void MicroRows(Index rows, const typename Family::Lane* x, Index x_stride,
                          const typename Family::Lane* y, Index depth, typename Family::Lane* c,
                          Index c_stride, const typename Family::Lane* c_next, bool from_zero) {
  if (rows >= kRows)
    return Micro<Family, kRows>(x, x_stride, y, depth, c, c_stride, c_next, from_zero);
  Index done = 0;
  const auto take = [&](auto count) HWY_ATTR {
    constexpr int kCount = decltype(count)::value;
    if constexpr (kCount < kRows) {
      if (rows - done >= kCount) {
        Micro<Family, kCount>(x + done * x_stride, x_stride, y, depth, c + done * c_stride,
                              c_stride, c_next, from_zero);
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
