// SPDX-License-Identifier: Apache-2.0
// Guesses in which right values stand in the wrong place: rows shifted, transposed.
#include <algorithm>
#include <cmath>

#include "golden/pattern.h"

namespace kref::detail {
namespace {

// The last two dimensions and what lies before them.
struct Matrices {
  Index count = 1, rows = 1, columns = 1;
  explicit Matrices(const Compared& c) {
    const std::size_t r = c.rank();
    rows = c.shape()[r - 2];
    columns = c.shape()[r - 1];
    for (std::size_t d = 0; d + 2 < r; ++d) count *= c.shape()[d];
  }
};

// A piece of a row in which something is wrong: the whole row, or its part in one tile.
struct Segment {
  Index matrix = 0, row = 0;
  Index begin = 0, width = 0;       // columns
  Index first_row = 0, height = 0;  // rows of the matrix or of the tile, for wrapping
};

std::vector<Segment> segments(const Compared& c, const WrongElements& wrong, bool whole_rows) {
  const Matrices m(c);
  std::vector<Segment> out;
  for (const Index i : wrong.elements) {
    const Index column = i % m.columns, row = i / m.columns % m.rows;
    const Index matrix = i / m.columns / m.rows;
    // Elements come in row-major order: their segment, if it is known, is one of the last few.
    bool known = false;
    for (std::size_t k = out.size(); k-- > 0 && !known;) {
      if (out[k].row != row || out[k].matrix != matrix) break;
      known = column >= out[k].begin && column < out[k].begin + out[k].width;
    }
    if (known) continue;
    Segment s{matrix, row, 0, m.columns, 0, m.rows};
    if (!whole_rows) {
      std::vector<Index> start, extents;
      c.tile_box(c.tile_of(i), start, extents);
      s.begin = start[c.rank() - 1], s.width = extents[c.rank() - 1];
      s.first_row = start[c.rank() - 2], s.height = extents[c.rank() - 2];
    }
    out.push_back(s);
  }
  return out;
}

// The segment holds row `source` of its matrix.
bool holds_row(const Compared& c, const Matrices& m, const Segment& s, Index source) {
  const Index to = (s.matrix * m.rows + s.row) * m.columns,
              from = (s.matrix * m.rows + source) * m.columns;
  for (Index j = s.begin; j < s.begin + s.width; ++j) {
    if (!c.holds(to + j, from + j)) return false;
  }
  return true;
}

// The row that a shift by `by` rows puts where the segment is; wrapped round the matrix or tile, or
// -1 when it would come from outside.
Index source_row(const Segment& s, Index by, bool wrap) {
  if (!wrap) return s.row + by;
  return s.first_row + ((s.row - s.first_row + by) % s.height + s.height) % s.height;
}

// Does a turn of a dimension by so much swap halves of it that are made of whole shards?
bool swaps_halves(const Compared& c, std::size_t d, Index distance, Index whole) {
  const std::vector<Index>& shard = c.expectation().owner.shard;
  return !shard.empty() && 2 * distance == whole && distance % shard[d] == 0;
}

bool rows_moved(const Compared& c, const Matrices& m, const std::vector<Segment>& all, bool whole,
                bool sure, std::vector<Guess>& guesses) {
  const Segment& first = all[0];
  for (const bool wrap : {false, true}) {
    for (Index distance = 1; distance < m.rows; ++distance) {
      for (const Index by : {-distance, distance}) {
        const auto ok = [&](const Segment& s) {
          const Index source = source_row(s, by, wrap);
          return source >= 0 && source < m.rows && source != s.row && holds_row(c, m, s, source);
        };
        if (!ok(first) || !std::all_of(all.begin(), all.end(), ok)) continue;
        std::string text = "row " + std::to_string(first.row) + " holds row " +
                           std::to_string(source_row(first, by, wrap));
        if (all.size() > 1) text += ", and so on for " + std::to_string(all.size()) + " rows";
        const Index block = c.block(c.rank() - 2);
        guesses.push_back({"rows shifted", text + (whole ? "" : " of the tile"), sure,
                           by % block == 0 && block > 1,
                           wrap && swaps_halves(c, c.rank() - 2, distance, first.height)});
        return true;
      }
    }
  }
  return false;
}

// The segment is turned by `by` columns: what left at one end comes in at the other, or leaves
// zeros, poison or the old value there. Evidence counts wrong elements that hold another's value.
bool turned(const Compared& c, const Matrices& m, const Segment& s, Index by, Evidence& evidence) {
  const Index base = (s.matrix * m.rows + s.row) * m.columns + s.begin;
  for (Index j = 0; j < s.width; ++j) {
    const Index from = ((j + by) % s.width + s.width) % s.width;
    const bool inside = j + by >= 0 && j + by < s.width, wrong = c.wrong(base + j);
    if (c.holds(base + j, base + from)) {
      if (wrong) evidence.add(c, base + j, c.bound(base + from));
      continue;
    }
    const double a = c.actual(base + j);
    if (inside || (wrong && a != 0 && !std::isnan(a))) return false;
  }
  return true;
}

bool rows_turned(const Compared& c, const Matrices& m, const std::vector<Segment>& all, bool whole,
                 std::vector<Guess>& guesses) {
  // Beyond half the width nearly everything could count as "came in at the other end".
  for (Index distance = 1; distance <= all[0].width / 2; ++distance) {
    for (const Index by : {-distance, distance}) {
      Evidence evidence;
      const auto ok = [&](const Segment& s) { return turned(c, m, s, by, evidence); };
      if (!ok(all[0])) continue;
      if (!std::all_of(all.begin() + 1, all.end(), ok)) continue;
      std::string text = "row " + std::to_string(all[0].row) + " is shifted by " +
                         std::to_string(distance) + (by < 0 ? " to the right" : " to the left");
      if (all.size() > 1) text += ", and so on for " + std::to_string(all.size()) + " rows";
      guesses.push_back({"rows shifted", text + (whole ? "" : " inside the tile"),
                         evidence.enough(4.0 * static_cast<double>(m.rows + m.columns)),
                         by % c.block(c.rank() - 1) == 0 && c.block(c.rank() - 2) > 1,
                         swaps_halves(c, c.rank() - 1, distance, all[0].width)});
      return true;
    }
  }
  return false;
}

// An element that may be 0 as well says nothing of where it came from: where most of what is
// expected is close to 0, rows that are lost look like any of the others.
Evidence moved_evidence(const Compared& c, const WrongElements& wrong) {
  Evidence e;
  for (const Index i : wrong.elements) {
    if (!c.fits(i, 0)) e.add(c, i, c.bound(i));
  }
  return e;
}

// Element (i, j) holds what is expected at (j, i), in every matrix with something wrong. Of a
// matrix that is not square: the result was written column by column.
bool matrices_transposed(const Compared& c, const WrongElements& wrong) {
  const Matrices m(c);
  if (m.rows < 2 || m.columns < 2) return false;
  const Index size = m.rows * m.columns;
  Index last = -1;
  for (const Index w : wrong.elements) {
    const Index matrix = w / size;
    if (matrix == last) continue;
    last = matrix;
    for (Index p = 0; p < size; ++p) {
      if (!c.holds(matrix * size + p, matrix * size + p % m.rows * m.columns + p / m.rows))
        return false;
    }
  }
  return true;
}

bool tiles_transposed(const Compared& c, const WrongElements& wrong) {
  const Matrices m(c);
  for (const TileCount& t : wrong.tiles) {
    std::vector<Index> start, extents;
    c.tile_box(t.tile, start, extents);
    const std::size_t i = c.rank() - 2, j = c.rank() - 1;
    if (extents[i] != extents[j] || extents[i] < 2) return false;
    const bool ok = c.for_tile(t.tile, [&](Index e) {
      const Index row = e / m.columns % m.rows - start[i], column = e % m.columns - start[j];
      return c.holds(e, e + (column - row) * m.columns + (row - column));
    });
    if (!ok) return false;
  }
  return true;
}

}  // namespace

void guess_rows(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  if (c.rank() < 2) return;
  const Matrices m(c);
  const bool sure = moved_evidence(c, wrong).enough(4.0 * static_cast<double>(m.rows + m.columns));
  for (const bool whole : {true, false}) {
    const std::vector<Segment> all = segments(c, wrong, whole);
    if (rows_moved(c, m, all, whole, sure, guesses)) return;
    if (rows_turned(c, m, all, whole, guesses)) return;
  }
}

void guess_transposed(const Compared& c, const WrongElements& wrong, std::vector<Guess>& guesses) {
  if (c.rank() < 2) return;
  const bool sure = moved_evidence(c, wrong).enough(2);
  if (matrices_transposed(c, wrong)) {
    const Matrices m(c);
    guesses.push_back({"transposed",
                       m.rows == m.columns ? "element (i, j) holds the value of (j, i)"
                                           : "rows and columns are written in each other's order",
                       sure});
  } else if (tiles_transposed(c, wrong)) {
    guesses.push_back({"transposed", "inside its tile", sure});
  }
}

}  // namespace kref::detail
