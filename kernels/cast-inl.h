// SPDX-License-Identifier: Apache-2.0
// Casts between f32 and the other float types, a plane at a time.
#if defined(KREF_KERNELS_CAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_CAST_INL_H_
#undef KREF_KERNELS_CAST_INL_H_
#else
#define KREF_KERNELS_CAST_INL_H_
#endif

#include "kernels/lanes-inl.h"
#include "kernels/tile_plan.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void WidenRow(const T* HWY_RESTRICT x, float* HWY_RESTRICT out, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(LoadWide(d, x + i), d, out + i);
  if (i < n) StoreN(LoadWideN(d, x + i, n - i), d, out + i, n - i);
}

template <bool kSaturate, class T>
HWY_INLINE void NarrowRow(const float* HWY_RESTRICT x, T* HWY_RESTRICT out, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreWide<kSaturate>(hn::LoadU(d, x + i), d, out + i);
  if (i < n) StoreWideN<kSaturate>(LoadN(d, x + i, n - i), d, out + i, n - i);
}

template <class T>
void WidenPlane(const detail::Plane& p) {
  for (Index r = 0; r < p.rows; ++r) {
    WidenRow(p.side[0].row<const T>(r), p.side[1].row<float>(r), static_cast<std::size_t>(p.cols));
  }
}

template <bool kSaturate, class T>
void NarrowPlane(const detail::Plane& p) {
  for (Index r = 0; r < p.rows; ++r) {
    NarrowRow<kSaturate>(p.side[0].row<const float>(r), p.side[1].row<T>(r),
                         static_cast<std::size_t>(p.cols));
  }
}

// f16, bf16, f8 -> f32: exact.
void CastToF32(DType from, const detail::Plane& p) {
  switch (from) {
    case DType::kF16:
      return WidenPlane<f16>(p);
    case DType::kBF16:
      return WidenPlane<bf16>(p);
    case DType::kF8E4M3:
      return WidenPlane<f8_e4m3>(p);
    default:
      return WidenPlane<f8_e5m2>(p);
  }
}

template <bool kSaturate>
void NarrowPlaneTo(DType to, const detail::Plane& p) {
  switch (to) {
    case DType::kF16:
      return NarrowPlane<kSaturate, f16>(p);
    case DType::kBF16:
      return NarrowPlane<kSaturate, bf16>(p);
    case DType::kF8E4M3:
      return NarrowPlane<kSaturate, f8_e4m3>(p);
    default:
      return NarrowPlane<kSaturate, f8_e5m2>(p);
  }
}

// f32 -> f16, bf16, f8.
void CastFromF32(DType to, bool saturate, const detail::Plane& p) {
  saturate ? NarrowPlaneTo<true>(to, p) : NarrowPlaneTo<false>(to, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_CAST_INL_H_
