// SPDX-License-Identifier: Apache-2.0
// Widening rows of any element type to panel elements, and splitting f32 into bfloat16 parts.

#if defined(KREF_KERNELS_DOT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_PACK_INL_H_
#undef KREF_KERNELS_DOT_PACK_INL_H_
#else
#define KREF_KERNELS_DOT_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "kernels/dot_args.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector of panel elements from as many values of the source, exact. f16 has an instruction.
using kref::HWY_NAMESPACE::LoadWide;
#if HWY_TARGET <= HWY_AVX2
inline constexpr bool kLoadsF16 = true;
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const f16* src) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(src)));
}
#else
inline constexpr bool kLoadsF16 = false;
#endif
// Other element types are quicker through scalars or tables.
template <class D, class T>
concept HasLoadWide = std::is_same_v<T, hn::TFromD<D>> || std::is_same_v<T, bf16> ||
    (std::is_same_v<T, f16>&& kLoadsF16);

// out[i] = src[i] as a panel element, exact. Reads nothing past src[n - 1].
template <class T, class Lane>
requires(!std::is_integral_v<T> && sizeof(T) > 1) HWY_INLINE
    void WidenRow(const T* src, Index n, Lane* out) {
  const hn::ScalableTag<Lane> d;
  Index i = 0;
  if constexpr (HasLoadWide<decltype(d), T>) {
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) hn::StoreU(LoadWide(d, src + i), d, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<Lane>(src[i]);
}

template <class F8>
requires(sizeof(F8) == 1 && !std::is_integral_v<F8>) HWY_INLINE
    void WidenRow(const F8* src, Index n, float* out) {
  static const auto* const table = [] {
    static float values[256];
    for (int b = 0; b < 256; ++b)
      values[b] = static_cast<float>(F8::from_bits(static_cast<std::uint8_t>(b)));
    return values;
  }();
  for (Index i = 0; i < n; ++i) out[i] = table[src[i].bits];
}

// out[at] = value, where out may be read as something else later: pairs of s16 are s32 panel
// elements.
template <class T>
HWY_INLINE void Put(void* out, Index at, T value) {
  std::memcpy(static_cast<char*>(out) + at * static_cast<Index>(sizeof(T)), &value, sizeof(T));
}

// 8-bit integers to s16, in natural order: two neighbours are a pair.
template <class I>
requires(sizeof(I) == 1 && std::is_integral_v<I>) HWY_INLINE
    void WidenRow(const I* src, Index n, void* out) {
  const hn::ScalableTag<std::int16_t> d16;
  const hn::Rebind<I, decltype(d16)> d8;
  const auto lanes = static_cast<Index>(hn::Lanes(d16));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::PromoteTo(d16, hn::LoadU(d8, src + i)), d16,
               static_cast<std::int16_t*>(out) + i);
  }
  for (; i < n; ++i) Put(out, i, static_cast<std::int16_t>(src[i]));
}

// Each value rounded to bfloat16, to nearest even; NaN stays NaN.
template <class DF, class VF = hn::Vec<DF>>
HWY_INLINE VF RoundToBF16(DF df, VF v) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded =
      hn::And(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd), hn::Set(du, 0xFFFF0000u));
  return hn::IfThenElse(hn::Eq(v, v), hn::BitCast(df, rounded), v);
}

// The part of rank 0, 1 or 2 (hi, mid, lo) of each value.
template <class DF, class VF = hn::Vec<DF>>
HWY_INLINE VF Part(DF df, VF v, int rank) {
  VF part = RoundToBF16(df, v);
  for (int r = 0; r < rank; ++r) {
    v = hn::Sub(v, part);
    part = RoundToBF16(df, v);
  }
  return part;
}

// The products formed for one k, in order: the ranks of the parts of x and of y.
struct Terms {
  int count;
  signed char x[6], y[6];
};
inline Terms terms_of(Precision precision) {
  switch (precision) {
    case Precision::kBF16:
      return {1, {0}, {0}};
    case Precision::kBF16x3:
      return {3, {1, 0, 0}, {0, 1, 0}};
    case Precision::kBF16x6:
      return {6, {2, 1, 0, 1, 0, 0}, {0, 1, 2, 0, 1, 0}};
    case Precision::kF32:
      break;
  }
  return {1, {-1}, {-1}};  // -1: the value itself
}

// row[i] = the part of that rank of row[i]; any count, in place or not.
HWY_INLINE void PartRow(const float* row, Index n, int rank, float* out) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<Index>(hn::Lanes(df));
  Index i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(Part(df, hn::LoadU(df, row + i), rank), df, out + i);
  const hn::CappedTag<float, 1> d1;
  for (; i < n; ++i) hn::StoreU(Part(d1, hn::LoadU(d1, row + i), rank), d1, out + i);
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
