// SPDX-License-Identifier: Apache-2.0
// The loops of element by element verbs over rows of f64, f32, f16, bf16, computed in f64 or f32.
#if defined(KREF_KERNELS_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_MAP_INL_H_
#undef KREF_KERNELS_MAP_INL_H_
#else
#define KREF_KERNELS_MAP_INL_H_
#endif

#include "kernels/lanes-inl.h"
#include "kernels/tile_plan.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

// One input along a row: vectors of it, or the one element that is broadcast.
template <class D, class T>
struct RowInput {
  const T* p;
  bool moves;
  hn::Vec<D> first;

  HWY_INLINE RowInput(D d, const detail::Side& side, Index row)
      : p(side.row<const T>(row)),
        moves(side.step != 0),
        first(hn::Set(d, static_cast<Wide<T>>(*p))) {}
  HWY_INLINE hn::Vec<D> Load(D d, std::size_t i) const {
    return moves ? LoadWide(d, p + i) : first;
  }
  HWY_INLINE hn::Vec<D> LoadN(D d, std::size_t i, std::size_t n) const {
    return moves ? LoadWideN(d, p + i, n) : first;
  }
};

// How many elements the next vector takes of those that are left. The portable target takes all of
// a row this way: loops over whole vectors would be a second copy of every operation, and its
// copies are what a compiler with sanitizers spends its time on.
HWY_INLINE std::size_t NextPart(std::size_t left, std::size_t lanes) {
  return left < lanes ? left : lanes;
}

// out = op(inputs), all operands of element type T, the output last.
template <class T, class Op>
void MapUnary(const detail::Plane& p) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const RowInput<decltype(d), T> x(d, p.side[0], r);
    T* out = p.side[1].row<T>(r);
    std::size_t i = 0;
    if constexpr (!kPortable) {
      for (; i + lanes <= n; i += lanes) StoreWide(Op()(d, x.Load(d, i)), d, out + i);
    }
    for (; i < n; i += lanes) {
      const std::size_t m = NextPart(n - i, lanes);
      StoreWideN(Op()(d, x.LoadN(d, i, m)), d, out + i, m);
    }
  }
}

template <class T, class Op>
void MapBinary(const detail::Plane& p) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const RowInput<decltype(d), T> x(d, p.side[0], r), y(d, p.side[1], r);
    T* out = p.side[2].row<T>(r);
    std::size_t i = 0;
    if constexpr (!kPortable) {
      for (; i + lanes <= n; i += lanes) StoreWide(Op()(d, x.Load(d, i), y.Load(d, i)), d, out + i);
    }
    for (; i < n; i += lanes) {
      const std::size_t m = NextPart(n - i, lanes);
      StoreWideN(Op()(d, x.LoadN(d, i, m), y.LoadN(d, i, m)), d, out + i, m);
    }
  }
}

template <class T, class Op>
void MapTernary(const detail::Plane& p) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t lanes = hn::Lanes(d), n = static_cast<std::size_t>(p.cols);
  for (Index r = 0; r < p.rows; ++r) {
    const RowInput<decltype(d), T> x(d, p.side[0], r), y(d, p.side[1], r), z(d, p.side[2], r);
    T* out = p.side[3].row<T>(r);
    std::size_t i = 0;
    if constexpr (!kPortable) {
      for (; i + lanes <= n; i += lanes) {
        StoreWide(Op()(d, x.Load(d, i), y.Load(d, i), z.Load(d, i)), d, out + i);
      }
    }
    for (; i < n; i += lanes) {
      const std::size_t m = NextPart(n - i, lanes);
      StoreWideN(Op()(d, x.LoadN(d, i, m), y.LoadN(d, i, m), z.LoadN(d, i, m)), d, out + i, m);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_MAP_INL_H_
