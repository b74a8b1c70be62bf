// SPDX-License-Identifier: Apache-2.0
// How often the factors of a product repeat themselves: how far its rounding errors may be taken as
// independent.
//
// Two products that are added to the same sum make the same rounding error when they are the same,
// or so close that the last place of the sum does not tell them apart. Where n products of similar
// size are added up, that last place is up to 2 u n of one product: factors closer than a 32nd of
// it, u n / 16, count as alike.
#pragma once

#include <array>
#include <vector>

#include "dsl/array.h"
#include "kernels/reference.h"

namespace kref {

// Of one vector of factors. The factors fall into groups of alike magnitude, those that are 0 left
// out (their products are exact). Squares: the sum of the squared sizes of the groups, from the
// number of factors (no two alike) to its square (all alike); one entry for each part that the
// precision mode makes of a factor, largest first, since it is the parts that are multiplied.
struct Repeats {
  std::array<double, 3> squares{};
};

// Pairs of factors are in no larger groups than either factor alone: the squares of the products of
// part e of x with part f of y are at most min(x.squares[e], y.squares[f]), also where x and y
// repeat themselves in step. (Not seen: products that are alike though the factors are not, as
// those of x and 1 / x.)

// Of each vector along the contracted dimension of x [*B, R, K] (columns: [*B, K, R]), in the order
// of [*B, R], for sums in the accumulator of x's type: F64 of F64, else F32.
std::vector<Repeats> repeats(const ArrayRef& x, bool columns, Index k,
                             reference::Parts parts = reference::Parts::kAll);

// The unit u n / 16 as a share of a magnitude, for sums of n products in the accumulator of `in`.
double alike_share(DType in, Index n);

}  // namespace kref
