// SPDX-License-Identifier: Apache-2.0
// Panels: pieces of x and y widened and laid out as the micro-kernel reads them. Transposition,
// element type and split precision are dealt with here and nowhere else.

#if defined(KREF_KERNELS_DOT_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_DOT_PANELS_INL_H_
#undef KREF_KERNELS_DOT_PANELS_INL_H_
#else
#define KREF_KERNELS_DOT_PANELS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/dot_args.h"
#include "kernels/dot_micro-inl.h"
#include "kernels/dot_pack-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using kref::HWY_NAMESPACE::Transpose;

template <class T>
HWY_INLINE void PrefetchRow(const T* row, Index n) {
  constexpr Index kLine = static_cast<Index>(64 / sizeof(T));
  // Into the second level: there are too few fill buffers for a whole row.
  for (Index i = 0; i < n; i += kLine) __builtin_prefetch(row + i, 0, 2);
}

// Element (row, k) of an operand seen as rows of k, whatever its storage.
template <class T>
struct Side {
  const T* data;
  Index stride;  // between stored rows
  bool along_k;  // stored rows run along k (x plain, y transposed)
};

// Widens T to the family's elements. `Raw` is what one value becomes before pairs are formed.
template <class Family, class T>
struct Packer {
  using Lane = typename Family::Lane;
  using Raw = std::conditional_t<std::is_same_v<Family, PairFamily>, std::int16_t, Lane>;
  static constexpr Index kPair = std::is_same_v<Family, PairFamily> ? 2 : 1;

  // Stored rows that are turned into columns together.
  static constexpr Index kTogether = 8;
  // Rows of x that are packed together where stored rows run along them: whole vectors, and what
  // the micro-kernel takes a few times. Its own 12 at a time took a quarter longer with k = 128.
  static constexpr Index kTurned = 48;

  Terms terms;
  // Values of k that fit the panel depth.
  Index k_step() const { return kDepth / terms.count * kPair; }
  // Panel elements that `k` values make.
  Index depth(Index k) const { return cdiv(k, kPair) * terms.count; }

  // out[i * stride + j] over i < rows, j < depth(k): rows r0.., values k0... of a side.
  void rows(const Side<T>& side, Index r0, Index count, Index k0, Index k, const signed char* ranks,
            Lane* out, Index stride) const {
    if (!side.along_k) return columns(side, r0, count, k0, k, ranks, out, stride);
    for (Index i = 0; i < count; ++i, out += stride) {
      const T* src = side.data + (r0 + i) * side.stride + k0;
      if (i + 4 < count) PrefetchRow(src + 4 * side.stride, k);
      if (plain()) {
        WidenRow(src, k, out);
        if (k % kPair != 0) Put(out, k, Raw{});
      } else {
        Raw row[kDepth];
        WidenRow(src, k, row);
        spread(row, k, ranks, out, 1);
      }
    }
  }

  // The same from storage that runs along rows: k stored rows of `count` values.
  void columns(const Side<T>& side, Index r0, Index count, Index k0, Index k,
               const signed char* ranks, Lane* out, Index stride) const {
    constexpr Index kPiece = 128;
    if constexpr (std::is_same_v<Lane, float>) {
      if (plain()) {
        float pieces[kTogether * kPiece];
        for (Index l = 0; l < k; l += kTogether) {
          const Index depths = std::min(kTogether, k - l);
          for (Index i = 0; i < count; i += kPiece) {
            const Index n = std::min(kPiece, count - i);
            for (Index j = 0; j < depths; ++j) {
              WidenRow(side.data + (k0 + l + j) * side.stride + r0 + i, n, pieces + j * kPiece);
            }
            Transpose(pieces, kPiece, depths, n, out + i * stride + l, stride);
          }
        }
        return;
      }
    }
    Raw piece[kPiece];
    for (Index l = 0; l < k; ++l) {
      const T* src = side.data + (k0 + l) * side.stride + r0;
      for (Index i = 0; i < count; i += kPiece) {
        const Index n = std::min(kPiece, count - i);
        WidenRow(src + i, n, piece);
        for (Index j = 0; j < n; ++j) put(out + (i + j) * stride, l, piece[j], ranks);
      }
    }
    if (k % kPair != 0) {
      for (Index i = 0; i < count; ++i) put(out + i * stride, k, Raw{}, ranks);
    }
  }

  bool plain() const { return terms.count == 1 && (terms.x[0] < 0); }

  // Value number l of a panel row.
  void put(Lane* row, Index l, Raw value, const signed char* ranks) const {
    if constexpr (kPair == 2) {
      Put(row, l, value);
    } else if (plain()) {
      row[l] = value;
    } else {
      spread(&value, 1, ranks, row + l * terms.count, 1);
    }
  }

