// SPDX-License-Identifier: Apache-2.0
// Random small grids of all ranks, with edge blocks, squeezed dimensions and both kinds of outputs,
// against a model of the Pallas order in plain loops over flat arrays.
#include "tests/grid_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "dsl/threads.h"

namespace kref {
namespace {

template <std::size_t R>
Shape<R> shape(const std::vector<Index>& v) {
  Shape<R> out{};
  for (std::size_t d = 0; d < R; ++d) out[d] = v[d];
  return out;
}

template <std::size_t R, std::size_t... D>
BlockSpec<R> spec(const Side& side, const std::vector<Axis>& axes, std::index_sequence<D...>) {
  [[maybe_unused]] const auto expr = [&](const Part& p) {
    if (p.axis < 0) return AxisExpr(p.o);
    AxisExpr e = axes[static_cast<std::size_t>(p.axis)];
    if (p.d != 1) e = e / p.d;
    if (p.m != 0) e = e % p.m;
    return e * p.s + p.o;
  };
  [[maybe_unused]] const auto dim = [&](Index extent) {
    return extent == 1 ? BlockDim(squeezed) : BlockDim(extent);
  };
  return {.block = {dim(side.block[D])...}, .index = IndexMap<R>(expr(side.map[D])...)};
}

template <std::size_t R>
std::vector<Index> list(const Shape<R>& s) {
  return std::vector<Index>(s.begin(), s.end());
}

// Runs the model's grid over z. Zero threads: check.
template <std::size_t R, std::size_t Q>
Trace run_grid(const Model& m, Tensor<U32, Q>& z, int threads) {
  Grid grid("model");
  std::vector<Axis> axes;
  for (std::size_t a = 0; a < m.sizes.size(); ++a) {
    const std::string name(1, static_cast<char>('a' + a));
    axes.push_back(a < m.parallel ? grid.parallel(name, m.sizes[a])
                                  : grid.sequential(name, m.sizes[a]));
  }
  const Ref<const U32, R> x(m.x.data.data(), shape<R>(m.x.extents));
  const auto z_spec = spec<Q>(m.z, axes, std::make_index_sequence<Q>());
  const auto xb = grid.in("x", x, spec<R>(m.x, axes, std::make_index_sequence<R>()));
  const auto ob = m.update ? Out<U32, Q>() : grid.out("z", z, z_spec);
  const auto ub = m.update ? grid.in_out("z", z, z_spec) : InOut<U32, Q>();
  const auto body = [&](const Step& s) {
    // The first step of a visit: every axis that z does not name is at its first coordinate.
    bool fresh = true;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      Index divisor = m.sizes[a];
      for (const Part& p : m.z.map) {
        if (p.axis == static_cast<int>(a)) divisor = p.d;
      }
      fresh = fresh && s.index(axes[a]) % divisor == 0;
    }
    U32 input = static_cast<U32>(s.number());
    const Ref<const U32, R> in = m.whole ? s[xb] : s.valid(xb);
    std::vector<Index> e(R);
    const std::vector<Index> inside = list(s.extents(xb));
    do {
      input = input * 31u + in[shape<R>(e)];
    } while (next(e, inside));
    const Ref<U32, Q> out =
        m.update ? (m.whole ? s[ub] : s.valid(ub)) : (m.whole ? s[ob] : s.valid(ob));
    std::vector<Index> o(Q);
    do {
      Index i = 0;  // place in the whole block
      for (std::size_t d = 0; d < Q; ++d) i = i * m.z.block[d] + o[d];
      if (m.partial && i % 2 == 1) continue;
      U32& v = out[shape<Q>(o)];
      v = mix(fresh && !m.update ? 0 : v, input, i);
    } while (next(o, list(out.extents())));
  };
  if (threads == 0) return grid.check(body);
  set_threads(threads);
  const Trace trace = grid.run(body);
  set_threads(0);
  return trace;
}

template <std::size_t R, std::size_t Q>
void compare(unsigned seed) {
  Model m = Generator(seed).model(R, Q);
  const std::vector<U32> start = m.z.data;
  run_model(m);
  for (const int threads : {1, 2, 3, 8, 0}) {
    // What a body leaves unwritten in an out is refused by check, and rightly so; blocks that no
    // step visits likewise.
    Tensor<U32, Q> z(shape<Q>(m.z.extents));
    std::copy(start.begin(), start.end(), z.data());
    CAPTURE(seed);
    CAPTURE(threads);
    Trace trace;
    try {
      trace = run_grid<R, Q>(m, z, threads);
    } catch (const Error& e) {
      const bool expected =
          threads == 0 && !m.update &&
          (m.partial || std::string(e.what()).find("visited by no step") != std::string::npos);
      CHECK_MESSAGE(expected, e.what());
      continue;
    }
    CHECK(std::equal(m.z.data.begin(), m.z.data.end(), z.data()));
    CHECK(trace.steps == product(m.sizes));
    CHECK(trace["x"].fetches == m.x_fetches);
    CHECK(trace["z"].write_backs == m.z_visits);
    CHECK(trace["z"].fetches == (m.update ? m.z_visits : 0));
  }
}

template <std::size_t R>
void compare_ranks() {
  for (unsigned seed = 0; seed < 60; ++seed) {
    compare<R, R>(1000 * R + seed);
    compare<R, 6 - R>(1000 * R + 500 + seed);
  }
}

TEST_CASE("random grids against the contract in plain loops") {
  compare_ranks<0>();
  compare_ranks<1>();
  compare_ranks<2>();
  compare_ranks<3>();
  compare_ranks<4>();
  compare_ranks<5>();
  compare_ranks<6>();
}

}  // namespace
}  // namespace kref
