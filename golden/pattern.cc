// SPDX-License-Identifier: Apache-2.0
#include "golden/pattern.h"

#include <algorithm>
#include <cmath>

#include "golden/report_text.h"

namespace kref {
namespace detail {

void Evidence::add(const Compared& c, Index element, double tolerance) {
  const double off = std::fabs(c.actual(element) - c.expected(element));
  // One kind of non-finite value out of three; and zero is what many faults leave behind.
  if (!std::isfinite(off) || c.actual(element) == 0) {
    bits_ += 1.5;
    return;
  }
  // Exact comparison: integers at most `off` away number 2 off + 1.
  const double odds = tolerance > 0 ? off / tolerance : 2 * off + 1;
  if (odds > 1) bits_ += std::min(kMostBits, std::log2(odds));
}

bool Evidence::enough(double choices) const {
  return bits_ >= kNeeded + std::log2(std::max(1.0, choices));
}

bool tiles_are_shards(const Compared& c) {
  return c.expectation().owner.device && c.grid_index(0).empty();
}

std::string tile_name(const Compared& c, Index tile) {
  const std::vector<Index> at = c.grid_index(tile);
  const std::vector<std::string>& axes = c.grid_axes();
  std::string out = "(";
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (d > 0) out += ", ";
    if (d < axes.size()) out += axes[d] + "=";
    out += std::to_string(at[d]);
  }
  out += ")";
  const Owner& owner = c.expectation().owner;
  if (!owner.device) return out;
  std::vector<Index> start, extents;
  c.tile_box(tile, start, extents);
  const std::string device = owner.device(c.flatten(start));
  return tiles_are_shards(c) ? device : out + " of " + device;
}

namespace {

// What every element of a tile is, if they are all the same kind of nothing.
enum class Nothing { kNo, kZero, kPoison };

Nothing nothing_in(const Compared& c, Index tile) {
  // A tile that was never written holds zeros or poison: NaN, the minimum of an integer type.
  const double poison =
      with_dtype(c.dtype(), []<class T>() { return static_cast<double>(kref::poison<T>()); });
  bool zero = true, poisoned = true;
  c.for_tile(tile, [&](Index i) {
    const double a = c.actual(i);
    zero = zero && a == 0;
    poisoned = poisoned && (a == poison || (std::isnan(a) && std::isnan(poison)));
    return zero || poisoned;
  });
  // Unsigned integers and bool have 0 as poison: zero is the plainer word.
  return zero ? Nothing::kZero : poisoned ? Nothing::kPoison : Nothing::kNo;
}

}  // namespace

std::string whereabouts(const Compared& c, const WrongElements& wrong) {
  if (c.rank() < 2) return "";
  const Index rows = c.shape()[c.rank() - 2], columns = c.shape()[c.rank() - 1];
  Index top = rows, bottom = 0, left = columns, right = 0;
  bool zero = true;
  for (const Index e : wrong.elements) {
    const Index i = e / columns % rows, j = e % columns;
    top = std::min(top, i), bottom = std::max(bottom, i);
    left = std::min(left, j), right = std::max(right, j);
    zero = zero && c.actual(e) == 0;
  }
  const auto range = [](const char* what, Index from, Index to) {
    return what + std::to_string(from) + (to > from ? ".." + std::to_string(to) : std::string());
  };
  return (zero ? "zeros, " : "") + range("in rows ", top, bottom) +
         range(", columns ", left, right);
}

void guess_missing(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  // What speaks for tiles is that nothing ends where they end. A tile of one wrong element says
  // nothing: wherever a zero stands is such a tile. So each counts what it has beyond the first;
  // but an output that is all nothing, of more than a few elements, needs no tiles to show it.
  constexpr Index kNeeded = 3;
  Index beyond = 0, all = 0;
  bool zero = false, poisoned = false;
  for (const TileCount& t : wrong.tiles) {
    beyond += t.wrong - 1;
    all += t.wrong;
    const Nothing nothing = nothing_in(c, t.tile);
    if (nothing == Nothing::kNo) return;
    (nothing == Nothing::kZero ? zero : poisoned) = true;
  }
  const char* what = zero && poisoned ? "zeros or poison" : zero ? "zeros" : "poison";
  const auto n = static_cast<Index>(wrong.tiles.size());
  const bool shards = tiles_are_shards(c);
  const char* pieces = shards ? " shards hold " : " tiles hold ";
  const std::string one = shards ? "the shard of " : "tile ";
  const std::string which = n == 1           ? one + tile_name(c, wrong.tiles[0].tile) + " holds "
                            : n == c.tiles() ? std::string("all") + pieces
                                             : std::to_string(n) + pieces;
  const bool whole = all == c.size() && all > kNeeded;
  guesses.push_back({"tile missing", which + what, whole || beyond >= kNeeded});
}

}  // namespace detail

