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

// Columns packed at a time: 256 x 512 f32 = 512 KiB, from the second- or third-level cache; each
// panel is read once for a block of rows.
inline constexpr Index kBlockColumns = 512;
// Rows packed at a time, which pass by for every y panel and so must fit the second-level cache:
// 1 MiB or more where there is AVX-512 (528 x 272 f32 = 561 KiB), 512 KiB on the smallest with AVX2
// (204 KiB).
#if HWY_TARGET == HWY_AVX3
inline constexpr Index kBlockRows = 528;
#else
inline constexpr Index kBlockRows = 192;
#endif

// c += one block of x rows times the panels of one block of y columns.
template <class Family>
HWY_INLINE void MultiplyPanels(const typename Family::Lane* x, Index rows,
                               const typename Family::Lane* y, Index columns, Index depth,
                               typename Family::Lane* c, Index c_stride, bool from_zero) {
  using Lane = typename Family::Lane;
  const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
  HWY_ALIGN Lane edge[kRows * kColumnVectors * HWY_MAX_BYTES / sizeof(Lane)];
  for (Index j = 0; j < columns; j += width) {
    const Lane* panel = y + j * depth;
    const Index n = std::min(width, columns - j);
    for (Index i = 0; i < rows; i += kRows) {
      const Index m = std::min<Index>(kRows, rows - i);
      const Lane* xi = x + i * kRowStride;
      Lane* cij = c + i * c_stride + j;
      if (n == width) {
        MicroRows<Family>(m, xi, kRowStride, panel, depth, cij, c_stride, cij + kRows * c_stride,
                          from_zero);
        continue;
      }
      // Columns past the edge are computed aside and dropped.
      for (Index r = 0; r < m; ++r) {
        std::fill(edge + r * width, edge + (r + 1) * width, Lane{});
        if (!from_zero) std::copy(cij + r * c_stride, cij + r * c_stride + n, edge + r * width);
      }
      MicroRows<Family>(m, xi, kRowStride, panel, depth, edge, width, edge, false);
      for (Index r = 0; r < m; ++r)
        std::copy(edge + r * width, edge + r * width + n, cij + r * c_stride);
    }
  }
}

template <class Family, class T>
void Blocked(const DotArgs& a) {
  using Lane = typename Family::Lane;
  const Packer<Family, T> pack{terms_of(a.precision)};
  const Side<T> x{static_cast<const T*>(a.x), a.x_stride, !a.trans_x};
  const Side<T> y{static_cast<const T*>(a.y), a.y_stride, a.trans_y};
  const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
  const Index rows = std::min(a.m, kBlockRows),
              columns = cdiv(std::min(a.n, kBlockColumns), width) * width;
  auto* xp = static_cast<Lane*>(
      dot_scratch(0, static_cast<std::size_t>(rows * kRowStride) * sizeof(Lane)));
  auto* yp =
      static_cast<Lane*>(dot_scratch(1, static_cast<std::size_t>(columns * kDepth) * sizeof(Lane)));
  auto* acc = static_cast<Lane*>(a.acc);
  for (Index k0 = 0; k0 < a.k; k0 += pack.k_step()) {
    const Index k = std::min(pack.k_step(), a.k - k0);
    const Index depth = pack.depth(k);
    for (Index j0 = 0; j0 < a.n; j0 += kBlockColumns) {
      const Index n = std::min(kBlockColumns, a.n - j0);
      pack.panels(y, j0, n, k0, k, pack.terms.y, yp);
      for (Index i0 = 0; i0 < a.m; i0 += kBlockRows) {
        const Index m = std::min(kBlockRows, a.m - i0);
        pack.rows(x, i0, m, k0, k, pack.terms.x, xp, kRowStride);
        MultiplyPanels<Family>(xp, m, yp, n, depth, acc + i0 * a.acc_stride + j0, a.acc_stride,
                               a.from_zero && k0 == 0);
      }
    }
  }
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
