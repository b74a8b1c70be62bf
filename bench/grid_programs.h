// SPDX-License-Identifier: Apache-2.0
// Five kernels as grids of the DSL, as a user writes them, each beside the loops that it stands for
// round the same verbs.
#pragma once

#include <algorithm>
#include <cmath>

#include "bench/inputs.h"
#include "dsl/grid.h"
#include "kernels/kernels.h"

namespace kref::bench {

using Matrix = Tensor<float, 2>;

// How a grid is executed.
enum class Who { kRun, kCheck };
template <class F>
Trace execute(Grid& grid, Who who, const F& body) {
  return who == Who::kCheck ? grid.check(body) : grid.run(body);
}

template <class F>
bool for_all(Index n, F f) {
  Index right = 0;
  for (Index e = 0; e < n; ++e) right += f(e) ? 1 : 0;
  return right == n;
}

// ---- matmul: 512 x 512 x 512 in tiles of 128

struct Matmul {
  static constexpr Index kSide = 512, kTile = 128;
  Matrix x = random_matrix<float>(kSide, kSide, 1), y = random_matrix<float>(kSide, kSide, 2);
  Matrix z{{kSide, kSide}};

  void grid(Who who) {
    Grid grid("matmul");
    const Axis i = grid.parallel("i", kSide / kTile), j = grid.parallel("j", kSide / kTile);
    const Axis k = grid.sequential("k", kSide / kTile);
    const auto xb = grid.in("x", x, {.block = {kTile, kTile}, .index = {i, k}});
    const auto yb = grid.in("y", y, {.block = {kTile, kTile}, .index = {k, j}});
    const auto zb = grid.out("z", z, {.block = {kTile, kTile}, .index = {i, j}});
    const auto acc = grid.scratch<float>("acc", {kTile, kTile});
    execute(grid, who, [&](const Step& s) {
      if (s.first(k)) fill(s[acc], 0.0f);
      dot_add(s.valid(xb), s.valid(yb), s[acc]);
      if (s.last(k)) copy(s[acc], s[zb]);
    });
  }

  void raw(int threads) {
    const Index n = kSide / kTile;
    const auto tile = [](auto a, Index r, Index c) {
      return a.block({r * kTile, c * kTile}, {kTile, kTile});
    };
#pragma omp parallel num_threads(threads)
    {
      Matrix acc({kTile, kTile}, 0.0f);
#pragma omp for schedule(dynamic)
      for (Index p = 0; p < n * n; ++p) {
        fill(acc.ref(), 0.0f);
        for (Index k = 0; k < n; ++k) {
          dot_add(tile(std::as_const(x).ref(), p / n, k), tile(std::as_const(y).ref(), k, p % n),
                  acc.ref());
        }
        copy(acc, tile(z.ref(), p / n, p % n));
      }
    }
  }

  bool right() const { return product_error(x, y, z) <= 1; }
};

// ---- add: 2^20 elements in 64 blocks

struct Add {
  static constexpr Index kSize = Index{1} << 20, kBlocks = 64, kBlock = kSize / kBlocks;
  Tensor<float, 1> x{{kSize}, 1.5f}, y{{kSize}, 0.0f}, z{{kSize}};
  Add() {
    for (Index e = 0; e < kSize; ++e) y(e) = static_cast<float>(e % 4099);
  }

  void grid(Who who) {
    Grid grid("add");
    const Axis i = grid.parallel("i", kBlocks);
    const auto xb = grid.in("x", x, {.block = {kBlock}, .index = {i}});
    const auto yb = grid.in("y", y, {.block = {kBlock}, .index = {i}});
    const auto zb = grid.out("z", z, {.block = {kBlock}, .index = {i}});
    execute(grid, who, [&](const Step& s) { add(s[xb], s[yb], s[zb]); });
  }

  void raw(int threads) {
#pragma omp parallel for num_threads(threads)
    for (Index b = 0; b < kBlocks; ++b) {
      const Shape<1> at{b * kBlock}, size{kBlock};
      add(std::as_const(x).ref().block(at, size), std::as_const(y).ref().block(at, size),
          z.ref().block(at, size));
    }
  }

  bool right() const {
    return for_all(kSize, [&](Index e) { return z(e) == x(e) + y(e); });
  }
};

// ---- layer norm of the rows of 1024 x 1024

struct LayerNorm {
  static constexpr Index kSide = 1024, kRows = 64;
  Matrix x = random_matrix<float>(kSide, kSide, 3), z{{kSide, kSide}};
  Matrix gamma = random_matrix<float>(1, kSide, 4), beta = random_matrix<float>(1, kSide, 5);

