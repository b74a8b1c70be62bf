// SPDX-License-Identifier: Apache-2.0
// Faults that people met with comparable systems, as small cases; the number in each name is the
// row of the collection they come from.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "dsl/grid.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

template <class T>
Tensor<T, 1> count(Index n, Index from = 0) {
  Tensor<T, 1> x({n});
  for (Index e = 0; e < n; ++e) x(e) = static_cast<T>(from + e);
  return x;
}

template <class T>
bool equals(const Tensor<T, 1>& x, std::initializer_list<T> expected) {
  return std::equal(x.data(), x.data() + x.size(), expected.begin(), expected.end());
}

TEST_CASE("L003: an input block past the end is named with its operand, step and elements") {
  // The row asks for the device as well: a grid runs on one and knows of no other.
  const Tensor<float, 2> x({16, 128}, 1.0f);
  Tensor<float, 1> z({5});
  for (const bool callable : {false, true}) {
    Grid grid("g");
    const Axis i = grid.parallel("i", 5);
    const auto next = [=](const Step& s) { return Shape<2>{s.index(i) + 1, 0}; };
    grid.in("x", x,
            {.block = {4, 128}, .index = callable ? IndexMap<2>(next) : IndexMap<2>(i + 1, 0)});
    const auto zb = grid.out("z", z, {.block = {1}, .index = {i}});
    CHECK(
        refusal([&] { grid.run([&](const Step& s) { s[zb](0) = 1; }); }) ==
        "grid 'g': input 'x': block (4,0) of step 3 (i=3) is out of range: dimension 0 has blocks "
        "0:4, elements 16:20, extent 16");
  }
}

TEST_CASE("L004: an output block past the end writes nothing outside the array") {
  Tensor<float, 2> all({24, 128}, 7.0f);
  const Ref<float, 2> z = all.ref().block({0, 0}, {16, 128});
  Grid grid("g");
  const Axis i = grid.parallel("i", 4);
  const auto zb = grid.out("z", z, {.block = {4, 128}, .index = [=](const Step& s) {
                                      return Shape<2>{s.index(i) + 2, 0};
                                    }});
  const std::string message = refusal([&] {
    grid.run([&](const Step& s) {
      for (Index e = 0; e < 4 * 128; ++e) s[zb].data()[e] = 1.0f;
    });
  });
  CHECK(message.find("block (4,0) of step 2 (i=2)") != std::string::npos);
  for (Index r = 16; r < 24; ++r) CHECK(all(r, 0) == 7.0f);
}

TEST_CASE("L005: squeezed dimensions with the right index") {
  Tensor<I32, 4> b({1, 2, 1, 4});
  std::iota(b.data(), b.data() + 8, 0);
  Tensor<I32, 2> z({2, 4});
  Grid grid("g");
  const Axis l = grid.parallel("l", 2), j = grid.parallel("j", 2);
  const auto bb =
      grid.in("b", b, {.block = {squeezed, squeezed, squeezed, 2}, .index = {0, l, 0, j}});
  const auto zb = grid.out("z", z, {.block = {1, 2}, .index = {l, j}});
  grid.run([&](const Step& s) {
    for (Index e = 0; e < 2; ++e) s[zb](0, e) = matrix(s[bb])(0, e);
  });
  for (Index e = 0; e < 8; ++e) CHECK(z.data()[e] == e);
}

TEST_CASE("L006: what a body does not write is poison, in any order of the inputs") {
  const Tensor<I32, 1> x = count<I32>(4), y = count<I32>(4, 1);
  for (const bool swapped : {false, true}) {
    Tensor<I32, 1> o({4}, 99);
    Grid grid("g");
    const auto ab = grid.in("a", swapped ? y : x);
    const auto bb = grid.in("b", swapped ? x : y);
    const auto ob = grid.out("o", o);
    const auto body = [&](const Step& s) {
      for (Index e = 1; e < 3; ++e) s[ob](e) = s[ab](e) * s[bb](e);
    };
    grid.run(body);
    CHECK(equals(o, {poison<I32>(), 2, 6, poison<I32>()}));
    CHECK(refusal([&] { grid.check(body); }).find("element (0) of block (0)") != std::string::npos);
  }
}

