// SPDX-License-Identifier: Apache-2.0
// Faults put into right outputs, as kernels make them: what the judge is tried on.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/matmul_runs.h"

namespace kref {

// Changed values of an output, and the name a guess at the fault may have beside "unknown".
struct Mutant {
  std::string kind;
  std::string pattern;
  std::vector<double> z;
};

// A run cut into tiles, for whoever makes mutants of it.
class Mutator {
 public:
  Mutator(const MatmulFile& run, const Expectation& e) : run_(run), e_(e) {
    const std::size_t r = run.z.rank();
    rows_ = run.z.extent(r - 2), columns_ = run.z.extent(r - 1);
    matrices_ = 1;
    for (std::size_t d = 0; d + 2 < r; ++d) matrices_ *= run.z.extent(d);
    tile_rows_ = cdiv(rows_, run.tile.m), tile_columns_ = cdiv(columns_, run.tile.n);
    for (Index i = 0; i < run.z.size(); ++i) z_.push_back(run.z.at(i));
  }

  Index tiles() const { return matrices_ * tile_rows_ * tile_columns_; }
  Index rows() const { return rows_; }
  Index columns() const { return columns_; }

  // The elements of a tile, row-major.
  std::vector<Index> tile(Index t) const {
    const Index b = t / tile_columns_ / tile_rows_;
    const Index i0 = t / tile_columns_ % tile_rows_ * run_.tile.m;
    const Index j0 = t % tile_columns_ * run_.tile.n;
    std::vector<Index> out;
    for (Index i = i0; i < std::min(rows_, i0 + run_.tile.m); ++i) {
      for (Index j = j0; j < std::min(columns_, j0 + run_.tile.n); ++j) {
        out.push_back((b * rows_ + i) * columns_ + j);
      }
    }
    return out;
  }
  Index tile_of(Index element) const {
    const Index j = element % columns_, i = element / columns_ % rows_;
    const Index b = element / columns_ / rows_;
    return (b * tile_rows_ + i / run_.tile.m) * tile_columns_ + j / run_.tile.n;
  }

  // The tile that a verdict calls by its grid index, (i, j) or (b, i, j).
  Index tile_at(const std::vector<Index>& grid_index) const {
    const std::size_t r = grid_index.size();
    const Index b = r > 2 ? grid_index[0] : 0;
    return (b * tile_rows_ + grid_index[r - 2]) * tile_columns_ + grid_index[r - 1];
  }

  std::vector<Mutant> all() {
    out_.clear();
    for (const Index t : some(tiles())) tile_mutants(t);
    for (const Index t : some(tiles() - 1)) swap_tiles(t);
    for (const Index r : some(matrices_ * rows_)) row_mutants(r);
    for (const Index i : some(run_.z.size())) element_mutants(i);
    whole_mutants();
    short_sums();
    return std::move(out_);
  }

 private:
  // First, last and some between of 0 .. n - 1.
  static std::vector<Index> some(Index n) {
    std::vector<Index> out;
    for (const Index i : {Index{0}, n / 3, n / 2, n - 1}) {
      if (i >= 0 && i < n && std::find(out.begin(), out.end(), i) == out.end()) out.push_back(i);
    }
    return out;
  }

  // Rounded to the output's type, as the kernel would have stored it.
  double stored(double v) const {
    return with_dtype(run_.z.dtype(), [&]<class T>() -> double {
      if constexpr (std::is_integral_v<T>) {
        return static_cast<double>(static_cast<T>(static_cast<std::int64_t>(v)));
      } else {
        return static_cast<double>(T(v));
      }
    });
  }
  double poisoned() const {
    return with_dtype(run_.z.dtype(), []<class T>() { return static_cast<double>(poison<T>()); });
  }
  double& at(std::vector<double>& z, Index i) const { return z[static_cast<std::size_t>(i)]; }
  double right(Index i) const { return z_[static_cast<std::size_t>(i)]; }
  double bound(Index i) const {
    return e_.likely.empty() ? 0 : e_.likely[static_cast<std::size_t>(i)];
  }
  void add(const char* kind, const char* pattern, std::vector<double> z) {
    out_.push_back({kind, pattern, std::move(z)});
  }

  void tile_mutants(Index t) {
    std::vector<double> z = z_;
    for (const Index i : tile(t)) at(z, i) = 0;
    add("tile of zeros", "tile missing", z);
    for (const Index i : tile(t)) at(z, i) = poisoned();
    add("tile of poison", "tile missing", z);
    for (const Index i : tile(t)) at(z, i) = stored(-right(i));
    add("tile negated", "sign", z);
    // Noise of three bounds is no pattern.
    for (const Index i : tile(t)) {
      const double off = bound(i) > 0 ? 3 * bound(i) : 3;
      at(z, i) = stored(e_.value[static_cast<std::size_t>(i)] + (i * i % 7 < 3 ? off : -off));
    }
    add("tile with noise", "unknown", z);
    // A row of the tile left out.
    z = z_;
    const std::vector<Index> elements = tile(t);
    for (const Index i : elements) {
      if (i / columns_ == elements.back() / columns_) at(z, i) = 0;
    }
    const bool one_row = elements.front() / columns_ == elements.back() / columns_;
    add("row of a tile zero", one_row ? "tile missing" : "unknown", z);
  }

