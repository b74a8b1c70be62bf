// SPDX-License-Identifier: Apache-2.0
// What a body sees of its blocks: margins, poison, the two views, shared memory.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "dsl/grid.h"
#include "dsl/threads.h"

namespace kref {
namespace {

using I32 = std::int32_t;

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

TEST_CASE_TEMPLATE("the margin of an edge block reads as poison and drops writes", T, double, float,
                   f16, bf16, f8_e4m3, f8_e5m2, std::int64_t, std::int32_t, std::int16_t,
                   std::int8_t, std::uint32_t, std::uint8_t, bool) {
  Tensor<T, 2> x({3, 5}), all({4, 7}, T(1)), z({4, 6});
  for (Index e = 0; e < 15; ++e) x.data()[e] = T(static_cast<float>(e % 2));
  const Ref<T, 2> y = all.ref().block({0, 0}, {3, 5});
  Grid grid("g");
  const Axis i = grid.parallel("i", 2), j = grid.parallel("j", 2);
  const auto xb = grid.in("x", x, {.block = {2, 3}, .index = {i, j}});
  const auto yb = grid.out("y", y, {.block = {2, 3}, .index = {i, j}});
  const auto zb = grid.out("z", z, {.block = {2, 3}, .index = {i, j}});
  grid.run([&](const Step& s) {
    const Ref<const T, 2> in = s[xb];
    CHECK(in.extents() == Shape<2>{2, 3});
    CHECK(s.valid(xb).extents() == Shape<2>{s.last(i) ? 1 : 2, s.last(j) ? 2 : 3});
    CHECK(s.extents(yb) == s.valid(xb).extents());
    for (Index r = 0; r < 2; ++r) {
      for (Index c = 0; c < 3; ++c) s[zb](r, c) = s[yb](r, c) = in(r, c);
    }
  });
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c < 7; ++c) {
      const bool inside = r < 3 && c < 5;
      if (c < 6) CHECK(same_bits(z(r, c), inside ? x(r, c) : poison<T>()));
      CHECK(same_bits(all(r, c), inside ? x(r, c) : T(1)));
    }
  }
}

TEST_CASE_TEMPLATE("scratch and a fresh output block are poison, of every type", T, double, float,
                   f16, bf16, f8_e4m3, f8_e5m2, std::int64_t, std::int32_t, std::int16_t,
                   std::int8_t, std::uint32_t, std::uint8_t, bool) {
  for (const bool whole : {false, true}) {
    Tensor<T, 1> z({7}, T(1)), unused({7}, T(1));
    Grid grid("g");
    const Axis i = grid.parallel("i", 3);
    const auto zb = grid.out("z", z, {.block = {3}, .index = {i}});
    grid.out("unused", unused, {.block = {3}, .index = {i}});
    const auto scratch = grid.scratch<T>("scratch", {2});
    grid.run([&](const Step& s) {
      const Ref<T, 1> block = whole ? s[zb] : s.valid(zb);
      for (Index e = 0; e < block.extent(0); ++e) CHECK(same_bits(block(e), poison<T>()));
      CHECK(same_bits(s[scratch](1), poison<T>()));
      block(0) = T(1);
    });
    for (Index e = 0; e < 7; ++e) {
      CHECK(same_bits(z(e), e % 3 == 0 ? T(1) : poison<T>()));
      CHECK(same_bits(unused(e), poison<T>()));
    }
  }
}

