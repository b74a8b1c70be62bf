// SPDX-License-Identifier: Apache-2.0
#if defined(KREF_KERNELS_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ROW_PRODUCTS_INL_H_
#undef KREF_KERNELS_ROW_PRODUCTS_INL_H_
#else
#define KREF_KERNELS_ROW_PRODUCTS_INL_H_
#endif

#include <algorithm>

#include "kernels/row_dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

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

template <class T>
void AddHeadValuesOf(const HeadRows& a) {
  constexpr int kMost = 4;  // vectors: sixteen sums and four values fit AVX-512's registers
  const Index group = a.heads / a.groups;
  const T* const rows_of_v = static_cast<const T*>(a.many);
  const Walk walk = Walk::Of(a, rows_of_v);
  for (Index key = 0; key < a.keys; key += walk.together) {
    for (Index g = 0; g < a.groups; ++g) {
      for (Index e = 0; e < a.columns;) {
        const Index left = a.columns - e;
        const bool many = left >= kMost * kSixteenLanes;
        const ValueRows<T> v{rows_of_v + key * a.key_stride + g * a.head_stride + e, a.key_stride,
                             std::min(walk.together, a.keys - key), walk.ahead};
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