  // row[(l * terms + t) * step] = part ranks[t] of value l.
  void spread(const Raw* values, Index k, const signed char* ranks, Lane* row, Index step) const {
    if constexpr (std::is_same_v<Lane, float>) {
      for (int t = 0; t < terms.count; ++t) {
        float part[kDepth];
        PartRow(values, k, ranks[t], part);
        for (Index l = 0; l < k; ++l) row[(l * terms.count + t) * step] = part[l];
      }
    } else {
      static_cast<void>(values), static_cast<void>(k), static_cast<void>(ranks),
          static_cast<void>(row), static_cast<void>(step);
    }
  }

  // A y panel: out[l][j], columns j0 to j0 + count of values k0..., width = 2 vectors of columns,
  // those past count zero.
  void panel(const Side<T>& side, Index j0, Index count, Index k0, Index k,
             const signed char* ranks, Lane* out) const {
    const auto width = static_cast<Index>(hn::Lanes(typename Family::D())) * kColumnVectors;
    if (count < width) std::fill(out, out + width * depth(k), Lane{});
    if (side.along_k) {  // y transposed: one stored row is one panel column
      if constexpr (std::is_same_v<Lane, float>) {
        if (plain()) {
          float stored[kTogether * kRowStride];
          for (Index j = 0; j < count; j += kTogether) {
            const Index columns = std::min(kTogether, count - j);
            for (Index c = 0; c < columns; ++c) {
              WidenRow(side.data + (j0 + j + c) * side.stride + k0, k, stored + c * kRowStride);
            }
            Transpose(stored, kRowStride, columns, k, out + j, width);
          }
          return;
        }
      }
      alignas(64) Lane row[kDepth];
      for (Index j = 0; j < count; ++j) {
        WidenRow(side.data + (j0 + j) * side.stride + k0, k, row);
        if (k % kPair != 0) Put(row, k, Raw{});
        if constexpr (std::is_same_v<Lane, float>) {
          if (!plain()) {
            spread(row, k, ranks, out + j, width);
            continue;
          }
        }
        for (Index l = 0; l < depth(k); ++l) out[l * width + j] = row[l];
      }
      return;
    }
    const T* first = side.data + k0 * side.stride + j0;
    for (Index l = 0; l < k; l += kPair, first += kPair * side.stride) {
      if constexpr (kPair == 2) {
        WeavePairs(first, l + 1 < k ? first + side.stride : nullptr, count, out + l / 2 * width);
      } else {
        panel_row(first, count, ranks, out + l * terms.count * width, width);
      }
    }
  }

  // One row of one y panel, all its terms.
  void panel_row(const T* src, Index n, const signed char* ranks, Lane* to, Index width) const {
    if constexpr (HasLoadWide<typename Family::D, T>) {
      if (n == width && plain()) {
        const typename Family::D d;
#pragma GCC unroll 2
        for (int v = 0; v < kColumnVectors; ++v) {
          const auto at = v * static_cast<Index>(hn::Lanes(d));
          hn::Store(LoadWide(d, src + at), d, to + at);
        }
        return;
      }
    }
    if constexpr (kPair == 1) WidenRow(src, n, to);
    if constexpr (std::is_same_v<Lane, float>) {
      if (plain()) return;
      float value[HWY_MAX_BYTES / 2];
      std::copy(to, to + n, value);
      for (int t = 0; t < terms.count; ++t) PartRow(value, n, ranks[t], to + t * width);
    }
  }

  // out[j] = the pair (first[j], second[j]); second absent: zeros.
  static void WeavePairs(const T* first, const T* second, Index n, Lane* out) {
    Index j = 0;
#if HWY_TARGET <= HWY_AVX2
    if (second != nullptr) {
      // 16 bytes of each row give 16 pairs: woven as bytes, then widened, they keep their order.
      const hn::Full128<T> d8;
      const hn::Full256<std::int16_t> d16;
      auto* to = reinterpret_cast<std::int16_t*>(out);
      for (; j + 16 <= n; j += 16) {
        const auto a = hn::LoadU(d8, first + j), b = hn::LoadU(d8, second + j);
        hn::StoreU(hn::PromoteTo(d16, hn::InterleaveLower(d8, a, b)), d16, to + 2 * j);
        hn::StoreU(hn::PromoteTo(d16, hn::InterleaveUpper(d8, a, b)), d16, to + 2 * j + 16);
      }
    }
#endif
    for (; j < n; ++j) {
      const std::uint32_t low = static_cast<std::uint16_t>(static_cast<std::int16_t>(first[j]));
      const std::uint32_t high =
          second == nullptr ? 0 : static_cast<std::uint16_t>(static_cast<std::int16_t>(second[j]));
      if constexpr (kPair == 2) out[j] = static_cast<Lane>(low | high << 16);
    }
  }
};

}  // namespace kref::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
