// SPDX-License-Identifier: Apache-2.0
// Guesses in which pieces of the output are exchanged in pairs: tiles, or all that devices hold.
#include <algorithm>

#include "golden/pattern.h"

namespace kref::detail {
namespace {

// The output cut into tiles, or into the shards of devices.
class Pieces {
 public:
  Pieces(const Compared& c, bool shards) : c_(c), shards_(shards), count_(c.tiles()) {
    if (!shards) return;
    count_ = 1;
    for (std::size_t d = 0; d < c.rank(); ++d) count_ *= parts(d);
  }

  Index count() const { return count_; }

  Index of(Index element) const {
    if (!shards_) return c_.tile_of(element);
    const std::vector<Index> at = c_.unflatten(element);
    Index piece = 0;
    for (std::size_t d = 0; d < at.size(); ++d) piece = piece * parts(d) + at[d] / extents()[d];
    return piece;
  }

  void box(Index piece, std::vector<Index>& start, std::vector<Index>& size) const {
    if (!shards_) return c_.tile_box(piece, start, size);
    size = extents();
    start.resize(c_.rank());
    for (std::size_t d = c_.rank(); d-- > 0;) {
      start[d] = piece % parts(d) * size[d];
      piece /= parts(d);
    }
  }

  std::string name(Index piece) const {
    if (!shards_) return tile_name(c_, piece);
    std::vector<Index> start, size;
    box(piece, start, size);
    return c_.expectation().owner.device(c_.flatten(start));
  }

  // Does piece a hold what is expected of piece b?
  bool holds(Index a, Index b) const {
    std::vector<Index> start_a, start_b, size_a, size_b;
    box(a, start_a, size_a);
    box(b, start_b, size_b);
    if (size_a != size_b) return false;
    const Index delta = c_.flatten(start_b) - c_.flatten(start_a);
    return c_.for_box(start_a, size_a, [&](Index i) { return c_.holds(i, i + delta); });
  }

 private:
  const std::vector<Index>& extents() const { return c_.expectation().owner.shard; }
  Index parts(std::size_t d) const { return c_.shape()[d] / extents()[d]; }

  const Compared& c_;
  bool shards_;
  Index count_;
};

// Appends the guess that the wrong pieces are exchanged in pairs; false when they are not.
bool guess_pairs(const Compared& c, const WrongElements& wrong, bool shards,
                 std::vector<Guess>& guesses) {
  // Looks at every pair (wrong piece, any piece); nearly all fail at the first element.
  constexpr Index kMostPairs = Index{1} << 22;
  const Pieces pieces(c, shards);
  std::vector<Index> bad;
  for (const Index i : wrong.elements) bad.push_back(pieces.of(i));
  std::sort(bad.begin(), bad.end());
  bad.erase(std::unique(bad.begin(), bad.end()), bad.end());
  const auto n = static_cast<Index>(bad.size());
  if (n * pieces.count() > kMostPairs) return false;

  Index other = -1;  // the partner of the first
  for (const Index a : bad) {
    Index partner = -1;
    for (Index b = 0; b < pieces.count(); ++b) {
      if (b == a || !pieces.holds(a, b) || !pieces.holds(b, a)) continue;
      if (partner >= 0) return false;  // which of the two it was cannot be told
      partner = b;
    }
    if (partner < 0) return false;
    if (a == bad[0]) other = partner;
  }
  Evidence evidence;
  for (const Index i : wrong.elements) evidence.add(c, i, c.bound(i));
  const std::string what = shards ? "shards" : "tiles";
  std::string text =
      what + (shards ? " of " : " ") + pieces.name(bad[0]) + " and " + pieces.name(other);
  if (n > 2) text += ", and others: " + std::to_string(n) + " " + what + " in all";
  guesses.push_back({shards ? "shard swapped" : "tiles swapped", text,
                     evidence.enough(static_cast<double>(pieces.count()))});
  return true;
}

}  // namespace

void guess_swapped(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  const Expectation& e = c.expectation();
  const bool on_devices = e.owner.device && !e.owner.shard.empty();
  const bool swapped = on_devices && guess_pairs(c, wrong, true, guesses);
  // Shards made of whole tiles: those are swapped with them, since each has but one partner.
  if (swapped && e.blocks.shards == e.owner.shard) return;
  guess_pairs(c, wrong, false, guesses);
}

}  // namespace kref::detail
