// SPDX-License-Identifier: Apache-2.0
// matmul: the product of two arrays, as a grid over tiles (jax.lax.dot_general with batch
// dimensions first; spec/runs.md, `matmul`).
#pragma once

#include <optional>

#include "kernels/dot.h"

namespace kref {

// Extents of the blocks of a product: rows, columns, depth. All zero: chosen.
struct MatmulTile {
  Index m = 0, n = 0, k = 0;
  bool operator==(const MatmulTile&) const = default;
};

// How the operands of a matmul are stored, multiplied and cut.
struct MatmulOptions {
  bool trans_x = false;                   // x is stored [*B, K, M]
  bool trans_y = false;                   // y is stored [*B, N, K]
  Precision precision = Precision::kF32;  // for f32 operands
  MatmulTile tile = {};                   // changes no bit of the result
};

// The sizes of a product, out of the shapes of its operands.
struct MatmulSizes {
  Index m = 0, n = 0, k = 0;
  bool shared_y = false;  // y is [K, N], without the batch dimensions of x
};

// The rule for the shapes of x and y, which is the same wherever a product is asked for. Error,
// naming operand and axis with expected and found, when they do not fit; its text begins with
// `context`, and the operands' names with `prefix`.
MatmulSizes matmul_sizes(const ArrayRef& x, const ArrayRef& y, bool trans_x, bool trans_y,
                         const char* context = "matmul: ", const char* prefix = "");

// What a product of operands of `in` may be stored as: any float type for floats, else I32; and
// that in words, for messages: "a float type", "I32".
constexpr bool stores_product(DType in, DType out) {
  return is_float(in) ? is_float(out) : out == DType::kI32;
}
constexpr const char* product_types(DType in) { return is_float(in) ? "a float type" : "I32"; }

// Refuses a tile that is neither all zero nor positive; the text begins with `context`.
void check_tile(const MatmulTile& tile, const char* context = "matmul: ");

// z [*B, M, N] = x [*B, M, K] y [*B, K, N], or y [K, N] for the whole batch. x and y have one
// element type: any float, s8 or u8. z is any float for float operands and s32 for integers. Sums
// run along k ascending in f32 (f64 for f64, wrapping s32 for integers) as dot_add says, and are
// rounded once to the type of z. The bits depend neither on the tile nor on threads nor on the SIMD
// target. K = 0 gives zeros. Rows may be strided; the last dimension of each operand is contiguous.
// z must not overlap x or y.
// Not offered: scale factors (BLAS's alpha and beta: z is written and never read, so what it held,
// a NaN included, does not matter) and ragged groups of rows with a y each (jax.lax.ragged_dot):
// write a grid whose index map reads the group of a row block from a table. Error, naming operand
// and axis with expected and found, for ranks, shapes, types, strides, overlaps and tile sizes that
// do not fit.
void matmul(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
            const MatmulOptions& options = {});

// The same as a new array of element type `out`; not set: that of x, s32 of s8 and u8.
Array matmul(const ArrayRef& x, const ArrayRef& y, const MatmulOptions& options = {},
             std::optional<DType> out = {});

// The tile that is used when none is given; from type and shape only, never from the machine.
MatmulTile default_matmul_tile(DType type, Index m, Index n, Index k);

}  // namespace kref
