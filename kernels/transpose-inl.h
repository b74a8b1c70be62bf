// SPDX-License-Identifier: Apache-2.0
// Rows to columns in f32, eight by eight in registers where there are vectors of eight.
#if defined(KREF_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_TRANSPOSE_INL_H_
#undef KREF_KERNELS_TRANSPOSE_INL_H_
#else
#define KREF_KERNELS_TRANSPOSE_INL_H_
#endif

#include "dsl/ref.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX2
// Eight rows of eight: 24 shuffles, where as many elements one by one are 64 stores.
HWY_INLINE void TransposeEight(const float* x, Index x_stride, float* out, Index out_stride) {
  const hn::Full256<float> d;
  const hn::Full256<double> pairs;
  using V = hn::Vec<decltype(d)>;
  V four[8];  // of rows 0 to 3, then 4 to 7: columns c in the lower half, c + 4 in the upper
  for (int half = 0; half < 2; ++half) {
    const float* row = x + half * 4 * x_stride;
    const V a = hn::LoadU(d, row), b = hn::LoadU(d, row + x_stride);
    const V c = hn::LoadU(d, row + 2 * x_stride), e = hn::LoadU(d, row + 3 * x_stride);
    const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
    const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
    const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
    const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
    V* to = four + half * 4;
    to[0] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low));
    to[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low));
    to[2] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high));
    to[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high));
  }
  for (int c = 0; c < 4; ++c) {
    hn::StoreU(hn::ConcatLowerLower(d, four[4 + c], four[c]), d, out + c * out_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, four[4 + c], four[c]), d, out + (c + 4) * out_stride);
  }
}
#endif

// out (columns, rows) = the transpose of x (rows, columns).
HWY_INLINE void Transpose(const float* x, Index x_stride, Index rows, Index columns, float* out,
                          Index out_stride) {
  Index whole_rows = 0, whole_columns = 0;
#if HWY_TARGET <= HWY_AVX2
  whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  // Down the rows first: the pieces of an output row then follow each other.
  for (Index c = 0; c < whole_columns; c += 8) {
    for (Index r = 0; r < whole_rows; r += 8)
      TransposeEight(x + r * x_stride + c, x_stride, out + c * out_stride + r, out_stride);
  }
#endif
  for (Index r = 0; r < rows; ++r) {
    for (Index c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      out[c * out_stride + r] = x[r * x_stride + c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_TRANSPOSE_INL_H_
