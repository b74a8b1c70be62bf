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

#include "kernels/dot_bf16-inl.h"
#include "kernels/dot_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows packed at a time, which pass by for every y panel and so must fit the second-level cache:
// 1 MiB or more where there is AVX-512 (528 x 272 f32 = 561 KiB), 512 KiB on the smallest with AVX2
// (204 KiB).
#if HWY_TARGET <= HWY_AVX3
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

// True where two vectors of panel elements can be made from stored rows of T in registers.
template <class Family, class T>
inline constexpr bool kLoadsColumns = std::is_same_v<Family, PairFamily>
                                          ? HWY_TARGET <= HWY_AVX2
                                          : HasLoadWide<typename Family::D, T> &&
                                                (!HasCareful<Family> || std::is_same_v<T, bf16>);

// Two vectors of panel elements of depth `l`, columns j...
template <class Family, class T>
HWY_INLINE void LoadColumns(const T* y, Index stride, Index l, Index j,
                            hn::Vec<typename Family::D>* out) {
  const typename Family::D d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  if constexpr (std::is_same_v<Family, PairFamily>) {
#if HWY_TARGET <= HWY_AVX2
    const hn::Full128<T> d8;
    const hn::Repartition<std::int16_t, typename Family::D> d16;
    const T* first = y + 2 * l * stride + j;
    const T* second = first + stride;
    // 16 columns of two rows, woven as bytes: pairs in order, eight in each half.
#if HWY_TARGET <= HWY_AVX3
    const hn::Full256<T> d8x2;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const auto a = hn::LoadU(d8, first + v * lanes), b = hn::LoadU(d8, second + v * lanes);
      const auto woven =
          hn::Combine(d8x2, hn::InterleaveUpper(d8, a, b), hn::InterleaveLower(d8, a, b));
      out[v] = hn::BitCast(d, hn::PromoteTo(d16, woven));
    }
#else
    const auto a = hn::LoadU(d8, first), b = hn::LoadU(d8, second);
    out[0] = hn::BitCast(d, hn::PromoteTo(d16, hn::InterleaveLower(d8, a, b)));
    out[1] = hn::BitCast(d, hn::PromoteTo(d16, hn::InterleaveUpper(d8, a, b)));
#endif
#else
    static_cast<void>(y), static_cast<void>(stride), static_cast<void>(l), static_cast<void>(j),
        static_cast<void>(out);
#endif
#if HWY_TARGET <= HWY_AVX3
  } else if constexpr (std::is_base_of_v<BF16Panel, Family>) {
    const hn::ScalableTag<std::uint16_t> d16;
    const auto* first = reinterpret_cast<const std::uint16_t*>(y + 2 * l * stride + j);
    WeaveBF16(hn::LoadU(d16, first), hn::LoadU(d16, first + stride), out);
#endif
  } else {
    out[0] = LoadWide(d, y + l * stride + j);
    out[1] = LoadWide(d, y + l * stride + j + lanes);
  }
}

// Where the first rows of x take y from: its stored rows, which become the panel in passing, so
// that packing has no time of its own.
template <class Family, class T>
struct FromStored {
  static constexpr bool kPacks = true;
  static constexpr Index kPair = Packer<Family, T>::kPair;
  const T* at;  // the stored row of panel row 0
  Index stride;
  LeastOf<Family> least{};

