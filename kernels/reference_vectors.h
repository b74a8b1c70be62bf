// SPDX-License-Identifier: Apache-2.0
// Vector helpers as they are defined: loops over indices, in double precision. As
// kernels/reference.h it shares no code with the verbs that are judged by it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/reference.h"

namespace kref::reference {

// Reductions over `axes`, each named once: row-major over the dimensions that are left. `value` of
// an extremum is NaN when an element is; +0 is above -0. Error on an extremum of no elements.
enum class Reduce { kSum, kMax, kMin };
Sums reduce(Reduce op, const ArrayRef& x, std::span<const Index> axes);

// Where the largest (or smallest) element along `axis` is: the first of equal ones, the first NaN.
std::vector<Index> arg_extreme(bool largest, const ArrayRef& x, Index axis);

// A product of any dimensions: row-major over batch, other dimensions of x, other ones of y.
struct DotNumbers {
  std::vector<Index> contract_x, contract_y, batch_x, batch_y;
};
Sums dot_general(const ArrayRef& x, const ArrayRef& y, const DotNumbers& dims);

// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
std::array<std::uint32_t, 2> threefry2x32(const std::array<std::uint32_t, 2>& key,
                                          const std::array<std::uint32_t, 2>& counter);

// bf16 bits of x, rounded up in magnitude where the dropped bits and the low 16 of `random` add up
// to 2^16 or more. Infinities stay, NaN is the quiet one with its sign.
std::uint16_t stochastic_round(float x, std::uint32_t random);

}  // namespace kref::reference
