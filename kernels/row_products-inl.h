// SPDX-License-Identifier: Apache-2.0
#if defined(KREF_KERNELS_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ROW_PRODUCTS_INL_H_
#undef KREF_KERNELS_ROW_PRODUCTS_INL_H_
#else
#define KREF_KERNELS_ROW_PRODUCTS_INL_H_
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

// The products of R queries with one key.
template <class T, int R>
HWY_INLINE void DotsOfRow(const float* x, Index x_stride, const T* row, Index columns, float* out,
                          Index out_stride) {
  const SixteenTag d;
  SixteenVec sum[R][kSixteenVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kSixteenVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  Index c = 0;
  for (; c + 16 <= columns; c += 16) {
    for (int v = 0; v < kSixteenVectors; ++v) {
      const Index at = c + v * kSixteenLanes;
      const SixteenVec kv = LoadWide(d, row + at);
      for (int r = 0; r < R; ++r) {
        sum[r][v] = FusedMulAdd(d, hn::LoadU(d, x + r * x_stride + at), kv, sum[r][v]);
      }
    }
  }
  for (int v = 0; v < kSixteenVectors; ++v) {
    const Index at = c + v * kSixteenLanes, left = columns - at;
    if (left <= 0) break;
    const SixteenVec kv = left >= kSixteenLanes
                              ? LoadWide(d, row + at)
                              : LoadWideN(d, row + at, static_cast<std::size_t>(left));
    for (int r = 0; r < R; ++r) {
      sum[r][v] = FusedMulAdd(d, hn::LoadU(d, x + r * x_stride + at), kv, sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) out[r * out_stride] = FoldSixteen(sum[r]);
}

// Values of `count` keys, their columns from some column on.
template <class T>
struct ValueRows {
  const T* data;
  Index stride, count, ahead;
};

// acc (R, kVectors vectors) += p v; `left` columns where that is less than one vector. `first`: of
// the groups of rows that read these values.
template <class T, int R, int kVectors>
HWY_INLINE void AddOfRows(const float* p, Index p_stride, const ValueRows<T>& v, Index left,
                          bool first, float* acc, Index acc_stride) {
  const SixteenTag d;
  SixteenVec sum[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < kVectors; ++i)
      sum[r][i] = hn::LoadU(d, acc + r * acc_stride + i * kSixteenLanes);
  }
  const T* row = v.data;
  for (Index j = 0; j < v.count; ++j, row += v.stride) {
    if (first) Fetch(row, std::min<Index>(left, kVectors * kSixteenLanes), v.ahead);
    SixteenVec values[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      values[i] = left >= kSixteenLanes ? LoadWide(d, row + i * kSixteenLanes)
                                        : LoadWideN(d, row, static_cast<std::size_t>(left));
    }
    for (int r = 0; r < R; ++r) {
      const SixteenVec weight = hn::Set(d, p[r * p_stride + j]);
      for (int i = 0; i < kVectors; ++i) sum[r][i] = FusedMulAdd(d, weight, values[i], sum[r][i]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < kVectors; ++i)
      hn::StoreU(sum[r][i], d, acc + r * acc_stride + i * kSixteenLanes);
  }
}

// Rows in groups of 4, 2 and 1; calls f(first row, group size as a constant).
template <class F>
HWY_INLINE void RowGroups(Index rows, const F& f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(r, std::integral_constant<int, 4>());
  if (r + 2 <= rows) f(r, std::integral_constant<int, 2>()), r += 2;
  if (r < rows) f(r, std::integral_constant<int, 1>());
}

template <class T>
void HeadDotsOf(const HeadRows& a) {
  const Index group = a.heads / a.groups;
  for (Index key = 0; key < a.keys; ++key) {
    for (Index g = 0; g < a.groups; ++g) {
      const T* row = static_cast<const T*>(a.many) + key * a.key_stride + g * a.head_stride;
      Fetch(row, a.columns, kAheadBytes);
      RowGroups(group, [&](Index r, auto rows) HWY_ATTR {
        const Index h = g * group + r;
        DotsOfRow<T, rows>(a.few + h * a.few_stride, a.few_stride, row, a.columns,
                           a.out + h * a.out_stride + key, a.out_stride);
      });
    }
  }
}

template <class T>
void AddHeadValuesOf(const HeadRows& a) {
  constexpr int kMost = 4;  // vectors: sixteen sums and four values fit AVX-512's registers
  const Index group = a.heads / a.groups;
  // Keys that are taken together while the sums stay in registers: one reads memory in its order,
  // which is quickest where there is little to compute; 8 measured 5 to 20 % slower than 4.
  const Index together = group == 1 ? 1 : 4;
  const Index round = together * a.key_stride * static_cast<Index>(sizeof(T));  // bytes
  const Index ahead = std::max<Index>(1, kAheadBytes / std::max<Index>(1, round)) * round;
  for (Index key = 0; key < a.keys; key += together) {
    for (Index g = 0; g < a.groups; ++g) {
      for (Index e = 0; e < a.columns;) {
        const Index left = a.columns - e;
        const bool many = left >= kMost * kSixteenLanes;
        const ValueRows<T> v{
            static_cast<const T*>(a.many) + key * a.key_stride + g * a.head_stride + e,
            a.key_stride, std::min(together, a.keys - key), ahead};
        RowGroups(group, [&](Index r, auto rows) HWY_ATTR {
          const Index h = g * group + r;
          const float* p = a.few + h * a.few_stride + key;
          float* acc = a.out + h * a.out_stride + e;
          if (many) {
            AddOfRows<T, rows, kMost>(p, a.few_stride, v, left, r == 0, acc, a.out_stride);
          } else {
            AddOfRows<T, rows, 1>(p, a.few_stride, v, left, r == 0, acc, a.out_stride);
          }
        });
        e += many ? kMost * kSixteenLanes : kSixteenLanes;
      }
    }
  }
}

void HeadDots(DType type, const HeadRows& a) {
  switch (type) {
    case DType::kF32:
      return HeadDotsOf<float>(a);
    case DType::kBF16:
      return HeadDotsOf<bf16>(a);
    case DType::kF16:
      return HeadDotsOf<f16>(a);
    case DType::kF8E4M3:
      return HeadDotsOf<f8_e4m3>(a);
    default:
      return HeadDotsOf<f8_e5m2>(a);
  }
}

void AddHeadValues(DType type, const HeadRows& a) {
  switch (type) {
    case DType::kF32:
      return AddHeadValuesOf<float>(a);
    case DType::kBF16:
      return AddHeadValuesOf<bf16>(a);
    case DType::kF16:
      return AddHeadValuesOf<f16>(a);
    case DType::kF8E4M3:
      return AddHeadValuesOf<f8_e4m3>(a);
    default:
      return AddHeadValuesOf<f8_e5m2>(a);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_ROW_PRODUCTS_INL_H_
