// SPDX-License-Identifier: Apache-2.0
// A model of the Pallas order in plain loops over flat arrays, and random grids to try it on.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "dsl/grid.h"

namespace kref {

using U32 = std::uint32_t;

struct Part {  // axis / d % m * s + o; axis -1: o
  int axis = -1;
  Index d = 1, m = 0, s = 1, o = 0;
  Index at(const std::vector<Index>& c) const {
    if (axis < 0) return o;
    const Index v = c[static_cast<std::size_t>(axis)] / d;
    return (m != 0 ? v % m : v) * s + o;
  }
};

struct Side {  // one operand
  std::vector<Part> map;
  std::vector<Index> block, extents;
  std::vector<U32> data;
};

struct Model {
  std::vector<Index> sizes;
  std::size_t parallel = 0;
  Side x, z;
  bool update = false;   // z is in_out
  bool whole = false;    // the body works on whole blocks
  bool partial = false;  // and leaves every other element unwritten
  Index x_fetches = 0, z_visits = 0;
};

inline Index product(const std::vector<Index>& v) {
  Index n = 1;
  for (const Index e : v) n *= e;
  return n;
}

// Row-major: moves to the next index; false after the last.
inline bool next(std::vector<Index>& at, const std::vector<Index>& extents) {
  for (std::size_t d = at.size(); d-- > 0;) {
    if (++at[d] < extents[d]) return true;
    at[d] = 0;
  }
  return false;
}

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}
  Index pick(Index low, Index high) {
    return low + static_cast<Index>(random_() % static_cast<unsigned>(high - low + 1));
  }

  Model model(std::size_t x_rank, std::size_t z_rank) {
    Model m;
    m.sizes.resize(static_cast<std::size_t>(pick(0, 4)));
    for (Index& size : m.sizes) size = pick(1, 3);
    m.parallel =
        static_cast<std::size_t>(pick(0, static_cast<Index>(std::min(m.sizes.size(), z_rank))));
    // z names the parallel axes and some of the first sequential ones, in any dimension; the last
    // one may be divided.
    std::size_t used = m.parallel;
    while (used < std::min(m.sizes.size(), z_rank) && pick(0, 1) == 1) ++used;
    m.z.map.resize(z_rank);
    for (Part& p : m.z.map) p.o = pick(0, 1);
    std::vector<std::size_t> dims(z_rank);
    for (std::size_t d = 0; d < z_rank; ++d) dims[d] = d;
    std::shuffle(dims.begin(), dims.end(), random_);
    for (std::size_t a = 0; a < used; ++a) {
      Part& p = m.z.map[dims[a]];
      p.axis = static_cast<int>(a);
      if (a + 1 == used && a >= m.parallel) p.d = pick(1, 2);
      if (pick(0, 4) == 0) p.s = 2;
    }
    m.x.map.resize(x_rank);
    for (Part& p : m.x.map) {
      p.axis = static_cast<int>(pick(-1, static_cast<Index>(m.sizes.size()) - 1));
      p.d = pick(1, 2);
      p.m = pick(0, 2);
      p.s = pick(0, 2);
      p.o = pick(0, 1);
    }
    fill(m, m.x);
    fill(m, m.z);
    m.update = pick(0, 2) == 0;
    m.whole = pick(0, 1) == 0;
    m.partial = pick(0, 3) == 0;
    return m;
  }

 private:
  void fill(const Model& m, Side& side) {
    for (const Part& p : side.map) {
      Index top = p.o;
      const Index size = p.axis < 0 ? 1 : m.sizes[static_cast<std::size_t>(p.axis)];
      std::vector<Index> at(m.sizes.size());
      for (Index c = 0; c < size; ++c) {
        if (p.axis >= 0) at[static_cast<std::size_t>(p.axis)] = c;
        top = std::max(top, p.at(at));
      }
      side.block.push_back(pick(1, 3));
      side.extents.push_back((top + 1) * side.block.back() - pick(0, side.block.back() - 1));
    }
    side.data.resize(static_cast<std::size_t>(product(side.extents)));
    for (U32& v : side.data) v = static_cast<U32>(random_());
  }
  std::mt19937 random_;
};

// Element of the array under element `at` of block `block`; null outside.
inline U32* find(Side& side, const std::vector<Index>& block, const std::vector<Index>& at) {
  std::size_t flat = 0;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const Index i = block[d] * side.block[d] + at[d];
    if (i >= side.extents[d]) return nullptr;
    flat = flat * static_cast<std::size_t>(side.extents[d]) + static_cast<std::size_t>(i);
  }
  return &side.data[flat];
}

// One accumulation, the same in model and body: order matters, so a missing, doubled or misplaced
// step changes the result.
inline U32 mix(U32 old, U32 input, Index position) {
  return old * 3u + input + static_cast<U32>(position);
}

// The contract, literally: a list of steps, one window, written back when it is left.
inline void run_model(Model& m) {
  std::vector<Index> at(m.sizes.size()), x_before, z_before;
  std::vector<U32> window(static_cast<std::size_t>(product(m.z.block)));
  const auto store = [&] {
    std::vector<Index> e(m.z.block.size());
    std::size_t i = 0;
    do {
      U32* to = find(m.z, z_before, e);
      if (to != nullptr) *to = window[i];
      ++i;
    } while (next(e, m.z.block));
  };
  Index step = 0;
  do {
    std::vector<Index> x_block, z_block;
    for (const Part& p : m.x.map) x_block.push_back(p.at(at));
    for (const Part& p : m.z.map) z_block.push_back(p.at(at));
    if (step == 0 || x_block != x_before) ++m.x_fetches;
    const bool fresh = step == 0 || z_block != z_before;
    if (fresh) {
      if (step > 0) store();
      ++m.z_visits;
      std::vector<Index> e(m.z.block.size());
      std::size_t i = 0;
      do {
        const U32* from = find(m.z, z_block, e);
        window[i++] = m.update && from != nullptr ? *from : poison<U32>();
      } while (next(e, m.z.block));
    }
    x_before = x_block;
    z_before = z_block;

    U32 input = static_cast<U32>(step);
    std::vector<Index> e(m.x.block.size());
    do {
      const U32* from = find(m.x, x_block, e);
      if (from != nullptr) input = input * 31u + *from;
    } while (next(e, m.x.block));
    for (std::size_t i = 0; i < window.size(); ++i) {
      if (m.partial && i % 2 == 1) continue;
      window[i] = mix(fresh && !m.update ? 0 : window[i], input, static_cast<Index>(i));
    }
    ++step;
  } while (next(at, m.sizes));
  store();
}

}  // namespace kref
