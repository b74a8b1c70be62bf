// SPDX-License-Identifier: Apache-2.0
// The definition of each operation: plain loops in f64, in the order in which one would write the
// formula down. Slow on purpose. Shares nothing with the verbs and kernels that are judged by it:
// only views and element types come from outside.
//
// Non-finite values follow IEEE 754 in f64. A result that leaves the range of its element type only
// after rounding is finite here; rounding it is the caller's business.
#pragma once

#include <cstdint>
#include <vector>

#include "dsl/array.h"

namespace kref::reference {

// The products that stand for x * y: the precision modes of runs.md. A value v splits into
// hi = bf16(v), mid = bf16(v - hi), lo = bf16(v - hi - mid), each rounded to nearest even.
enum class Parts {
  kAll,     // x * y, the values as they are
  kBF16,    // hi hi
  kBF16x3,  // hi hi + hi mid + mid hi
  kBF16x6,  // those, mid mid, hi lo and lo hi: all whose indices add up to 2 at most
};

// How the operands of a matmul are stored and multiplied.
struct MatmulOptions {
  bool trans_x = false, trans_y = false;  // stored with the last two dimensions swapped
  Parts parts = Parts::kAll;
};

// Row-major over the shape of the output. `magnitude` is the sum of the absolute values of the
// products that `value` is the sum of: what an error bound is proportional to.
struct Sums {
  std::vector<double> value, magnitude;
};

// x [*B, M, K] @ y [*B, K, N] or [K, N] -> [*B, M, N] for floats; K = 0 gives zeros. Error on
// integers, on shapes that do not fit, and on parts other than kAll for an element type that is not
// F32.
Sums matmul(const ArrayRef& x, const ArrayRef& y, const MatmulOptions& options = {});

// The same for I8 or U8 (both of one type): exact in 32 bits, wrapping. `parts` must be kAll.
std::vector<std::int32_t> matmul_int(const ArrayRef& x, const ArrayRef& y,
                                     const MatmulOptions& options = {});

// The elements in row-major order; I64 past 2^53 rounds.
std::vector<double> values(const ArrayRef& x);

// Sums over the last dimension, j ascending, with the sums of absolute values.
Sums row_sum(const ArrayRef& x);
// Largest and smallest element over the last dimension: NaN when one is NaN; +0 is above -0. Error
// when the last dimension is empty.
std::vector<double> row_max(const ArrayRef& x);
std::vector<double> row_min(const ArrayRef& x);

// e^x, element by element.
std::vector<double> exp(const ArrayRef& x);
// exp(x - row_max) / sum of the same, over the last dimension.
std::vector<double> softmax(const ArrayRef& x);

// x.astype(type), element by element, as tile_ops.h states for `cast`; the result as doubles, so
// I64 results past 2^53 lose bits. With saturate: f16, bf16 and f8 end at their largest finite
// value.
std::vector<double> cast(const ArrayRef& x, DType type, bool saturate = false);

}  // namespace kref::reference
