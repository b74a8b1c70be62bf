// SPDX-License-Identifier: Apache-2.0
#if defined(KREF_KERNELS_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ROW_PRODUCTS_INL_H_
#undef KREF_KERNELS_ROW_PRODUCTS_INL_H_
#else
#define KREF_KERNELS_ROW_PRODUCTS_INL_H_
#endif

#include <algorithm>

#include "kernels/lanes-inl.h"
#include "kernels/row_products.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

using SixteenTag = hn::CappedTag<float, 16>;
using SixteenVec = hn::Vec<SixteenTag>;
inline constexpr Index kSixteenLanes = static_cast<Index>(hn::MaxLanes(SixteenTag()));
inline constexpr int kSixteenVectors = static_cast<int>(16 / kSixteenLanes);

using detail::RowsOf;

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

// Asks for a row some rows ahead: they lie far apart, which a machine does not foresee.
template <class T>
HWY_INLINE void FetchRow(const T* row, Index n) {
  constexpr Index kLine = static_cast<Index>(64 / sizeof(T));
  for (Index i = 0; i < n; i += kLine) __builtin_prefetch(row + i, 0, 3);
}
inline constexpr Index kRowsAhead = 12;

template <class T, int R>
HWY_NOINLINE void DotsOfRows(const float* x, Index x_stride, const RowsOf& k, float* out,
                             Index out_stride) {
  const SixteenTag d;
  const T* row = static_cast<const T*>(k.data);
  for (Index j = 0; j < k.rows; ++j, row += k.stride) {
    if (j + kRowsAhead < k.rows) FetchRow(row + kRowsAhead * k.stride, k.columns);
    SixteenVec sum[R][kSixteenVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kSixteenVectors; ++v) sum[r][v] = hn::Zero(d);
    }
    for (Index c = 0; c < k.columns; c += 16) {
      for (int v = 0; v < kSixteenVectors; ++v) {
        const Index at = c + v * kSixteenLanes, left = k.columns - at;
        if (left <= 0) break;
        const SixteenVec kv = left >= kSixteenLanes
                                  ? LoadWide(d, row + at)
                                  : LoadWideN(d, row + at, static_cast<std::size_t>(left));
        for (int r = 0; r < R; ++r) {
          sum[r][v] = FusedMulAdd(d, hn::LoadU(d, x + r * x_stride + at), kv, sum[r][v]);
        }
      }
    }
    for (int r = 0; r < R; ++r) out[r * out_stride + j] = FoldSixteen(sum[r]);
  }
}

// kVectors vectors of columns of acc, from column e on; `left` columns where that is less than one.
template <class T, int R, int kVectors>
HWY_NOINLINE void AddOfRows(const float* p, Index p_stride, const RowsOf& v, Index e, Index left,
                            float* acc, Index acc_stride) {
  const SixteenTag d;
  SixteenVec sum[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < kVectors; ++i)
      sum[r][i] = hn::LoadU(d, acc + r * acc_stride + e + i * kSixteenLanes);
  }
  const T* row = static_cast<const T*>(v.data) + e;
  for (Index j = 0; j < v.rows; ++j, row += v.stride) {
    if (j + kRowsAhead < v.rows)
      FetchRow(row + kRowsAhead * v.stride, std::min<Index>(left, kVectors * kSixteenLanes));
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
      hn::StoreU(sum[r][i], d, acc + r * acc_stride + e + i * kSixteenLanes);
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
void RowDotsOf(const RowsOf& x, const RowsOf& k, float* out, Index out_stride) {
  const auto* xp = static_cast<const float*>(x.data);
  RowGroups(x.rows, [&](Index r, auto group) HWY_ATTR {
    DotsOfRows<T, group>(xp + r * x.stride, x.stride, k, out + r * out_stride, out_stride);
  });
}

template <class T>
void AddRowsOf(const RowsOf& p, const RowsOf& v, float* acc, Index acc_stride) {
  constexpr int kMost = 4;  // vectors: sixteen sums and four values fit AVX-512's registers
  const auto* pp = static_cast<const float*>(p.data);
  for (Index e = 0; e < v.columns;) {
    const Index left = v.columns - e;
    const bool many = left >= kMost * kSixteenLanes;
    RowGroups(p.rows, [&](Index r, auto group) HWY_ATTR {
      float* to = acc + r * acc_stride;
      const float* from = pp + r * p.stride;
      if (many) {
        AddOfRows<T, group, kMost>(from, p.stride, v, e, left, to, acc_stride);
      } else {
        AddOfRows<T, group, 1>(from, p.stride, v, e, left, to, acc_stride);
      }
    });
    e += many ? kMost * kSixteenLanes : kSixteenLanes;
  }
}

void RowDots(DType type, const RowsOf& x, const RowsOf& k, float* out, Index out_stride) {
  switch (type) {
    case DType::kF32:
      return RowDotsOf<float>(x, k, out, out_stride);
    case DType::kBF16:
      return RowDotsOf<bf16>(x, k, out, out_stride);
    case DType::kF16:
      return RowDotsOf<f16>(x, k, out, out_stride);
    case DType::kF8E4M3:
      return RowDotsOf<f8_e4m3>(x, k, out, out_stride);
    default:
      return RowDotsOf<f8_e5m2>(x, k, out, out_stride);
  }
}

void AddRows(DType type, const RowsOf& p, const RowsOf& v, float* acc, Index acc_stride) {
  switch (type) {
    case DType::kF32:
      return AddRowsOf<float>(p, v, acc, acc_stride);
    case DType::kBF16:
      return AddRowsOf<bf16>(p, v, acc, acc_stride);
    case DType::kF16:
      return AddRowsOf<f16>(p, v, acc, acc_stride);
    case DType::kF8E4M3:
      return AddRowsOf<f8_e4m3>(p, v, acc, acc_stride);
    default:
      return AddRowsOf<f8_e5m2>(p, v, acc, acc_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_ROW_PRODUCTS_INL_H_
