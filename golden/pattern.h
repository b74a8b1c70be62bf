// SPDX-License-Identifier: Apache-2.0
// Guesses at the kind of fault behind wrong elements. A guess is named only when it explains every
// wrong element within its bound, on evidence that chance would hardly give, and no other kind of
// fault explains them as well, on however little evidence; otherwise the answer is "unknown".
#pragma once

#include <string>
#include <vector>

#include "golden/compared.h"

namespace kref {

struct TileCount {
  Index tile;   // flat tile number
  Index wrong;  // wrong elements in it
};

struct WrongElements {
  std::vector<Index> elements;   // flat indices, ascending
  std::vector<TileCount> tiles;  // the tiles they lie in, ascending
};

WrongElements find_wrong(const Compared& c);

// pattern: "tile missing", "tiles swapped", "shard swapped", "rows shifted", "transposed", "scaled
// by c", "sign", "non-finite", a Hypothesis' pattern ("last k block dropped"), the name of an
// Alternative that is a fault ("strict causal"), or "unknown".
struct Guess {
  std::string pattern, detail;
  bool sure = true;  // false: it explains everything, but so might chance; it only rules out others
  bool moves_tiles = false;   // rows shifted by whole tiles of more than one row
  bool swaps_shards = false;  // rows turned by half: devices' shards swapped, in other words
};

// At least one element is wrong.
Guess guess_pattern(const Compared& c, const WrongElements& wrong);

namespace detail {

// Each appends a guess when its kind of fault explains all wrong elements, of which there are two
// or more: one wrong element may be anything.
void guess_missing(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);
void guess_swapped(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);
void guess_rows(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);
void guess_transposed(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);
void guess_scaled(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);
void guess_hypotheses(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);
// The alternatives that are faults, and that explain every element of the output (alternatives.cc).
void guess_faults(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses);

// Evidence in bits. When element i is off by d and a guess explains its value within a tolerance
// t, a value thrown at random over a range of d would have done so with probability about t / d.
// The sum of log2(d / t) over the elements explained is thus what speaks against chance. One
// element counts for at most kMostBits, so that one element alone never carries a guess.
class Evidence {
 public:
  void add(const Compared& c, Index element, double tolerance);
  // Against a choice among that many equally likely faults of the kind tried.
  bool enough(double choices) const;

 private:
  static constexpr double kNeeded = 24, kMostBits = 16;
  double bits_ = 0;
};

// Where the wrong elements lie in the last two dimensions: "in rows 3..5, columns 0..7".
std::string whereabouts(const Compared& c, const WrongElements& wrong);

// Is each tile all that one device holds, so that it has no index of its own?
bool tiles_are_shards(const Compared& c);
// "(i=0, j=1)" of a tile; "(0, 1)" when the axes have no names; "(i=0, j=1) of (X=1, Y=0)" where it
// lies on devices; "(X=1, Y=0)" where that is all there is to say.
std::string tile_name(const Compared& c, Index tile);

}  // namespace detail
}  // namespace kref
