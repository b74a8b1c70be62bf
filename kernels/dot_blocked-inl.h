// SPDX-License-Identifier: Apache-2.0
// dot_add by packing: pieces of x and y become panels, then every pair of panels is multiplied.

#if defined(KREF_KERNELS_DOT_BLOCKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_BLOCKED_INL_H_
#undef KREF_KERNELS_DOT_BLOCKED_INL_H_
#else
#define KREF_KERNELS_DOT_BLOCKED_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/dot_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows packed at a time, which pass by for every y panel and so must fit the second-level cache:
// 1 MiB or more where there is AVX-512 (528 x 272 f32 = 561 KiB), 512 KiB on the smallest with AVX2
// (204 KiB).
#if HWY_TARGET == HWY_AVX3
inline constexpr Index kBlockRows = 528;
#else
inline constexpr Index kBlockRows = 192;
#endif

// The part of a side that a panel is packed from: `count` of its rows, k0... along k.
template <class T>
HWY_INLINE Ahead SourceOf(const Side<T>& side, Index r0, Index count, Index k0, Index k) {
  const Index major = side.along_k ? r0 : k0, minor = side.along_k ? k0 : r0;
  Ahead a;
  a.at = reinterpret_cast<const char*>(side.data + major * side.stride + minor);
  a.stride = side.stride * static_cast<Index>(sizeof(T));
  a.row_bytes = (side.along_k ? k : count) * static_cast<Index>(sizeof(T));
  a.rows = side.along_k ? count : k;
  return a;
}

// Some rows of x at one depth, times all of y at that depth. Panels are made just before they are
// needed: x panels once, in the first round, and kept; a y panel for one round.
template <class Family, class T>
struct Block {
  using Lane = typename Family::Lane;
  const Packer<Family, T>& pack;
  const Side<T>& x;
  const Side<T>& y;
  Lane* xp;  // m rows, kRowStride apart
  Lane* yp;  // one panel
  Lane* c;   // the sums of row i0
  Index c_stride;
  Index i0, m, n, k0, k;
  bool from_zero;

  // c += x y.
  HWY_INLINE void Multiply() const {
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    const Index depth = pack.depth(k);
    for (Index j = 0; j < n; j += width) {
      const Index columns = std::min(width, n - j);
      pack.panel(y, j, columns, k0, k, pack.terms.y, yp);
      Ahead y_ahead;
      if (j + width < n) y_ahead = SourceOf(y, j + width, std::min(width, n - j - width), k0, k);
      const Index share = cdiv(y_ahead.rows, cdiv(m, kRows));
      for (Index i = 0; i < m; i += kRows) {
        const Index rows = std::min<Index>(kRows, m - i);
        Lane* xi = xp + i * kRowStride;
        Ahead x_ahead;
        if (j == 0) {
          pack.rows(x, i0 + i, rows, k0, k, pack.terms.x, xi, kRowStride);
          if (i + kRows < m)
            x_ahead = SourceOf(x, i0 + i + kRows, std::min<Index>(kRows, m - i - kRows), k0, k);
        }
        Ahead y_share = y_ahead;
        y_share.rows = std::min(share, y_ahead.rows);
        y_ahead.at += y_share.rows * y_ahead.stride;
        y_ahead.rows -= y_share.rows;
        Multiply(rows, columns,
                 {xi, yp, depth, c + i * c_stride + j, c_stride, c + (i + kRows) * c_stride + j,
                  from_zero},
                 x_ahead, y_share);
      }
    }
  }

  static HWY_INLINE void Multiply(Index rows, Index columns, const MicroArgs<Family>& a,
                                  Ahead& x_ahead, Ahead& y_ahead) {
    constexpr Index kMost = HWY_MAX_BYTES / sizeof(Lane) * kColumnVectors;
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    if (columns == width) return MicroRows<Family>(rows, a, x_ahead, y_ahead);
    // Columns past the edge are computed aside and dropped.
    HWY_ALIGN Lane edge[kRows * kMost];
    for (Index r = 0; r < rows; ++r) {
      std::fill(edge + r * width, edge + (r + 1) * width, Lane{});
      if (!a.from_zero)
        std::copy(a.c + r * a.c_stride, a.c + r * a.c_stride + columns, edge + r * width);
    }
    MicroArgs<Family> aside = a;
    aside.c = edge, aside.c_next = edge, aside.c_stride = width, aside.from_zero = false;
    MicroRows<Family>(rows, aside, x_ahead, y_ahead);
    for (Index r = 0; r < rows; ++r)
      std::copy(edge + r * width, edge + r * width + columns, a.c + r * a.c_stride);
  }
};

template <class Family, class T>
void Blocked(const DotArgs& a) {
  using Lane = typename Family::Lane;
  const Packer<Family, T> pack{terms_of(a.precision)};
  const Side<T> x{static_cast<const T*>(a.x), a.x_stride, !a.trans_x};
  const Side<T> y{static_cast<const T*>(a.y), a.y_stride, a.trans_y};
  const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
  const Index rows = std::min(a.m, kBlockRows);
  auto* xp = static_cast<Lane*>(
      dot_scratch(0, static_cast<std::size_t>(rows * kRowStride) * sizeof(Lane)));
  auto* yp =
      static_cast<Lane*>(dot_scratch(1, static_cast<std::size_t>(width * kDepth) * sizeof(Lane)));
  auto* acc = static_cast<Lane*>(a.acc);
  for (Index k0 = 0; k0 < a.k; k0 += pack.k_step()) {
    const Index k = std::min(pack.k_step(), a.k - k0);
    for (Index i0 = 0; i0 < a.m; i0 += kBlockRows) {
      const Index m = std::min(kBlockRows, a.m - i0);
      Block<Family, T>{pack, x, y,   xp, yp, acc + i0 * a.acc_stride, a.acc_stride,
                       i0,   m, a.n, k0, k,  a.from_zero && k0 == 0}
          .Multiply();
    }
  }
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
