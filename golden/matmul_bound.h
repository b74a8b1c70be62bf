// SPDX-License-Identifier: Apache-2.0
// What a matmul ought to give, and how far an honest machine may be off.
//
// A machine computes z = sum of the products p_1 .. p_n in some order, in the accumulator's
// arithmetic with unit roundoff u, and rounds the result once to the output's type. Let S be the
// sum of |p|. n counts the products: K, and 3 K or 6 K in the modes bf16_x3 and bf16_x6.
//
// worst: |error| <= n u S, whatever the order and whether or not multiplication and addition are
//   fused (Jeannerod and Rump, Improved error bounds for inner products in floating-point
//   arithmetic, 2013: no terms of higher order).
// likely: |error| <= lambda sqrt(n r) u S, if that is less. Rounding errors d_k with |d_k| <= u of
//   mean zero given the earlier ones make sum d_k s_k a martingale whose steps are at most u S,
//   since every partial sum s_k is at most S; by Azuma and Hoeffding it exceeds lambda sqrt(n) u S
//   with a probability below 2 exp(-lambda^2 / 2) (Higham and Mary, A new approach to probabilistic
//   rounding error analysis, 2019). With lambda = 8 that is 2.6e-14 an element: a chance of 1 in
//   40000 for one false alarm among 10^9 elements, with room for the terms of higher order.
//   Equal products make equal errors, all of one sign while the sum grows, and mean zero fails: the
//   sum of n copies of one number is off by up to n u S / 3. So alike products count as one group,
//   whose size is the step of the martingale: n is replaced by the sum of the squared sizes of the
//   groups, n when no two products are alike and n^2 when all are (repeats.h: from the numbers of
//   alike parts in the row of x and in the column of y, whichever are fewer).
//
// Both plus, each only where it occurs:
// - the rounding to the output's type: half the distance of its neighbours at |value| + the above,
//   with its subnormal spacing; none when the output is as wide as the accumulator or wider;
// - flush to zero. Numbers below the smallest normal one of f32 and bf16 (2^-126; of f64 2^-1022)
//   may count as zero: inputs (their products are added to the bound), products and partial sums
//   (2 n times that number), together at most S, since no product is lost twice; results (the bound
//   is at least |value| when that may lie below). f16 and f8 have such numbers too, but machines
//   widen them to f32, where they are normal;
// - the error of the value itself, which is summed in f64. Of F64 inputs small products are summed
//   in long double; large ones in f64 like the machine's, and the first part of the bound counts
//   twice.
// A result that is finite came of partial sums within the accumulator's range: S counts as that at
// most. So bounds are always finite.
//
// Partial sums lie between -N and P, the sums of the negative and of the positive products. Where P
// (N) passes the accumulator's range, an honest machine may overflow to +inf (-inf), in some
// orders, and to NaN where both do. Where the value is infinite, because a product of an infinite
// factor is, P and N are those of the finite products: NaN comes of an overflow to the other side
// before that product is added, and of an infinity times a factor flushed to zero; the opposite
// infinity and finite numbers never.
#pragma once

#include <vector>

#include "dsl/array.h"
#include "golden/expectation.h"
#include "kernels/matmul.h"
#include "kernels/reference.h"

namespace kref {

struct Run;

// lambda of the likely bound.
inline constexpr double kLambda = 8;

// One matmul, as it is judged.
struct Product {
  reference::MatmulOptions options;
  DType out_dtype = DType::kF32;
  MatmulTile tile;  // names tiles and grid steps; all zero: default_matmul_tile
};

// How value and S are computed. kAuto: the plain loops of reference::matmul up to 2^22 products,
// kernels in f64 above; both give the same up to their own rounding, which the bound includes.
enum class Evaluation { kAuto, kLoops, kTiles };

// The expectation of z = x y; x and y as reference::matmul takes them. For I8 and U8: exact, I32.
Expectation expect_product(const Array& x, const Array& y, const Product& product,
                           Evaluation evaluation = Evaluation::kAuto);

// The same for a validated run of the operation `matmul`.
std::vector<Expectation> expect_matmul(const Run& run);

}  // namespace kref
