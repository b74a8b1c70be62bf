// SPDX-License-Identifier: Apache-2.0
// The judge: compares an output with its expectation, element by element, and finds the tile, the
// grid step and a pattern in what is wrong.
#pragma once

#include <string>
#include <vector>

#include "dsl/array.h"
#include "golden/expectation.h"

namespace kref {

enum class BoundKind { kLikely, kWorst };

// One wrong element, or the element closest to its bound.
struct Worst {
  Index element = -1;         // flat index; -1 when there are no elements
  std::vector<Index> index;   // per dimension
  double expected = 0, actual = 0;
  double bound = 0;           // 0 for exact comparison
  double ratio = 0;           // |actual - expected| / bound; infinity when the bound is 0 or a
                              // non-finite value does not match
  std::vector<Index> tile;    // block index per dimension
  std::string step;           // "i=1, j=0, k=0..3"
  std::string device;         // "" on one device
};

struct Verdict {
  std::string output;
  Index elements = 0, wrong = 0;
  Index tiles = 0, wrong_tiles = 0;
  Worst worst;            // of the wrong ones if there are any, else of all
  std::string pattern;    // "" when nothing is wrong; "unknown" when no guess is certain
  std::string detail;     // one line on the pattern: which tiles, which rows, the factor
  bool ok() const { return wrong == 0; }
};

// Compares `actual` with `expected`. An element is wrong when |actual - expected| > bound, or when
// one of them is not finite and the other is not the same kind (NaN with NaN, infinities by sign).
// An expected value beyond the range of the output's type counts as the infinity it rounds to (e4m3fn:
// NaN), with either neighbour allowed where the bound straddles the overflow threshold.
Verdict judge(const Expectation& expected, const Array& actual, BoundKind kind = BoundKind::kLikely);

// At most 25 lines for people.
std::string report(const Verdict& verdict);

}  // namespace kref