TEST_CASE("L007: an empty body over in_out keeps, over an aliased out leaves poison") {
  Tensor<float, 1> x({2}, 1.0f), y({2}, 2.0f);
  Grid keep("keep");
  keep.in_out("x", x);
  keep.in_out("y", y);
  keep.run([](const Step&) {});
  keep.check([](const Step&) {});
  CHECK((equals(x, {1.0f, 1.0f}) && equals(y, {2.0f, 2.0f})));

  Grid lose("lose");
  lose.in("x", x);
  lose.out("z", x);
  lose.run([](const Step&) {});
  CHECK((std::isnan(x(0)) && std::isnan(x(1))));
}

TEST_CASE("L008: in place by in_out") {
  const Tensor<I32, 1> x = count<I32>(8);
  Tensor<I32, 1> y = count<I32>(8, 8);
  for (const bool check : {false, true}) {
    Grid grid("g");
    const Axis i = grid.parallel("i", 4);
    const auto xb = grid.in("x", x, {.block = {2}, .index = {i}});
    const auto yb = grid.in_out("y", y, {.block = {2}, .index = {i}});
    const auto body = [&](const Step& s) {
      for (Index e = 0; e < 2; ++e) s[yb](e) += s[xb](e);
    };
    check ? grid.check(body) : grid.run(body);
  }
  CHECK(equals(y, {8, 11, 14, 17, 20, 23, 26, 29}));  // added twice, once by each
}

