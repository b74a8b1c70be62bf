// SPDX-License-Identifier: Apache-2.0
// The products of queries with keys that lie in rows, and how rows are walked through.
#if defined(KREF_KERNELS_ROW_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ROW_DOTS_INL_H_
#undef KREF_KERNELS_ROW_DOTS_INL_H_
#else
#define KREF_KERNELS_ROW_DOTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/lanes-inl.h"
#include "kernels/row_products.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

using SixteenTag = hn::CappedTag<float, 16>;
using SixteenVec = hn::Vec<SixteenTag>;
inline constexpr Index kSixteenLanes = static_cast<Index>(hn::MaxLanes(SixteenTag()));
inline constexpr int kSixteenVectors = static_cast<int>(16 / kSixteenLanes);

using detail::HeadRows;

// The sixteen lanes of v folded 8, 4, 2, 1.
HWY_INLINE float FoldSixteen(const SixteenVec (&v)[kSixteenVectors]) {
  const SixteenTag d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const hn::Full256<float> d8;
  const hn::Full128<float> d4;
#if HWY_TARGET == HWY_AVX3
  const auto eight = hn::Add(hn::LowerHalf(d8, v[0]), hn::UpperHalf(d8, v[0]));
  static_cast<void>(d);
#else
  const auto eight = hn::Add(v[0], v[1]);
  static_cast<void>(d), static_cast<void>(d8);
#endif
  const auto four = hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
  const auto two = hn::Add(four, hn::Shuffle1032(four));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
#else
  HWY_ALIGN float lanes[16];
  for (int i = 0; i < kSixteenVectors; ++i) hn::Store(v[i], d, lanes + i * kSixteenLanes);
  for (int width = 8; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
#endif
}

// Asks for n elements that lie `ahead` bytes further on, in other rows or in what the next call
// reads: asking for memory that is not there does no harm. Without it the machine waits for rows
// that it does not foresee, at half the rate.
template <class T>
HWY_INLINE void Fetch(const T* row, Index n, Index ahead) {
  const auto at = reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(ahead);
  for (Index i = 0; i < n * static_cast<Index>(sizeof(T)); i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<std::uintptr_t>(i)), 0, 3);
  }
}
// What a memory of 50 GB/s and 200 ns has under way, and some more: 4 KiB measured 10 to 20 %
// slower.
inline constexpr Index kAheadBytes = 16384;

// Those lanes of the products of R queries with K keys, key k into sum[.][to + k]. With more than
// one key `columns` is a multiple of 16: sums that an end may add to do not stay in registers.
template <int K, class T, int R, int N>
HWY_INLINE void SumLanes(const float* x, Index x_stride, const T* row, Index row_stride,
                         Index columns, SixteenVec (&sum)[R][N][kSixteenVectors], int to) {
  const SixteenTag d;
  // Vectors that are taken together: all, or one where more sums would not stay there either.
  constexpr int kTogether = R * K * kSixteenVectors <= 8 ? kSixteenVectors : 1;
  for (int first = 0; first < kSixteenVectors; first += kTogether) {
    SixteenVec part[R][K][kTogether];
    for (int r = 0; r < R; ++r) {
      for (int k = 0; k < K; ++k) {
        for (int v = 0; v < kTogether; ++v) part[r][k][v] = hn::Zero(d);
      }
    }
    const auto add = [&](int k, int v, Index at, SixteenVec kv) HWY_ATTR {
      for (int r = 0; r < R; ++r) {
        part[r][k][v] = FusedMulAdd(d, hn::LoadU(d, x + r * x_stride + at), kv, part[r][k][v]);
      }
    };
    Index c = first * kSixteenLanes;
    for (; c + kTogether * kSixteenLanes <= columns; c += 16) {
      for (int v = 0; v < kTogether; ++v) {
        const Index at = c + v * kSixteenLanes;
        for (int k = 0; k < K; ++k) add(k, v, at, LoadWide(d, row + k * row_stride + at));
      }
    }
    if constexpr (K == 1) {
      for (int v = 0; v < kTogether; ++v) {
        const Index at = c + v * kSixteenLanes;
        if (at >= columns) break;
        const auto left = static_cast<std::size_t>(std::min(columns - at, kSixteenLanes));
        add(0, v, at, LoadWideN(d, row + at, left));
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int k = 0; k < K; ++k) {
        for (int v = 0; v < kTogether; ++v) sum[r][to + k][first + v] = part[r][k][v];
      }
    }
  }
}

// The products of R queries with one key.
template <class T, int R>
HWY_INLINE void DotsOfRow(const float* x, Index x_stride, const T* row, Index columns, float* out,
                          Index out_stride) {
  SixteenVec sum[R][1][kSixteenVectors];
  SumLanes<1>(x, x_stride, row, 0, columns, sum, 0);
  for (int r = 0; r < R; ++r) out[r * out_stride] = FoldSixteen(sum[r][0]);
}

// Keys whose products are folded together.
inline constexpr int kFoldKeys = 4;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

// Of each pair of blocks of four lanes their sum, of a in even and of b in odd blocks.
HWY_INLINE SixteenVec AddBlocks(SixteenVec a, SixteenVec b) {
  return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
}