WrongElements find_wrong(const Compared& c) {
  WrongElements wrong;
  std::vector<Index> counts(static_cast<std::size_t>(c.tiles()), 0);
  for (Index i = 0; i < c.size(); ++i) {
    if (!c.wrong(i)) continue;
    wrong.elements.push_back(i);
    ++counts[static_cast<std::size_t>(c.tile_of(i))];
  }
  for (Index t = 0; t < c.tiles(); ++t) {
    const Index n = counts[static_cast<std::size_t>(t)];
    if (n > 0) wrong.tiles.push_back({t, n});
  }
  return wrong;
}

namespace {

// "tile missing or strict causal".
std::string either(const std::vector<Guess>& guesses) {
  std::string out;
  for (const Guess& g : guesses) out += (out.empty() ? "" : " or ") + g.pattern;
  return out;
}

}  // namespace

Guess guess_pattern(const Compared& c, const WrongElements& wrong) {
  const double past = past_range(c.dtype());
  Index odd = 0;  // wrong elements that are not finite although they should be
  for (const Index i : wrong.elements) {
    if (!std::isfinite(c.actual(i)) && std::fabs(c.expected(i)) < past) ++odd;
  }
  const auto count = static_cast<Index>(wrong.elements.size());
  const bool all_odd = odd == count;

  const auto non_finite = [&]() -> Guess {
    const Index first = wrong.elements[0];
    const char* what = std::isnan(c.actual(first)) ? ": NaN" : ": infinity";
    return {"non-finite", "first at " + detail::indices(c.unflatten(first)) + what};
  };
  if (count == 1) return all_odd ? non_finite() : Guess{"unknown", "one element"};

  std::vector<Guess> guesses;
  detail::guess_missing(c, wrong, guesses);
  detail::guess_swapped(c, wrong, guesses);
  detail::guess_rows(c, wrong, guesses);
  detail::guess_transposed(c, wrong, guesses);
  detail::guess_scaled(c, wrong, guesses);
  detail::guess_hypotheses(c, wrong, guesses);
  std::vector<Guess> faults;
  detail::guess_faults(c, wrong, faults);
  // Non-finite values that nothing above accounts for are a kind of their own. That they are what a
  // fault leaves behind says little: they are all alike.
  if (all_odd && guesses.empty()) {
    Guess guess = non_finite();
    if (!faults.empty()) guess.detail += ", as with " + either(faults);
    return guess;
  }
  // A fault that leaves no number open says more than a factor that was looked for.
  if (!faults.empty()) {
    std::erase_if(guesses, [](const Guess& g) { return g.pattern == "scaled by c"; });
    guesses.insert(guesses.end(), faults.begin(), faults.end());
  }
  // Two tiles side by side swapped are also their rows turned by half; the former says it.
  const auto moves_tiles = [](const Guess& g) { return g.moves_tiles; };
  if (guesses.size() == 2 && guesses[0].pattern == "tiles swapped") {
    std::erase_if(guesses, moves_tiles);
  }
  const auto swaps_shards = [](const Guess& g) { return g.swaps_shards; };
  if (guesses.size() == 2 && guesses[0].pattern == "shard swapped") {
    std::erase_if(guesses, swaps_shards);
  }

  if (guesses.size() == 1 && guesses[0].sure) return guesses[0];
  if (guesses.size() > 0) return {"unknown", "perhaps " + either(guesses)};
  if (odd > 0) {
    return {"unknown", std::to_string(odd) + " of the wrong elements are not finite"};
  }
  return {"unknown", detail::whereabouts(c, wrong)};
}

}  // namespace kref