TEST_CASE("L010, L011: the index of a step as data") {
  const Tensor<I32, 1> x = count<I32>(8);
  Tensor<I32, 1> o({8}), y({8});
  Grid grid("g");
  const Axis i = grid.parallel("i", 8);
  const auto xb = grid.in("x", x, {.block = {1}, .index = {i}});
  const auto ob = grid.out("o", o, {.block = {1}, .index = {i}});
  const auto yb = grid.out("y", y, {.block = {1}, .index = {i}});
  grid.run([&](const Step& s) {
    s[ob](0) = static_cast<I32>(s.index(i));
    s[yb](0) = s[xb](0) + static_cast<I32>(s.index(i));
  });
  CHECK(equals(o, {0, 1, 2, 3, 4, 5, 6, 7}));
  CHECK(equals(y, {0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST_CASE("L012: accumulation counts repeated indices") {
  for (const bool repeated : {true, false}) {
    Tensor<I32, 1> o({4}, 0);
    Tensor<I32, 1> index({3});
    index(0) = 0, index(1) = 1, index(2) = repeated ? 1 : 2;
    Grid grid("g");
    const auto xb = grid.in("index", index);
    const auto ob = grid.in_out("o", o);
    grid.run([&](const Step& s) {
      for (Index e = 0; e < 3; ++e) s[ob](s[xb](e)) += 1;
    });
    CHECK(equals(o, repeated ? std::initializer_list<I32>{1, 2, 0, 0}
                             : std::initializer_list<I32>{1, 1, 1, 0}));
  }
}

TEST_CASE("L067: a ragged last block writes ten elements and no more") {
  const Tensor<I32, 1> x = count<I32>(10, 1);
  Tensor<I32, 1> all({13}, -5);
  Grid grid("g");
  const Axis i = grid.parallel("i", 3);
  const auto xb = grid.in("x", x, {.block = {4}, .index = {i}});
  const auto zb = grid.out("z", all.ref().block({0}, {10}), {.block = {4}, .index = {i}});
  grid.run([&](const Step& s) {
    for (Index e = 0; e < 4; ++e) s[zb](e) = s[xb](e);
  });
  CHECK(equals(all, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -5, -5, -5}));
}

TEST_CASE("L069: sums and copies whose blocks overshoot") {
  Tensor<I32, 1> ones({50000}, 1), sum({1});
  Grid grid("sum");
  const Axis k = grid.sequential("k", cdiv(50000, 32768));
  const auto xb = grid.in("x", ones, {.block = {32768}, .index = {k}});
  const auto zb = grid.out("z", sum, {.block = {1}, .index = {0}});
  grid.check([&](const Step& s) {
    if (s.first(k)) s[zb](0) = 0;
    const Ref<const I32, 1> x = s.valid(xb);
    s[zb](0) += std::accumulate(x.data(), x.data() + x.size(), 0);
  });
  CHECK(sum(0) == 50000);

  const Tensor<I32, 1> ten = count<I32>(10, 1);
  Tensor<I32, 1> copy({10});
  Grid large("block larger than the array");
  const auto ib = large.in("x", ten, {.block = {16}, .index = {0}});
  const auto ob = large.out("z", copy, {.block = {16}, .index = {0}});
  large.check([&](const Step& s) {
    for (Index e = 0; e < 16; ++e) s[ob](e) = s[ib](e);
  });
  CHECK(std::equal(copy.data(), copy.data() + 10, ten.data()));
}

TEST_CASE("L076: as many loads as blocks change, none past the end") {
  for (const Index n : {1, 2, 3, 4, 5}) {
    const Tensor<I32, 1> x = count<I32>(n);
    Tensor<I32, 1> o({n});
    Grid grid("g");
    const Axis i = grid.sequential("i", n);
    const auto xb = grid.in("x", x, {.block = {1}, .index = {i}});
    grid.in("half", x, {.block = {1}, .index = {i / 2}});
    const auto ob = grid.out("o", o, {.block = {1}, .index = {i}});
    const Trace trace =
        grid.run([&](const Step& s) { s[ob](0) = 2 * s[xb](0) + static_cast<I32>(s.number()); });
    CHECK(trace["x"].fetches == n);
    CHECK(trace["half"].fetches == (n + 1) / 2);
    CHECK(trace["o"].write_backs == n);
    for (Index e = 0; e < n; ++e) CHECK(o(e) == 3 * e);
  }
}

TEST_CASE("L078: the index of a squeezed dimension counts elements, as with extent 1") {
  Tensor<I32, 2> x({3, 4});
  std::iota(x.data(), x.data() + 12, 0);
  Tensor<I32, 2> a({3, 4}), b({3, 4});
  Grid grid("g");
  const Axis i = grid.parallel("i", 3), j = grid.parallel("j", 2);
  const auto sx = grid.in("squeezed", x, {.block = {squeezed, 2}, .index = {i, j}});
  const auto ux = grid.in("unit", x, {.block = {1, 2}, .index = {i, j}});
  const auto ab = grid.out("a", a, {.block = {1, 2}, .index = {i, j}});
  const auto bb = grid.out("b", b, {.block = {squeezed, 2}, .index = {i, j}});
  grid.check([&](const Step& s) {
    for (Index e = 0; e < 2; ++e) s[ab](0, e) = s[sx](0, e), s[bb](0, e) = s[ux](0, e);
  });
  for (Index e = 0; e < 12; ++e) CHECK((a.data()[e] == e && b.data()[e] == e));
  CHECK(grid.describe().find("(squeezed, 2)") != std::string::npos);
}

TEST_CASE("L079: axes in another order than the dimensions, with unequal blocks") {
  Tensor<I32, 2> x({6, 8}), z({6, 8});
  std::iota(x.data(), x.data() + 48, 0);
  Grid grid("g");
  const Axis j = grid.parallel("j", 4), i = grid.parallel("i", 2);
  const auto xb = grid.in("x", x, {.block = {3, 2}, .index = {i, j}});
  const auto zb = grid.out("z", z, {.block = {3, 2}, .index = {i, j}});
  grid.check([&](const Step& s) {
    for (Index r = 0; r < 3; ++r) {
      for (Index c = 0; c < 2; ++c) s[zb](r, c) = s[xb](r, c);
    }
  });
  CHECK(std::equal(x.data(), x.data() + 48, z.data()));
}

TEST_CASE("L140: a grid of (4, 65536), and counters past 32 bits") {
  std::atomic<Index> sum{0};
  Grid grid("g");
  const Axis i = grid.parallel("i", 4), k = grid.sequential("k", 65536);
  const Trace trace = grid.run([&](const Step& s) {
    if (s.last(k)) sum += s.number();
  });
  CHECK(trace.steps == 4 * 65536);
  CHECK(sum == 65535 * 4 + 65536 * (0 + 1 + 2 + 3));
  CHECK(i.size == 4);

  Grid wide("wide");
  wide.parallel("a", Index{1} << 31);
  wide.parallel("b", Index{1} << 31);
  CHECK(wide.steps() == Index{1} << 62);
}

}  // namespace
}  // namespace kref
