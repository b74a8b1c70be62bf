// SPDX-License-Identifier: Apache-2.0
// The judge: compares an output with its expectation, element by element, and finds the tile, the
// grid step and a pattern in what is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dsl/array.h"
#include "golden/expectation.h"

namespace kref {

// Which bound of an Expectation counts: `likely` or `worst`.
enum class BoundKind { kLikely, kWorst };

// One wrong element, or the element closest to its bound.
struct Worst {
  Index element = -1;        // flat index; -1 when there are no elements
  std::vector<Index> index;  // per dimension
  double expected = 0, actual = 0;
  // The same of a 64-bit integer that is compared as such: what a double may not hold.
  std::optional<std::pair<std::int64_t, std::int64_t>> integers = {};
  double bound = 0;  // the one that counts; 0 for exact comparison
  double ratio = 0;  // |actual - expected| / bound; infinity when the bound is 0 or a
                     // non-finite value does not match
  // Both bounds (expectation.h): past the likely one a machine is wrong but for negligible chance,
  // past the worst one for certain.
  double likely_bound = 0, worst_bound = 0;
  std::vector<Index> tile;  // index along each grid axis, on the device
  std::string step;         // "i=1, j=0, k=0..3"
  std::string device;       // "" on one device
};

// A tile with wrong elements.
struct WrongTile {
  std::vector<Index> tile;  // index along each grid axis, on the device
  Index wrong = 0, elements = 0;
  std::string device;  // of its first wrong element; "" on one device
};

// What comparing one output found: the counts, the worst element, where the wrong ones lie and a
// guess at the fault.
struct Verdict {
  std::string output;
  DType dtype = DType::kF32;
  std::vector<Index> shape;
  Index elements = 0, wrong = 0;
  Index tiles = 0, wrong_tiles = 0;
  std::vector<std::string> tile_axes;        // grid axis of each entry of a tile's index
  std::vector<WrongTile> first_wrong_tiles;  // in row-major order, at most kListedTiles
  Worst worst;                               // of the wrong ones if there are any, else of all
  std::string pattern;  // "" when nothing is wrong; "unknown" when no guess is certain
  std::string detail;   // one line on the pattern: which tiles, which rows, the factor; may be ""
  // Other requests under which every element is right: "matches precision bf16: ..."; mostly "".
  std::string hint;
  bool ok() const { return wrong == 0; }

  static constexpr std::size_t kListedTiles = 8;
};

// Compares `actual` with `expected`. An element is wrong when |actual - expected| > bound, or when
// one of them is not finite and the other is not the same kind (NaN with NaN, infinities by sign).
// Two rules on overflow:
// - An infinity stands for the first number past the range of the output's type (65536 for f16,
//   2^128 for f32 and bf16; for e4m3fn, which has no infinity, NaN stands for +-480), or anything
//   beyond. So where the bound straddles the overflow threshold, both neighbours are right, and a
//   finite value where the true one lies past the range is wrong.
// - Where Expectation::overflow says that partial sums may overflow, so may the result.
// An empty output is right. Error when `actual` and `expected` differ in size.
Verdict judge(const Expectation& expected, const Array& actual,
              BoundKind kind = BoundKind::kLikely);

// At most 25 lines for people, the last one with a line feed.
std::string report(const Verdict& verdict);

}  // namespace kref