  // (x - mean) / sqrt(var + 1e-5) * gamma + beta of the rows of a block; row and square are its
  // size.
  static void normalise(Ref<const float, 2> v, Ref<const float, 2> g, Ref<const float, 2> b,
                        Ref<float, 2> row, Ref<float, 2> square, Ref<float, 2> out) {
    row_sum(v, row);
    mul(row, 1.0f / kSide, row);
    sub(v, row, out);
    mul(out, out, square);
    row_sum(square, row);
    for (Index r = 0; r < row.extent(0); ++r) row(r, 0) = 1 / std::sqrt(row(r, 0) / kSide + 1e-5f);
    mul(out, row, out);
    mul_add(out, g, b, out);
  }

  void grid(Who who) {
    Grid grid("layer_norm");
    const Axis i = grid.parallel("i", kSide / kRows);
    const auto xb = grid.in("x", x, {.block = {kRows, kSide}, .index = {i, 0}});
    const auto gb = grid.in("gamma", gamma), bb = grid.in("beta", beta);
    const auto zb = grid.out("z", z, {.block = {kRows, kSide}, .index = {i, 0}});
    const auto row = grid.scratch<float>("row", {kRows, 1});
    const auto square = grid.scratch<float>("square", {kRows, kSide});
    execute(grid, who,
            [&](const Step& s) { normalise(s[xb], s[gb], s[bb], s[row], s[square], s[zb]); });
  }

  void raw(int threads) {
#pragma omp parallel num_threads(threads)
    {
      Matrix row({kRows, 1}), square({kRows, kSide});
#pragma omp for
      for (Index i = 0; i < kSide / kRows; ++i) {
        const Shape<2> at{i * kRows, 0}, size{kRows, kSide};
        normalise(std::as_const(x).ref().block(at, size), gamma.ref(), beta.ref(), row.ref(),
                  square.ref(), z.ref().block(at, size));
      }
    }
  }

  bool right() const {
    for (const Index r : {Index{0}, kSide / 3, kSide - 1}) {
      double mean = 0, square = 0;
      for (Index c = 0; c < kSide; ++c) mean += static_cast<double>(x(r, c)) / kSide;
      for (Index c = 0; c < kSide; ++c) square += std::pow(static_cast<double>(x(r, c)) - mean, 2);
      const double scale = 1 / std::sqrt(square / kSide + 1e-5);
      for (Index c = 0; c < kSide; ++c) {
        const double v = (static_cast<double>(x(r, c)) - mean) * scale,
                     e = v * static_cast<double>(gamma(0, c)) + static_cast<double>(beta(0, c));
        if (!(std::abs(static_cast<double>(z(r, c)) - e) < 1e-5)) return false;
      }
    }
    return true;
  }
};

// ---- flash attention, [1, 4, 512, 64] each, blocks of 128 queries and 128 keys

struct Flash {
  static constexpr Index kHeads = 4, kTokens = 512, kDepth = 64, kBlock = 128;
  Tensor<float, 4> q = random(6), k = random(7), v = random(8), o{{1, kHeads, kTokens, kDepth}};

  static Tensor<float, 4> random(unsigned seed) {
    const Matrix flat = random_matrix<float>(kHeads * kTokens, kDepth, seed);
    Tensor<float, 4> out({1, kHeads, kTokens, kDepth});
    std::copy_n(flat.data(), flat.size(), out.data());
    return out;
  }

  // What a step works in.
  struct State {
    Ref<float, 2> most, sum, fresh, shrink, acc, p;
  };
  static void start(const State& s) {
    fill(s.most, -std::numeric_limits<float>::infinity());
    fill(s.sum, 0.0f), fill(s.acc, 0.0f);
  }
  static void step(Ref<const float, 2> q, Ref<const float, 2> k, Ref<const float, 2> v,
                   const State& s) {
    dot(q, k, s.p, {.trans_y = true});
    mul(s.p, 0.125f, s.p);
    row_max(s.p, s.fresh);
    maximum(s.fresh, s.most, s.fresh);
    sub(s.most, s.fresh, s.shrink);
    exp(s.shrink, s.shrink);
    copy(s.fresh, s.most);
    sub(s.p, s.fresh, s.p);
    exp(s.p, s.p);
    row_sum(s.p, s.fresh);
    mul_add(s.sum, s.shrink, s.fresh, s.sum);
    mul(s.acc, s.shrink, s.acc);
    dot_add(s.p, v, s.acc);
  }

