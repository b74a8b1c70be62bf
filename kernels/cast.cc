// SPDX-License-Identifier: Apache-2.0
// cast: the pairs that matter for speed go through vectors, the others through plain loops.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cast-inl.h"

#if HWY_ONCE

#include <algorithm>

#include "kernels/convert.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

HWY_EXPORT(CastToF32);
HWY_EXPORT(CastFromF32);

bool is_narrow(DType type) { return is_float(type) && size_of(type) <= 2; }

// One narrow type to another by way of f32, which holds every narrow value: one rounding.
void cast_narrow(DType from, DType to, bool saturate, const Plane& p) {
  constexpr Index kChunk = 512;
  float wide[kChunk];
  const auto from_size = static_cast<Index>(size_of(from)),
             to_size = static_cast<Index>(size_of(to));
  for (Index r = 0; r < p.rows; ++r) {
    for (Index c = 0; c < p.cols; c += kChunk) {
      const Index n = std::min(kChunk, p.cols - c);
      Side x{static_cast<char*>(p.side[0].data) + (r * p.side[0].row_stride + c) * from_size, n, 1};
      Side out{static_cast<char*>(p.side[1].data) + (r * p.side[1].row_stride + c) * to_size, n, 1};
      HWY_DYNAMIC_DISPATCH(CastToF32)(from, Plane{1, n, {x, {wide, n, 1}}});
      HWY_DYNAMIC_DISPATCH(CastFromF32)(to, saturate, Plane{1, n, {Side{wide, n, 1}, out}});
    }
  }
}

template <class S, class T>
void cast_plain(bool saturate, const Plane& p) {
  for (Index r = 0; r < p.rows; ++r) {
    const S* x = p.side[0].row<const S>(r);
    T* out = p.side[1].row<T>(r);
    if (p.side[0].step == 0) {
      std::fill_n(out, p.cols, convert<T>(*x, saturate));
    } else {
      for (Index c = 0; c < p.cols; ++c) out[c] = convert<T>(x[c], saturate);
    }
  }
}

void cast_plane(DType from, DType to, bool saturate, const Plane& p) {
  const bool vectors = p.side[0].step == 1;
  if (vectors && is_narrow(from) && to == DType::kF32)
    return HWY_DYNAMIC_DISPATCH(CastToF32)(from, p);
  if (vectors && from == DType::kF32 && is_narrow(to))
    return HWY_DYNAMIC_DISPATCH(CastFromF32)(to, saturate, p);
  if (vectors && is_narrow(from) && is_narrow(to)) return cast_narrow(from, to, saturate, p);
  with_dtype(from,
             [&]<class S>() { with_dtype(to, [&]<class T>() { cast_plain<S, T>(saturate, p); }); });
}

}  // namespace

void cast(const ArrayRef& x, const MutableArrayRef& out, Overflow overflow) {
  const bool saturate = overflow == Overflow::kSaturate;
  KREF_CHECK(!saturate || is_narrow(out.dtype), "cast: saturating to ", name_of(out.dtype),
             " has no meaning, expected F16, BF16, F8_E4M3 or F8_E5M2");
  if (x.dtype == out.dtype && !saturate) return copy(x, out, "cast");
  const Operand operands[] = {{"x", x}, {"out", out}};
  const TilePlan plan("cast", operands, 2);
  plan.for_each([&](const Plane& p) { cast_plane(x.dtype, out.dtype, saturate, p); });
}

}  // namespace kref::detail
#endif  // HWY_ONCE