TEST_CASE("whole and valid views show the same data, within a step and from step to step") {
  // Two steps on each block. What the first writes through one view the second reads through the
  // other; in between, also at the edge, each sees the other's writes.
  for (const bool check : {false, true}) {
    for (int way = 0; way < 4; ++way) {
      const bool valid_first = way % 2 == 1, update = way >= 2;
      Tensor<I32, 1> z({5}, 7);
      Grid grid("g");
      const Axis i = grid.sequential("i", 2), k = grid.sequential("k", 2);
      const BlockSpec<1> spec{.block = {3}, .index = {i}};
      const auto zb = update ? Out<I32, 1>{} : grid.out("z", z, spec);
      const auto ub = update ? grid.in_out("z", z, spec) : InOut<I32, 1>{};
      const auto whole = [&](const Step& s) { return update ? s[ub] : s[zb]; };
      const auto valid = [&](const Step& s) { return update ? s.valid(ub) : s.valid(zb); };
      const auto body = [&](const Step& s) {
        if (s.first(k)) {
          const Ref<I32, 1> block = valid_first ? valid(s) : whole(s);
          for (Index e = 0; e < block.extent(0); ++e) {
            if (update && e < valid(s).extent(0)) CHECK(block(e) == 7);
            block(e) = static_cast<I32>(10 * s.index(i) + e);
          }
        } else {
          const Ref<I32, 1> a = whole(s), b = valid(s);
          CHECK(a.extent(0) == 3);
          CHECK(b.extent(0) == (s.last(i) ? 2 : 3));
          for (Index e = 0; e < b.extent(0); ++e) {
            CHECK(a(e) == 10 * s.index(i) + e);
            b(e) += 100;
            CHECK(a(e) == 100 + 10 * s.index(i) + e);
            a(e) += 100;
            CHECK(b(e) == 200 + 10 * s.index(i) + e);
          }
          CHECK(whole(s).data() == a.data());  // again, after both
        }
      };
      check ? grid.check(body) : grid.run(body);
      for (Index e = 0; e < 5; ++e) CHECK(z(e) == 200 + 10 * (e / 3) + e % 3);
      z.fill(7);
    }
  }
}

TEST_CASE("blocks inside an array are viewed in place, and so is the valid part of an edge block") {
  Tensor<I32, 2> x({5, 6}, 1), z({5, 6}, 0);
  Grid grid("g");
  const Axis i = grid.parallel("i", 2);
  const auto xb = grid.in("x", x, {.block = {3, 6}, .index = {i, 0}});
  const auto zb = grid.out("z", z, {.block = {3, 6}, .index = {i, 0}});
  grid.run([&](const Step& s) {
    CHECK(s.valid(xb).data() == &x(3 * s.index(i), 0));
    CHECK(s.valid(zb).data() == &z(3 * s.index(i), 0));
    if (s.first(i)) CHECK(s[xb].data() == x.data());
    if (s.last(i)) CHECK(s[xb].data() != &x(3, 0));
  });
}

TEST_CASE("strided arrays: outer strides, broadcast and reversed inputs") {
  Tensor<I32, 2> parent({8, 10});
  std::iota(parent.data(), parent.data() + 80, 0);
  const Ref<const I32, 2> part = parent.ref().block({1, 2}, {5, 7});
  const Ref<const I32, 2> row(parent.data(), {5, 7}, {0, 1});
  const Ref<const I32, 2> back(&parent(4, 0), {5, 7}, {-10, 1});
  Tensor<I32, 2> out_parent({9, 11}, -1);
  const Ref<I32, 2> z = out_parent.ref().block({2, 3}, {5, 7});
  for (const bool check : {false, true}) {
    Grid grid("g");
    const Axis i = grid.parallel("i", 2), j = grid.parallel("j", 3);
    const auto pb = grid.in("part", part, {.block = {3, 3}, .index = {i, j}});
    const auto rb = grid.in("row", row, {.block = {3, 3}, .index = {i, j}});
    const auto bb = grid.in("back", back, {.block = {3, 3}, .index = {i, j}});
    const auto zb = grid.out("z", z, {.block = {3, 3}, .index = {i, j}});
    const auto body = [&](const Step& s) {
      for (Index r = 0; r < 3; ++r) {
        for (Index c = 0; c < 3; ++c) {
          s[zb](r, c) = static_cast<I32>(10000u * static_cast<unsigned>(s[pb](r, c)) +
                                         100u * static_cast<unsigned>(s[rb](r, c)) +
                                         static_cast<unsigned>(s[bb](r, c)));
        }
      }
    };
    check ? grid.check(body) : grid.run(body);
    for (Index r = 0; r < 9; ++r) {
      for (Index c = 0; c < 11; ++c) {
        const Index p = r - 2, q = c - 3;
        const bool inside = p >= 0 && p < 5 && q >= 0 && q < 7;
        CHECK(out_parent(r, c) ==
              (inside ? 10000 * (10 * (p + 1) + q + 2) + 100 * q + 10 * (4 - p) + q : -1));
      }
    }
    out_parent.fill(-1);
  }
}

