// SPDX-License-Identifier: Apache-2.0
// dot_add for few rows of x: y is read where it lies, once, and never packed.
//
// Floors, for m rows against a y of k x n elements of s bytes: s k n bytes through memory, 2 m k n
// operations. Packing would read and write y twice more, which is most of the time when m is small.

#if defined(KREF_KERNELS_DOT_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_STREAM_INL_H_
#undef KREF_KERNELS_DOT_STREAM_INL_H_
#else
#define KREF_KERNELS_DOT_STREAM_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/dot_blocked-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of x that share each y vector: twice as many accumulators, two y vectors and one of x must
// fit the registers (32 or 16).
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kStreamRows = 8;
#else
inline constexpr int kStreamRows = 4;
#endif
// Panel elements of depth taken at once: each acc vector is loaded and stored once for as many y
// vectors, and as many rows of y are read side by side, which memory likes. Measured with 16 to 64
// rows: 8 is 10 to 30 % slower, 32 no quicker. Pairs of bf16 are two rows each: with 8 elements 8
// rows of x take 15 % less time than with 16, with 4 elements 1 to 4 rows 25 to 30 % less; 2 are
// slower again.
template <class Family>
constexpr Index StreamDepth(Index rows) {
  return !HasCareful<Family> ? 16 : rows <= 4 ? 4 : 8;
}
// Columns whose sums stay near while all of k passes. 256 and 1024 measured 5 to 15 % slower, but
// for pairs of bf16 1024 up to 10 % quicker.
template <class Family>
inline constexpr Index kStreamColumns = HasCareful<Family> ? 1024 : 512;
// Rows of x up to which streaming beats packing in passing: at 8 rows by 5 % for types that are
// widened, while f32 loses 5 %.
template <class T>
inline constexpr Index kStreamMaxRows = sizeof(T) < 4 ? 8 : 7;

// acc (R, n) += x y for `depth` panel elements of k. x: depth rows of R values. n: a multiple of
// two vectors. `ahead`: how far below the y that is needed next lies, in elements; 0 for nowhere.
template <class Family, class T, int R>
HWY_NOINLINE void StreamRows(const typename Family::Lane* HWY_RESTRICT x, const T* HWY_RESTRICT y,
                             Index y_stride, Index depth, Index n,
                             typename Family::Lane* HWY_RESTRICT acc, Index acc_stride, Index ahead,
                             bool from_zero, std::uint32_t bound) {
  constexpr Index kPair = Packer<Family, T>::kPair;
  const typename Family::D d;
  using V = hn::Vec<typename Family::D>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index j = 0; j < n; j += 2 * lanes) {
    V sum[R][2];
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      sum[i][0] = from_zero ? hn::Zero(d) : hn::LoadU(d, acc + i * acc_stride + j);
      sum[i][1] = from_zero ? hn::Zero(d) : hn::LoadU(d, acc + i * acc_stride + j + lanes);
    }
    LeastOf<Family> least;
    bool fits = true;
    if constexpr (HasCareful<Family>) fits = Family::Fits(sum);
    const typename Family::Lane* xl = x;
    for (Index l = 0; l < depth; ++l, xl += R) {
      V yv[2];
      LoadColumns<Family, T>(y, y_stride, l, j, yv);
      least.Note(yv[0]), least.Note(yv[1]);
      if (ahead != 0) {
        for (Index p = 0; p < kPair; ++p) {
          const T* next = y + (l * kPair + p) * y_stride + j + ahead;
          // Into the second level: rows a power of two apart would evict each other from the first.
          for (Index c = 0; c < 2 * lanes; c += static_cast<Index>(64 / sizeof(T)))
            __builtin_prefetch(next + c, 0, 2);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < R; ++i) {
        const V xv = hn::Set(d, xl[i]);
        sum[i][0] = Family::Step(d, xv, yv[0], sum[i][0]);
        sum[i][1] = Family::Step(d, xv, yv[1], sum[i][1]);
      }
    }
    if constexpr (HasCareful<Family>) {
      if (!fits || !least.Reaches(bound)) {  // acc is still what it was
        StreamRows<typename Family::Careful, T, R>(x, y + j, y_stride, depth, 2 * lanes, acc + j,
                                                   acc_stride, 0, from_zero, 0);
        continue;
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      hn::StoreU(sum[i][0], d, acc + i * acc_stride + j);
      hn::StoreU(sum[i][1], d, acc + i * acc_stride + j + lanes);
    }
  }
}

