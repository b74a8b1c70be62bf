// SPDX-License-Identifier: Apache-2.0
// Pallas' attention programs, and a body that writes its input's window.
#include <cmath>

#include "kernels/kernels.h"
#include "tests/pallas_program.h"

namespace kref {
namespace {

using I32 = std::int32_t;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Online softmax of a block of scores (m, n): p becomes exp(p - new maximum); the maximum, the sum
// and what was accumulated follow.
void softmax_step(Ref<float, 2> p, Ref<float, 2> top, Ref<float, 2> sum, Ref<float, 2> shrink,
                  Ref<float, 2> acc) {
  row_max(p, shrink);
  maximum(shrink, top, shrink);
  sub(p, shrink, p);
  exp(p, p);
  sub(top, shrink, top);
  exp(top, top);  // what the sums so far shrink by
  mul(acc, top, acc);
  mul(sum, top, sum);
  copy(shrink, top);
  row_sum(p, shrink);
  add(sum, shrink, sum);
}

// In f64, of q [m, d], keys and values [n, d]: visible(i) keys count for row i. What an honest f32
// machine may be off by: roundings of a product of d terms in the exponent, of n terms in the sums.
struct Expected {
  std::vector<double> o, lse;
  double bound = 0;
};
template <class Q, class K, class V, class Visible>
Expected attend(Index m, Index n, Index d, Q q, K k, V v, Visible visible) {
  Expected out;
  const double u = unit_roundoff(DType::kF32);
  for (Index i = 0; i < m; ++i) {
    std::vector<double> p;
    double top = -INFINITY, exponent = 0, largest = 0;
    for (Index j = 0; j < std::min(n, visible(i)); ++j) {
      double s = 0, products = 0;
      for (Index c = 0; c < d; ++c)
        s += q(i, c) * k(j, c) / 4, products += std::abs(q(i, c) * k(j, c));
      p.push_back(s);
      top = std::max(top, s);
      exponent = std::max(exponent, products * static_cast<double>(d) / 4);
    }
    double sum = 0;
    for (double& s : p) sum += s = std::exp(s - top);
    for (Index c = 0; c < d; ++c) {
      double o = 0;
      for (std::size_t j = 0; j < p.size(); ++j) {
        o += p[j] * v(static_cast<Index>(j), c) / sum;
        largest = std::max(largest, std::abs(v(static_cast<Index>(j), c)));
      }
      out.o.push_back(o);
    }
    out.lse.push_back(top + std::log(sum));
    out.bound = std::max(out.bound,
                         2 * u * (2 * exponent + static_cast<double>(4 * n) + 8) * (1 + largest));
  }
  return out;
}

TEST_CASE("flash_attention: online softmax, causal, kv blocks above the diagonal skipped") {
  const PallasProgram program("flash_attention");
  const auto q = program.in<float, 4>("q"), k = program.in<float, 4>("k"),
             v = program.in<float, 4>("v");
  for (const Way way : kWays) {
    auto o = program.out<float, 4>("o"), lse = program.out<float, 4>("lse");
    auto ran = program.out<I32, 4>("ran");
    Grid grid("flash_attention");
    const Axis b = grid.parallel("b", 1), h = grid.parallel("h", 2), i = grid.parallel("i", 3),
               j = grid.sequential("j", 3);
    const BlockSpec<4> kv{.block = {squeezed, squeezed, 16, 16}, .index = {b, h, j, 0}};
    const BlockSpec<4> rows{.block = {squeezed, squeezed, 16, 16}, .index = {b, h, i, 0}};
    const auto qb = grid.in("q", q, rows), kb = grid.in("k", k, kv), vb = grid.in("v", v, kv);
    const auto ob = grid.out("o", o, rows);
    const auto lb =
        grid.out("lse", lse, {.block = {squeezed, squeezed, 16, 1}, .index = {b, h, i, 0}});
    const auto rb =
        grid.out("ran", ran, {.block = {squeezed, squeezed, 1, 1}, .index = {b, h, i, 0}});
    const auto m = grid.scratch<float>("m", {16, 1}), l = grid.scratch<float>("l", {16, 1}),
               t = grid.scratch<float>("t", {16, 1}), acc = grid.scratch<float>("acc", {16, 16}),
               p = grid.scratch<float>("p", {16, 16});
    execute(grid, way, [&](const Step& s) {
      if (s.first(j)) {
        fill(s[m], kMinusInfinity), fill(s[l], 0.0f), fill(s[acc], 0.0f), fill(s[rb], 0);
      }
      if (s.index(j) <= s.index(i)) {
        dot(matrix(s[qb]), matrix(s[kb]), s[p], {.trans_y = true});
        mul(s[p], 0.25f, s[p]);
        for (Index r = 0; r < 16 && s.index(i) == s.index(j); ++r) {
          for (Index c = r + 1; c < 16; ++c) s[p](r, c) = kMinusInfinity;
        }
        softmax_step(s[p], s[m], s[l], s[t], s[acc]);
        dot_add(s[p], matrix(s[vb]), s[acc]);
        s[rb](0, 0, 0, 0) += 1;
      }
      if (s.last(j)) {
        div(s[acc], s[l], matrix(s[ob]));
        log(s[l], s[l]);
        add(s[m], s[l], matrix(s[lb]));
      }
    });
    program.expect("ran", ran);
    for (Index head = 0; head < 2; ++head) {
      const auto of = [&](const Tensor<float, 4>& x) {
        return [&x, head](Index r, Index c) { return static_cast<double>(x(0, head, r, c)); };
      };
      const Expected e = attend(48, 48, 16, of(q), of(k), of(v), [](Index r) { return r + 1; });
      for (Index r = 0; r < 48; ++r) {
        CHECK(std::abs(lse(0, head, r, 0) - e.lse[static_cast<std::size_t>(r)]) <= e.bound);
        for (Index c = 0; c < 16; ++c) {
          CHECK(std::abs(o(0, head, r, c) - e.o[static_cast<std::size_t>(16 * r + c)]) <= e.bound);
        }
      }
      // Two f32 machines: JAX's numbers are within the same distance of the truth.
      CHECK(e.bound < 1e-2);
      program.expect_within("o", o, [&](Index) { return 2 * e.bound; });
      program.expect_within("lse", lse, [&](Index) { return 2 * e.bound; });
    }
  }
}

TEST_CASE("decode_attention: lengths by a table, grouped heads, ragged kv blocks") {
  const PallasProgram program("decode_attention");
  const auto lengths = program.in<I32, 1>("lengths");
  const auto q = program.in<float, 3>("q");
  const auto k = program.in<float, 4>("k_cache"), v = program.in<float, 4>("v_cache");
  for (const Way way : kWays) {
    auto o = program.out<float, 3>("o");
    Grid grid("decode_attention");
    const Axis b = grid.parallel("b", 3), g = grid.parallel("g", 2), j = grid.sequential("j", 3);
    const BlockSpec<4> cache{.block = {squeezed, 16, squeezed, 16}, .index = {b, j, g, 0}};
    const BlockSpec<3> heads{.block = {squeezed, 2, 16}, .index = {b, g, 0}};
    const auto n = grid.prefetch("lengths", lengths);
    const auto qb = grid.in("q", q, heads);
    const auto kb = grid.in("k", k, cache), vb = grid.in("v", v, cache);
    const auto ob = grid.out("o", o, heads);
    const auto m = grid.scratch<float>("m", {2, 1}), l = grid.scratch<float>("l", {2, 1}),
               t = grid.scratch<float>("t", {2, 1}), acc = grid.scratch<float>("acc", {2, 16}),
               p = grid.scratch<float>("p", {2, 16});
    execute(grid, way, [&](const Step& s) {
      if (s.first(j)) fill(s[m], kMinusInfinity), fill(s[l], 0.0f), fill(s[acc], 0.0f);
      // Only the keys that count: no mask, and nothing of the padding is read.
      const Index keys = std::min<Index>(16, s[n](s.index(b)) - 16 * s.index(j));
      if (keys > 0) {
        const auto whole_k = s[kb], whole_v = s[vb];
        const Ref<const float, 2> rows_k(whole_k.data(), {keys, 16}, {whole_k.stride(1), 1}),
            rows_v(whole_v.data(), {keys, 16}, {whole_v.stride(1), 1});
        const auto scores = s[p].block({0, 0}, {2, keys});
        dot(matrix(s[qb]), rows_k, scores, {.trans_y = true});
        mul(scores, 0.25f, scores);
        softmax_step(scores, s[m], s[l], s[t], s[acc]);
        dot_add(scores, rows_v, s[acc]);
      }
      if (s.last(j)) div(s[acc], s[l], matrix(s[ob]));
    });
    double bound = 0;
    for (Index batch = 0; batch < 3; ++batch) {
      for (Index head = 0; head < 4; ++head) {
        const auto of = [&](const Tensor<float, 4>& x) {
          return [&x, batch, head](Index r, Index c) {
            return static_cast<double>(x(batch, r, head / 2, c));
          };
        };
        const auto query = [&](Index, Index c) { return static_cast<double>(q(batch, head, c)); };
        const Expected e =
            attend(1, 40, 16, query, of(k), of(v), [&](Index) { return Index{lengths(batch)}; });
        for (Index c = 0; c < 16; ++c) {
          CHECK(std::abs(o(batch, head, c) - e.o[static_cast<std::size_t>(c)]) <= e.bound);
        }
        bound = std::max(bound, e.bound);
      }
    }
    CHECK(bound < 1e-2);
    program.expect_within("o", o, [&](Index) { return 2 * bound; });
  }
}

TEST_CASE("input_write: what a body writes to an input's window is gone with the next fetch") {
  const PallasProgram program("input_write");
  const auto x = program.in<float, 1>("x");
  for (const Way way : kWays) {
    auto z = program.out<float, 1>("z");
    Grid grid("input_write");
    const Axis i = grid.sequential("i", 2), j = grid.sequential("j", 2);
    const auto index = [=](const Step& s) { return Shape<1>{2 * s.index(i) + s.index(j)}; };
    const auto xb = grid.in_window("x", x, {.block = {4}, .index = {j}});
    const auto zb = grid.out("z", z, {.block = {4}, .index = index});
    execute(grid, way, [&](const Step& s) {
      add(s[xb], 1.0f, s[xb]);
      copy(s[xb], s[zb]);
    });
    program.expect("z", z);
    for (Index e = 0; e < 8; ++e) CHECK(x(e) == program.in<float, 1>("x")(e));
  }
}

TEST_CASE("pallas 1: two fetches, a table, two write-backs; a write stays while its block does") {
  // grid (2, 2), maps (i, 0): x += s; s += 1; o = x. The counter is scratch here, where Pallas'
  // test writes its SMEM input.
  for (const Way way : kWays) {
    Tensor<float, 2> x({2, 4}, 0.0f), z({2, 4});
    Tensor<I32, 1> start({1}, 1);
    Grid grid("stores");
    const Axis i = grid.sequential("i", 2), j = grid.sequential("j", 2);
    const auto tb = grid.prefetch("start", start);
    const auto xb = grid.in_window("x", x, {.block = {1, 4}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {1, 4}, .index = {i, 0}});
    const auto count = grid.scratch<float>("count", {1});
    const Trace trace = execute(grid, way, [&](const Step& s) {
      if (s.first(i) && s.first(j)) s[count](0) = static_cast<float>(s[tb](0)) - 1;
      add(s[xb], s[count](0), s[xb]);
      s[count](0) += 1;
      copy(s[xb], s[zb]);
    });
    for (Index c = 0; c < 4; ++c) {
      CHECK(z(0, c) == 1);
      CHECK(z(1, c) == 5);
      CHECK(x(0, c) == 0);
    }
    CHECK(trace["x"].fetches == 2);
    CHECK(trace["start"].fetches == 1);
    CHECK(trace["z"].write_backs == 2);
    CHECK(trace["x"].fetches + trace["start"].fetches + trace["z"].write_backs == 5);
  }
}

}  // namespace
}  // namespace kref