// The folds of up to four queries (AVX2: two) with four keys, queries in blocks, keys in lanes: as
// FoldSixteen, but what one fold leaves idle serves another. A third of the operations.
template <int R>
HWY_INLINE SixteenVec FoldKeys(const SixteenVec (&sum)[R][kFoldKeys][kSixteenVectors], int r0) {
  const SixteenTag d;
  const hn::Repartition<double, SixteenTag> d64;
  SixteenVec four[kFoldKeys];
  for (int k = 0; k < kFoldKeys; ++k) {
    const auto lanes = [&](int r, int v) HWY_ATTR { return sum[(r0 + r) % R][k][v]; };
#if HWY_TARGET == HWY_AVX3
    const auto eight = [&](int r, int s) HWY_ATTR {
      const SixteenVec a = lanes(r, 0), b = lanes(s, 0);
      return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, b, a));
    };
    four[k] = AddBlocks(eight(0, 2), eight(1, 3));
#else
    const auto eight = [&](int r) HWY_ATTR { return hn::Add(lanes(r, 0), lanes(r, 1)); };
    four[k] = AddBlocks(eight(0), eight(1));
#endif
  }
  const auto two = [&](SixteenVec a, SixteenVec b) HWY_ATTR {
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                   hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  };
  const SixteenVec even = two(four[0], four[2]), odd = two(four[1], four[3]);
  return hn::Add(hn::OddEven(hn::DupEven(odd), even), hn::OddEven(odd, hn::DupOdd(even)));
}

#endif

// The products of R queries with four keys; columns: a multiple of 16.
template <class T, int R>
HWY_INLINE void DotsOfKeys(const float* x, Index x_stride, const T* row, Index row_stride,
                           Index columns, float* out, Index out_stride) {
  // Keys at a time: with AVX2 two, whose 2 R sums stay in registers.
  constexpr int kKeys = kSixteenVectors == 2 ? 2 : kFoldKeys;
  SixteenVec sum[R][kFoldKeys][kSixteenVectors];
  for (int k = 0; k < kFoldKeys; k += kKeys) {
    SumLanes<kKeys>(x, x_stride, row + k * row_stride, row_stride, columns, sum, k);
  }
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  constexpr int kQueries = static_cast<int>(kSixteenLanes) / 4;
  HWY_ALIGN float lanes[static_cast<std::size_t>(kSixteenLanes)];
  for (int r0 = 0; r0 < R; r0 += kQueries) {
    hn::Store(FoldKeys(sum, r0), SixteenTag(), lanes);
    for (int r = r0; r < std::min(R, r0 + kQueries); ++r) {
      std::copy_n(lanes + (r - r0) * kFoldKeys, kFoldKeys, out + r * out_stride);
    }
  }
#else
  for (int r = 0; r < R; ++r) {
    for (int k = 0; k < kFoldKeys; ++k) out[r * out_stride + k] = FoldSixteen(sum[r][k]);
  }
#endif
}

// Rows in groups of 4, 2 and 1; calls f(first row, group size as a constant).
template <class F>
HWY_INLINE void RowGroups(Index rows, const F& f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(r, std::integral_constant<int, 4>());
  if (r + 2 <= rows) f(r, std::integral_constant<int, 2>()), r += 2;
  if (r < rows) f(r, std::integral_constant<int, 1>());
}

// How keys are walked through: so many together, asking for memory that lies `ahead` bytes on, a
// multiple of theirs. Where each query has its own key head there is little to compute, and one
// key at a time reads memory in its order, which is quickest.
struct Walk {
  Index together, ahead;
  template <class T>
  static Walk Of(const HeadRows& a, const T*) {
    const Index together = a.heads == a.groups ? 1 : 4;  // 8 measured 5 to 20 % slower
    const Index round = together * a.key_stride * static_cast<Index>(sizeof(T));
    return {together, std::max<Index>(1, kAheadBytes / std::max<Index>(1, round)) * round};
  }
};

template <class T>
void HeadDotsOf(const HeadRows& a) {
  const Index group = a.heads / a.groups;
  const T* const rows_of_k = static_cast<const T*>(a.many);
  const Walk walk = Walk::Of(a, rows_of_k);
  for (Index key = 0; key < a.keys; key += walk.together) {
    const Index count = std::min(walk.together, a.keys - key);
    for (Index g = 0; g < a.groups; ++g) {
      const T* row = rows_of_k + key * a.key_stride + g * a.head_stride;
      for (Index j = 0; j < count; ++j) Fetch(row + j * a.key_stride, a.columns, walk.ahead);
      RowGroups(group, [&](Index r, auto rows) HWY_ATTR {
        const float* x = a.few + (g * group + r) * a.few_stride;
        float* out = a.out + (g * group + r) * a.out_stride + key;
        if (rows > 1 && count == kFoldKeys && a.columns % 16 == 0) {
          DotsOfKeys<T, rows>(x, a.few_stride, row, a.key_stride, a.columns, out, a.out_stride);
          return;
        }
        for (Index j = 0; j < count; ++j) {
          DotsOfRow<T, rows>(x, a.few_stride, row + j * a.key_stride, a.columns, out + j,
                             a.out_stride);
        }
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_ROW_DOTS_INL_H_
