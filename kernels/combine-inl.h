// SPDX-License-Identifier: Apache-2.0
// What reductions do with two values, and where they begin.
#if defined(KREF_KERNELS_COMBINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_COMBINE_INL_H_
#undef KREF_KERNELS_COMBINE_INL_H_
#else
#define KREF_KERNELS_COMBINE_INL_H_
#endif

#include <limits>

#include "kernels/lanes-inl.h"
#include "kernels/tile_ops.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

template <detail::Reduction kOp, class T>
constexpr T Identity() {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  return kOp == detail::Reduction::kSum   ? T{0}
         : kOp == detail::Reduction::kMax ? -kInfinity
                                          : kInfinity;
}

template <detail::Reduction kOp, class V>
HWY_INLINE V Combine(V a, V b) {
  if constexpr (kOp == detail::Reduction::kSum) {
    return hn::Add(a, b);
  } else if constexpr (kOp == detail::Reduction::kMax) {
    return Maximum(a, b);
  } else {
    return Minimum(a, b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_COMBINE_INL_H_
