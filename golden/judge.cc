// SPDX-License-Identifier: Apache-2.0
#include "golden/judge.h"

#include <algorithm>
#include <cmath>

#include "golden/alternatives.h"
#include "golden/compared.h"
#include "golden/pattern.h"

namespace kref {
namespace {

// The worst of the elements seen so far: by ratio, then by distance, so that exact comparisons,
// where every wrong element has an infinite ratio, still single one out.
struct Leader {
  Index element = -1;
  double ratio = -1, distance = -1;

  void offer(Index i, double r, double a, double e) {
    if (r < ratio) return;
    double d = std::fabs(a - e);
    if (std::isnan(d)) d = r > 1 ? std::numeric_limits<double>::infinity() : 0;
    if (r == ratio && d <= distance) return;
    element = i, ratio = r, distance = d;
  }
};

struct Tally {
  Index wrong = 0;
  Leader leader;
};

template <class T>
Tally tally(const Compared& c) {
  Tally t;
  const auto* actual = static_cast<const T*>(c.array().data());
  for (Index i = 0; i < c.size(); ++i) {
    const auto a = static_cast<double>(actual[i]);
    const double e = c.expected(i);
    const double r = c.integers() ? c.ratio(i) : c.ratio(a, e, c.bound(i), c.overflow(i));
    if (!(r <= 1)) ++t.wrong;
    t.leader.offer(i, r, a, e);
  }
  return t;
}

Worst describe(const Compared& c, const Leader& leader) {
  Worst w;
  if (leader.element < 0) return w;
  w.element = leader.element;
  w.index = c.unflatten(w.element);
  w.expected = c.expected(w.element);
  w.actual = c.actual(w.element);
  if (c.integers()) w.integers = {c.expected_integer(w.element), c.actual_integer(w.element)};
  w.bound = c.bound(w.element);
  w.likely_bound = c.likely_bound(w.element);
  w.worst_bound = c.worst_bound(w.element);
  w.ratio = leader.ratio;
  w.tile = c.grid_index(c.tile_of(w.element));
  for (std::size_t d = 0; d < c.grid_axes().size(); ++d) {
    w.step += (d > 0 ? ", " : "") + c.grid_axes()[d] + "=" + std::to_string(w.tile[d]);
  }
  const std::string& steps = c.expectation().blocks.steps;
  if (!steps.empty()) w.step += (w.step.empty() ? "" : ", ") + steps;
  const Owner& owner = c.expectation().owner;
  if (owner.device) w.device = owner.device(w.element);
  return w;
}

}  // namespace

Verdict judge(const Expectation& expected, const Array& actual, BoundKind kind) {
  const Compared c(expected, actual, kind);
  const Tally t = with_dtype(actual.dtype(), [&]<class T>() { return tally<T>(c); });

  Verdict v;
  v.output = expected.output;
  v.dtype = actual.dtype();
  v.shape.assign(actual.shape().begin(), actual.shape().end());
  v.elements = actual.size();
  v.wrong = t.wrong;
  v.tiles = c.tiles();
  v.tile_axes = c.grid_axes();
  v.worst = describe(c, t.leader);
  if (v.ok()) return v;

  const WrongElements wrong = find_wrong(c);
  v.wrong_tiles = static_cast<Index>(wrong.tiles.size());
  for (const TileCount& tile : wrong.tiles) {
    if (v.first_wrong_tiles.size() == Verdict::kListedTiles) break;
    std::vector<Index> start, extents;
    c.tile_box(tile.tile, start, extents);
    Index size = 1;
    for (const Index e : extents) size *= e;
    std::string device;
    if (expected.owner.device) {
      c.for_tile(tile.tile, [&](Index i) {
        if (c.wrong(i)) device = expected.owner.device(i);
        return device.empty();
      });
    }
    v.first_wrong_tiles.push_back({c.grid_index(tile.tile), tile.wrong, size, device});
  }
  const Guess guess = guess_pattern(c, wrong);
  v.pattern = guess.pattern;
  v.detail = guess.detail;
  v.hint = matching_alternatives(c, wrong);
  return v;
}

}  // namespace kref
