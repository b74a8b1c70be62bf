// SPDX-License-Identifier: Apache-2.0
// An output aliased to an input, along parallel axes: what is refused before the run, against going
// through all pairs of steps; and what is not refused gives the same on any number of threads.
#include <doctest/doctest.h>

#include <numeric>

#include "dsl/threads.h"
#include "tests/grid_model.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

struct Threads {
  explicit Threads(int count) { set_threads(count); }
  ~Threads() { set_threads(0); }
};

constexpr Index kExtent = 6;  // of both dimensions of the array

struct Case {
  std::vector<Index> sizes;
  std::size_t parallel = 0;
  std::array<Part, 2> x, z;
  std::array<Index, 2> x_block, z_block;
};

Case random_case(Generator& random) {
  Case c;
  c.sizes.resize(static_cast<std::size_t>(random.pick(1, 3)));
  for (Index& size : c.sizes) size = random.pick(1, 4);
  c.parallel = static_cast<std::size_t>(random.pick(1, static_cast<Index>(c.sizes.size())));
  const auto part = [&] {
    Part p;
    p.axis = static_cast<int>(random.pick(-1, static_cast<Index>(c.sizes.size()) - 1));
    if (random.pick(0, 4) == 0) p.d = random.pick(1, 2);
    if (random.pick(0, 4) == 0) p.m = random.pick(1, 3);
    if (random.pick(0, 4) == 0) p.s = random.pick(1, 2);
    p.o = random.pick(0, 3) == 0 ? random.pick(0, 3) : 0;
    return p;
  };
  for (std::size_t d = 0; d < 2; ++d) {
    c.z[d] = part();
    c.x[d] = random.pick(0, 2) == 0 ? part() : c.z[d];
    c.z_block[d] = random.pick(1, 2);
    c.x_block[d] = random.pick(0, 3) == 0 ? random.pick(1, 3) : c.z_block[d];
  }
  return c;
}

bool blocks_meet(const Case& c, const std::vector<Index>& read, const std::vector<Index>& written) {
  for (std::size_t d = 0; d < 2; ++d) {
    const Index x = c.x[d].at(read) * c.x_block[d], z = c.z[d].at(written) * c.z_block[d];
    if (x >= z + c.z_block[d] || z >= x + c.x_block[d]) return false;
  }
  return true;
}

// Some step reads what a step at another point writes.
bool points_meet(const Case& c) {
  std::vector<Index> read(c.sizes.size());
  do {
    std::vector<Index> written(c.sizes.size());
    do {
      const auto n = static_cast<std::ptrdiff_t>(c.parallel);
      if (!std::equal(read.begin(), read.begin() + n, written.begin()) &&
          blocks_meet(c, read, written)) {
        return true;
      }
    } while (next(written, c.sizes));
  } while (next(read, c.sizes));
  return false;
}

// Runs the case over an array that starts as 0, 1, 2, ..; every step mixes its two blocks.
void run_case(const Case& c, Tensor<I32, 2>& a) {
  std::iota(a.data(), a.data() + a.size(), 0);
  Grid grid("g");
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < c.sizes.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    axes.push_back(i < c.parallel ? grid.parallel(name, c.sizes[i])
                                  : grid.sequential(name, c.sizes[i]));
  }
  const auto expr = [&](const Part& p) {
    if (p.axis < 0) return AxisExpr(p.o);
    AxisExpr e = axes[static_cast<std::size_t>(p.axis)];
    if (p.d != 1) e = e / p.d;
    if (p.m != 0) e = e % p.m;
    return e * p.s + p.o;
  };
  const auto xb = grid.in(
      "x", a, {.block = {c.x_block[0], c.x_block[1]}, .index = {expr(c.x[0]), expr(c.x[1])}});
  const auto zb = grid.in_out(
      "z", a, {.block = {c.z_block[0], c.z_block[1]}, .index = {expr(c.z[0]), expr(c.z[1])}});
  grid.run([&](const Step& s) {
    const auto x = s.valid(xb);
    U32 sum = 0;
    for (Index i = 0; i < x.extent(0); ++i) {
      for (Index j = 0; j < x.extent(1); ++j) sum = 31 * sum + static_cast<U32>(x(i, j));
    }
    const auto z = s.valid(zb);
    for (Index i = 0; i < z.extent(0); ++i) {
      for (Index j = 0; j < z.extent(1); ++j) {
        z(i, j) = static_cast<I32>(7 * static_cast<U32>(z(i, j)) + sum);
      }
    }
  });
}

TEST_CASE("an alias is refused where one point would read what another one writes") {
  const Threads restored(1);
  Generator random(11);
  int refused = 0, needlessly = 0, legal = 0;
  for (int round = 0; round < 5000; ++round) {
    const Case c = random_case(random);
    Tensor<I32, 2> a({kExtent, kExtent}), b({kExtent, kExtent});
    set_threads(1);
    const std::string message = refusal([&] { run_case(c, a); });
    CAPTURE(round);
    CAPTURE(message);
    const bool aliased = message.starts_with("grid 'g': in_out 'z' is aliased to 'x', and along");
    if (message != "(not refused)" && !aliased) continue;  // the outputs alone are not legal
    const bool meet = points_meet(c);
    REQUIRE((aliased || !meet));
    refused += aliased && meet;
    needlessly += aliased && !meet;
    if (aliased) continue;
    ++legal;
    set_threads(3);
    run_case(c, b);
    REQUIRE(std::equal(a.data(), a.data() + a.size(), b.data()));
  }
  MESSAGE(refused << " refused, " << needlessly << " of them needlessly, " << legal << " legal");
  CHECK(refused > 100);
  CHECK(legal > 500);
  CHECK(needlessly * 10 < refused);
}

TEST_CASE(
    "a callable in an aliased pair keeps the order of the contract on any number of threads") {
  for (const int count : {1, 2, 8}) {
    const Threads scope(count);
    for (int round = 0; round < 20; ++round) {
      Tensor<I32, 1> a({400}, 0);
      a(0) = 1;
      Grid grid("g");
      const Axis i = grid.parallel("i", 399);
      const auto xb = grid.in("x", a, {.block = {1}, .index = {i}});
      const auto zb = grid.out(
          "z", a, {.block = {1}, .index = [=](const Step& s) { return Shape<1>{s.index(i) + 1}; }});
      grid.run([&](const Step& s) { s[zb](0) = s[xb](0) + 1; });
      REQUIRE(a(399) == 400);
    }
  }
}

}  // namespace
}  // namespace kref