  void grid(Who who) {
    Grid grid("flash_attention");
    const Axis h = grid.parallel("h", kHeads), i = grid.parallel("i", kTokens / kBlock);
    const Axis j = grid.sequential("j", kTokens / kBlock);
    const BlockSpec<4> rows{.block = {squeezed, squeezed, kBlock, kDepth}, .index = {0, h, i, 0}};
    const BlockSpec<4> keys{.block = {squeezed, squeezed, kBlock, kDepth}, .index = {0, h, j, 0}};
    const auto qb = grid.in("q", q, rows), kb = grid.in("k", k, keys), vb = grid.in("v", v, keys);
    const auto ob = grid.out("o", o, rows);
    const auto most = grid.scratch<float>("most", {kBlock, 1}),
               sum = grid.scratch<float>("sum", {kBlock, 1}),
               fresh = grid.scratch<float>("fresh", {kBlock, 1}),
               shrink = grid.scratch<float>("shrink", {kBlock, 1}),
               acc = grid.scratch<float>("acc", {kBlock, kDepth}),
               p = grid.scratch<float>("p", {kBlock, kBlock});
    execute(grid, who, [&](const Step& s) {
      const State state{s[most], s[sum], s[fresh], s[shrink], s[acc], s[p]};
      if (s.first(j)) start(state);
      step(matrix(s[qb]), matrix(s[kb]), matrix(s[vb]), state);
      if (s.last(j)) div(s[acc], s[sum], matrix(s[ob]));
    });
  }

  void raw(int threads) {
    const auto rows = [](auto a, Index head, Index block) {
      return matrix(a.block({0, head, block * kBlock, 0}, {1, 1, kBlock, kDepth}));
    };
#pragma omp parallel num_threads(threads)
    {
      Matrix most({kBlock, 1}), sum({kBlock, 1}), fresh({kBlock, 1}), shrink({kBlock, 1}),
          acc({kBlock, kDepth}), p({kBlock, kBlock});
      const State state{most.ref(), sum.ref(), fresh.ref(), shrink.ref(), acc.ref(), p.ref()};
#pragma omp for schedule(dynamic)
      for (Index at = 0; at < kHeads * kTokens / kBlock; ++at) {
        const Index h = at / (kTokens / kBlock), i = at % (kTokens / kBlock);
        start(state);
        for (Index j = 0; j < kTokens / kBlock; ++j) {
          step(rows(std::as_const(q).ref(), h, i), rows(std::as_const(k).ref(), h, j),
               rows(std::as_const(v).ref(), h, j), state);
        }
        div(acc, sum, rows(o.ref(), h, i));
      }
    }
  }

  bool right() const {
    for (const Index i : {Index{0}, kTokens - 1}) {
      const Index h = kHeads - 1;
      std::vector<double> p;
      double sum = 0;
      for (Index j = 0; j < kTokens; ++j) {
        double s = 0;
        for (Index d = 0; d < kDepth; ++d) {
          s += static_cast<double>(q(0, h, i, d)) * static_cast<double>(k(0, h, j, d));
        }
        sum += std::exp(s / 8);
        p.push_back(std::exp(s / 8));
      }
      for (Index d = 0; d < kDepth; ++d) {
        double e = 0;
        for (Index j = 0; j < kTokens; ++j) {
          e += p[static_cast<std::size_t>(j)] * static_cast<double>(v(0, h, j, d)) / sum;
        }
        if (!(std::abs(e - static_cast<double>(o(0, h, i, d))) < 1e-5)) return false;
      }
    }
    return true;
  }
};

// ---- 4096 steps, each of which writes its number to a block of one element

struct Probe {
  static constexpr Index kSide = 64;
  Tensor<std::int32_t, 2> z{{kSide, kSide}};

  void grid(Who who) {
    Grid grid("order_probe");
    const Axis i = grid.sequential("i", kSide), j = grid.sequential("j", kSide);
    const auto zb = grid.out("z", z, {.block = {1, 1}, .index = {i, j}});
    execute(grid, who, [&](const Step& s) { s[zb](0, 0) = static_cast<std::int32_t>(s.number()); });
  }
  void raw(int) {
    for (Index e = 0; e < z.size(); ++e) {
      z.data()[e] = static_cast<std::int32_t>(e);
    }
  }
  bool right() const {
    return for_all(z.size(), [&](Index e) { return z.data()[e] == e; });
  }
};

}  // namespace kref::bench