  void swap_tiles(Index t) {
    for (const Index other : {t + 1, tiles() - 1, t + tile_columns_}) {
      if (other <= t || other >= tiles()) continue;
      const std::vector<Index> a = tile(t), b = tile(other);
      // Same extents: same size and same width.
      const auto width = [&](const std::vector<Index>& e) {
        return std::count_if(e.begin(), e.end(),
                             [&](Index i) { return i / columns_ == e[0] / columns_; });
      };
      if (a.size() != b.size() || width(a) != width(b)) continue;
      std::vector<double> z = z_;
      for (std::size_t k = 0; k < a.size(); ++k)
        at(z, a[k]) = right(b[k]), at(z, b[k]) = right(a[k]);
      add("two tiles swapped", "tiles swapped", z);
    }
  }

  void row_mutants(Index r) {
    const Index row = r % rows_, base = r * columns_;
    if (rows_ > 1) {
      const Index from = (r - row + (row + 1) % rows_) * columns_;
      std::vector<double> z = z_;
      for (Index j = 0; j < columns_; ++j) at(z, base + j) = right(from + j);
      add("row holds the next", "rows shifted", z);
      z = z_;  // the same inside one tile only
      const Index end = std::min(columns_, run_.tile.n);
      for (Index j = 0; j < end; ++j) at(z, base + j) = right(from + j);
      add("row of a tile holds the next", "rows shifted", z);
    }
    if (columns_ > 1) {
      std::vector<double> z = z_;
      for (Index j = 0; j < columns_; ++j)
        at(z, base + j) = right(base + (j + columns_ - 1) % columns_);
      add("row turned by one", "rows shifted", z);
      at(z, base) = 0;
      add("row moved by one, zero moves in", "rows shifted", z);
    }
    std::vector<double> z = z_;
    for (Index j = 0; j < columns_; ++j) at(z, base + j) = stored(3 * right(base + j));
    add("row scaled", "scaled by c", z);
  }

  void element_mutants(Index i) {
    std::vector<double> z = z_;
    const double off = bound(i) > 0 ? 50 * bound(i) : 50;
    at(z, i) = stored(e_.value[static_cast<std::size_t>(i)] + off);
    add("one element off by 50 bounds", "unknown", z);
    if (!is_float(run_.z.dtype())) return;
    at(z, i) = std::numeric_limits<double>::quiet_NaN();
    add("one NaN", "non-finite", z);
    at(z, i) = stored(-std::numeric_limits<double>::infinity());
    add("one infinity", "non-finite", z);
  }

  void whole_mutants() {
    const Index size = rows_ * columns_;
    std::vector<double> z = z_;
    if (rows_ > 1 && columns_ > 1) {
      for (Index i = 0; i < run_.z.size(); ++i) {
        const Index p = i % size;
        at(z, i) = right(i - p + p % rows_ * columns_ + p / rows_);
      }
      add(rows_ == columns_ ? "transposed" : "written by columns", "transposed", z);
    }
    for (Index i = 0; i < run_.z.size(); ++i) {
      at(z, i) = right(i - i % size + (i % size + columns_) % size);
    }
    if (rows_ > 1) add("all rows moved by one", "rows shifted", z);
    for (Index i = 0; i < run_.z.size(); ++i) at(z, i) = stored(-right(i));
    add("negated", "sign", z);
    for (const double c : {2.0, -3.0, 0.5, 1.25, 1.01}) {
      // Integers keep their value under a fraction too often, or lose it altogether.
      if (!is_float(run_.z.dtype()) && c != std::floor(c)) continue;
      for (Index i = 0; i < run_.z.size(); ++i) at(z, i) = stored(c * right(i));
      add("scaled", "scaled by c", z);
    }
    std::fill(z.begin(), z.end(), 0.0);
    add("all zeros", "tile missing", z);
  }

  // Sums that stop before the last k block, and in one tile only.
  void short_sums() {
    const Index k = run_.depth;
    const Index stop = (cdiv(k, run_.tile.k) - 1) * run_.tile.k;
    if (stop <= 0 || e_.hypotheses.empty()) return;
    std::vector<double> z = z_, one = z_, values;
    for (Index i = 0; i < run_.z.size(); ++i) {
      values.clear();
      e_.hypotheses[0].values(i, values);
      at(z, i) = stored(values[static_cast<std::size_t>(stop - 1)]);
      if (tile_of(i) == tiles() - 1) at(one, i) = at(z, i);
    }
    add("last k block dropped", "last k block dropped", z);
    add("last k block of a tile dropped", "last k block dropped", one);
  }

  const MatmulFile& run_;
  const Expectation& e_;
  Index rows_, columns_, matrices_, tile_rows_, tile_columns_;
  std::vector<double> z_;
  std::vector<Mutant> out_;
};

}  // namespace kref