TEST_CASE("an alias through a transposed map: later steps read what earlier ones stored") {
  for (const bool check : {false, true}) {
    Tensor<I32, 2> a({4, 4}), expected({4, 4});
    std::iota(a.data(), a.data() + 16, 0);
    expected = a;
    for (Index i = 0; i < 4; ++i) {
      for (Index j = 0; j < 4; ++j) expected(j, i) = expected(i, j) + static_cast<I32>(4 * i + j);
    }
    Grid grid("g");
    const Axis i = grid.sequential("i", 4), j = grid.sequential("j", 4);
    const auto xb = grid.in("x", a, {.block = {1, 1}, .index = {i, j}});
    const auto zb = grid.out("z", a, {.block = {1, 1}, .index = {j, i}});
    const auto body = [&](const Step& s) {
      s[zb](0, 0) = s[xb](0, 0) + static_cast<I32>(s.number());
    };
    check ? grid.check(body) : grid.run(body);
    CHECK(std::equal(a.data(), a.data() + 16, expected.data()));
  }
}

TEST_CASE("an aliased window is its own: writing the output does not change the input's block") {
  Tensor<I32, 1> a({7});
  std::iota(a.data(), a.data() + 7, 1);
  Grid grid("g");
  const Axis i = grid.parallel("i", 3);
  const auto xb = grid.in("x", a, {.block = {3}, .index = {i}});
  const auto zb = grid.in_out("z", a, {.block = {3}, .index = {i}});
  grid.run([&](const Step& s) {
    const Index n = s.extents(zb)[0];
    for (Index e = 0; e < n; ++e) s[zb](e) = 10 * s[xb](n - 1 - e);
  });
  const I32 expected[] = {30, 20, 10, 60, 50, 40, 70};
  CHECK(std::equal(a.data(), a.data() + 7, expected));
}

TEST_CASE("halves of one array as input and output are not an alias") {
  Tensor<I32, 2> a({4, 6}, 3);
  Grid grid("g");
  const auto xb = grid.in("x", a.ref().block({0, 0}, {4, 3}));
  const auto zb = grid.out("z", a.ref().block({0, 3}, {4, 3}));
  grid.run([&](const Step& s) {
    CHECK(s[zb].data() == &a(0, 3));  // in place
    for (Index r = 0; r < 4; ++r) {
      for (Index c = 0; c < 3; ++c) s[zb](r, c) = s[xb](r, c) + 1;
    }
  });
  for (Index r = 0; r < 4; ++r) CHECK((a(r, 2) == 3 && a(r, 3) == 4));
}

TEST_CASE("no axes: one step; an axis of size 0: none; empty arrays: none") {
  Tensor<float, 0> x(Shape<0>{}, 2.0f), z(Shape<0>{});
  Grid one("one");
  const auto xb = one.in("x", x);
  const auto zb = one.out("z", z, {.block = {}, .index = {}});
  CHECK(one.check([&](const Step& s) { s[zb]() = s[xb]() + 1.0f; }).steps == 1);
  CHECK(z() == 3.0f);

  Tensor<float, 1> kept({4}, 5.0f);
  Grid none("none");
  const Axis i = none.parallel("i", 0);
  const auto kb = none.out("kept", kept, {.block = {4}, .index = {i}});
  const auto never = [&](const Step& s) { s[kb](0) = 0.0f; };
  CHECK(none.run(never).steps == 0);
  CHECK(none.check(never).steps == 0);
  CHECK(kept(0) == 5.0f);

  Tensor<float, 2> empty({3, 0}), also({0, 3});
  Grid grid("empty");
  const auto eb = grid.in("empty", empty);
  const auto ob = grid.out("also", also);
  int steps = 0;
  grid.run([&](const Step& s) { ++steps, (void)s[eb], (void)s[ob]; });
  grid.check([&](const Step&) { ++steps; });
  CHECK(steps == 0);
}

}  // namespace
}  // namespace kref