  HWY_INLINE void Load(typename Family::Lane* HWY_RESTRICT y, Index l,
                       hn::Vec<typename Family::D>* out) {
    const typename Family::D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    LoadColumns<Family, T>(at, stride, l, 0, out);
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) {
      least.Note(out[j]);
      hn::Store(out[j], d, y + (l * kColumnVectors + j) * lanes);
    }
  }
  HWY_INLINE void Advance(Index rows) { at += rows * kPair * stride; }
  HWY_INLINE void Finish(typename Family::Lane* y) const {
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    least.Store(y + width * kDepth);
  }
};

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
  Index k_next;  // values of k that y is needed for next, from k0 + k on; 0: none
  bool from_zero;

  // c += x y.
  HWY_INLINE void Multiply() const {
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    const Index depth = pack.depth(k);
    for (Index j = 0; j < n; j += width) {
      const Index columns = std::min(width, n - j);
      Ahead y_ahead = AfterPanel(j);
      const bool packs = !PacksInPassing(columns);
      if (packs) pack.panel(y, j, columns, k0, k, pack.terms.y, yp);
      constexpr Index kTurned = Packer<Family, T>::kTurned;
      Index packed = j == 0 ? 0 : m;  // rows of x that are panels
      for (Index i = 0, rows = 0; i < m; i += rows) {
        rows = RowsOf(m - i);
        Ahead x_ahead;
        if (packed < i + rows) {
          const Index count = x.along_k ? rows : std::min(kTurned, m - packed);
          pack.rows(x, i0 + packed, count, k0, k, pack.terms.x, xp + packed * kRowStride,
                    kRowStride);
          packed += count;
        }
        if (const Index next = packed + (x.along_k ? 0 : i % kTurned); j == 0 && next < m) {
          x_ahead = SourceOf(x, i0 + next, std::min<Index>(kRows, m - next), k0, k);
          x_ahead.Spread(depth);
        }
        const MicroArgs<Family> args{
            xp + i * kRowStride,           yp,       depth, c + i * c_stride + j, c_stride,
            c + (i + rows) * c_stride + j, from_zero};
        if (i > 0 || packs) {
          Multiply(rows, columns, args, x_ahead, y_ahead);
        } else {
          MultiplyStored(rows, y.data + k0 * y.stride + j, y.stride, args, x_ahead, y_ahead);
        }
      }
    }
  }

  // How many of `left` rows the micro-kernel takes: of 13 to 16 not 12, as four or fewer by
  // themselves keep the multipliers waiting for what they are to multiply.
  static constexpr Index RowsOf(Index left) {
    if (kRows == 12 && left > 12 && left <= 16) return 8;
    return std::min<Index>(kRows, left);
  }

  // What to ask for while the panel at column j is in use: the next one, at the end the first of
  // the depths that follow. More than one panel at a time measured no better, but where a row of
  // one is a single line of memory: then a half of the rows of the next two, 10 % quicker for 16
  // rows of x; four no better.
  HWY_INLINE Ahead AfterPanel(Index j) const {
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    Ahead a;
    const Index odd = j / width % 2, two = j + (2 - odd) * width;  // the next two panels
    if (HasCareful<Family> && width * static_cast<Index>(sizeof(T)) <= 64 && !y.along_k &&
        two + 2 * width <= n && k % 2 == 0) {
      a = SourceOf(y, two, 2 * width, k0 + odd * (k / 2), k / 2);
    } else if (j + width < n) {
      a = SourceOf(y, j + width, std::min(width, n - j - width), k0, k);
    } else if (k_next > 0) {
      a = SourceOf(y, 0, std::min(width, n), k0 + k, k_next);
    }
    a.Spread(cdiv(m, kRows) * pack.depth(k));
    return a;
  }

  // The fewest rows for which y is packed in passing; for fewer, it is read where it lies (Stream).
  static constexpr int kRowsInPassing = std::min(kRows, 8);
  HWY_INLINE bool PacksInPassing(Index columns) const {
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    return kLoadsColumns<Family, T> && m >= kRowsInPassing && columns == width && !y.along_k &&
           pack.plain() && k % Packer<Family, T>::kPair == 0;
  }

  // The first rows of a panel that is packed in passing.
  static HWY_INLINE void MultiplyStored(Index rows, const T* stored, Index stride,
                                        const MicroArgs<Family>& a, Ahead& x_ahead,
                                        Ahead& y_ahead) {
    if constexpr (kLoadsColumns<Family, T>) {
      const FromStored<Family, T> source{stored, stride};
      if (rows == kRows) return Micro<Family, kRows>(a, x_ahead, y_ahead, source);
      Micro<Family, kRowsInPassing>(a, x_ahead, y_ahead, source);
      if (rows == kRowsInPassing) return;
      MicroArgs<Family> rest = a;
      rest.x += kRowsInPassing * kRowStride, rest.c += kRowsInPassing * a.c_stride;
      MicroRows<Family>(rows - kRowsInPassing, rest, x_ahead, y_ahead);
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
  // One more vector, for what panels of some families carry behind them.
  auto* yp = static_cast<Lane*>(
      dot_scratch(1, static_cast<std::size_t>(width * (kDepth + 1)) * sizeof(Lane)));
  auto* acc = static_cast<Lane*>(a.acc);
  for (Index k0 = 0; k0 < a.k; k0 += pack.k_step()) {
    const Index k = std::min(pack.k_step(), a.k - k0);
    for (Index i0 = 0; i0 < a.m; i0 += kBlockRows) {
      const Index m = std::min(kBlockRows, a.m - i0);
      const Index k_next = i0 + m == a.m ? std::min(pack.k_step(), a.k - k0 - k) : 0;
      Block<Family, T>{pack, x,   y,  xp, yp,     acc + i0 * a.acc_stride, a.acc_stride, i0,
                       m,    a.n, k0, k,  k_next, a.from_zero && k0 == 0}
          .Multiply();
    }
  }
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