// The rows of x in groups of 8, 4, 2 and 1; calls f(first row, group size as a constant).
template <class F>
HWY_INLINE void ForRowGroups(Index rows, const F& f) {
  Index i = 0;
  if constexpr (kStreamRows >= 8) {
    for (; i + 8 <= rows; i += 8) f(i, std::integral_constant<int, 8>());
  }
  for (; i + 4 <= rows; i += 4) f(i, std::integral_constant<int, 4>());
  if (i + 2 <= rows) f(i, std::integral_constant<int, 2>()), i += 2;
  if (i < rows) f(i, std::integral_constant<int, 1>());
}

template <class Family, class T>
void Stream(const DotArgs& a) {
  using Lane = typename Family::Lane;
  constexpr Index kPair = Packer<Family, T>::kPair;
  const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * 2;
  const Index n = a.n / width * width, k = a.k / kPair * kPair;
  const Packer<Family, T> pack{terms_of(a.precision)};
  const Side<T> side{static_cast<const T*>(a.x), a.x_stride, !a.trans_x};
  const T* y = static_cast<const T*>(a.y);
  auto* acc = static_cast<Lane*>(a.acc);
  auto* rows =
      static_cast<Lane*>(dot_scratch(0, static_cast<std::size_t>(a.m * kRowStride) * sizeof(Lane)));
  auto* xp =
      static_cast<Lane*>(dot_scratch(1, static_cast<std::size_t>(a.m * kDepth) * sizeof(Lane)));
  const Index step = StreamDepth<Family>(a.m);
  for (Index k0 = 0; k0 < k; k0 += pack.k_step()) {
    const Index kc = std::min(pack.k_step(), k - k0), depth = kc / kPair;
    pack.rows(side, 0, a.m, k0, kc, pack.terms.x, rows, kRowStride);
    // Each group's values of one depth side by side, in the order in which they are used.
    ForRowGroups(a.m, [&](Index i, auto group) HWY_ATTR {
      for (Index l = 0; l < depth; ++l)
        for (int r = 0; r < group; ++r)
          xp[i * depth + l * group + r] = rows[(i + r) * kRowStride + l];
    });
    for (Index j = 0; j < n; j += kStreamColumns<Family>) {
      const Index nc = std::min(kStreamColumns<Family>, n - j);
      for (Index l = 0; l < depth; l += step) {
        const Index lc = std::min(step, depth - l);
        const T* yl = y + (k0 + l * kPair) * a.y_stride + j;
        const bool more = l + lc + step <= depth;
        ForRowGroups(a.m, [&](Index i, auto group) HWY_ATTR {
          std::uint32_t bound = 0;
          if constexpr (HasCareful<Family>) bound = Family::BoundOfY(rows + i * kRowStride, group);
          StreamRows<Family, T, group>(xp + i * depth + l * group, yl, a.y_stride, lc, nc,
                                       acc + i * a.acc_stride + j, a.acc_stride,
                                       i == 0 && more ? step * kPair * a.y_stride : 0,
                                       a.from_zero && k0 == 0 && l == 0, bound);
        });
      }
    }
  }
  // What is left over: the last k of an odd count, and the columns past the last whole vectors.
  if (k < a.k && n > 0) {
    DotArgs rest = a;
    rest.x = side.data + k * (a.trans_x ? a.x_stride : 1);
    rest.y = y + k * a.y_stride;
    rest.k = a.k - k, rest.n = n;
    rest.from_zero = a.from_zero && k == 0;
    Blocked<Family, T>(rest);
  }
  if (n < a.n) {
    DotArgs rest = a;
    rest.y = y + n, rest.acc = acc + n, rest.n = a.n - n;
    Blocked<Family, T>(rest);
  }
}

// True when Stream serves the product and is the quicker way.
template <class Family, class T>
bool Streams(const DotArgs& a) {
#if HWY_TARGET <= HWY_AVX2
  const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * 2;
  return a.m <= kStreamMaxRows<T> && !a.trans_y && a.precision == Precision::kF32 && a.n >= width;
#else
  static_cast<void>(a);
  return false;
#endif
}

template <class Family, class T>
void Dot(const DotArgs& a) {
  if constexpr (std::is_same_v<Family, PairFamily> || HasLoadWide<typename Family::D, T>) {
    if (Streams<Family, T>(a)) return Stream<Family, T>(a);
  }
  Blocked<Family, T>(a);
}

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
