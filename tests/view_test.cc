// SPDX-License-Identifier: Apache-2.0
// Views of a Ref: which elements they have, how they compose, and what they refuse. The numbers in
// the names are those of the behaviours of Pallas (tests/behaviours.tsv).
#include <doctest/doctest.h>

#include "dsl/dsl.h"
#include "kernels/kernels.h"
#include "tests/filled_blocks.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

TEST_CASE("every start, size and stride of a dimension, static and at run time") {
  const Tensor<I32, 2> x = counted<2>({10, 4});
  for (Index start = 0; start <= 10; ++start) {
    for (Index size = 0; start + size <= 10; ++size) {
      const Ref<const I32, 2> v = x.ref().at(ds(start, size));
      REQUIRE(v.extents() == Shape<2>{size, 4});
      for (Index r = 0; r < size; ++r) CHECK(v(r, 3) == x(start + r, 3));
    }
    for (Index stride = 0; stride <= 10; ++stride) {
      for (Index size = 0; size <= 11; ++size) {
        const bool inside = size == 0 || (start < 10 && start + (size - 1) * stride < 10);
        CAPTURE(start);
        CAPTURE(stride);
        CAPTURE(size);
        if (!inside) {
          CHECK_THROWS_AS(x.ref().at(ds(start, size, stride)), Error);
          continue;
        }
        const Ref<const I32, 2> v = x.ref().at(ds(start, size, stride), ds(1, 3));
        REQUIRE(v.extents() == Shape<2>{size, 3});
        for (Index r = 0; r < size; ++r) CHECK(v(r, 2) == x(start + r * stride, 3));
      }
    }
  }
}

TEST_CASE("integers drop a dimension, ellipsis stands for the rest, lanes stay contiguous") {
  const Tensor<I32, 3> x = counted<3>({3, 4, 5});
  const Ref<const I32, 3> r = x;
  static_assert(decltype(r.at(0))::kRank == 2 && decltype(r.at(0, 1))::kRank == 1 &&
                decltype(r.at(0, 1, 2))::kRank == 0);
  static_assert(decltype(r.at())::kRank == 3 && decltype(r.at(ellipsis))::kRank == 3);
  CHECK(r.at(1)(2, 3) == x(1, 2, 3));
  CHECK(r.at(1, 2)(3) == x(1, 2, 3));
  CHECK(r.at(1, 2, 3)() == x(1, 2, 3));
  CHECK(r.at(ds(), 2)(1, 3) == x(1, 2, 3));
  CHECK(r.at(from_end(1), from_end(4), from_end(2))() == x(2, 0, 3));
  CHECK(r.at(ellipsis, ds(1, 2)).extents() == Shape<3>{3, 4, 2});
  CHECK(r.at(1, ellipsis, ds(1, 2)).extents() == Shape<2>{4, 2});
  CHECK(r.at(ds(1, 1), ellipsis).extents() == Shape<3>{1, 4, 5});
  CHECK(r.at(ds(2)).extents() == Shape<3>{2, 4, 5});
  // The last dimension picked from: one of extent 1 follows.
  const Ref<const I32, 3> column = r.at(ellipsis, 4);
  CHECK(column.extents() == Shape<3>{3, 4, 1});
  CHECK(column(2, 3, 0) == x(2, 3, 4));
  const Ref<const I32, 4> every_other = r.at(ellipsis, ds(0, 3, 2));
  CHECK(every_other.extents() == Shape<4>{3, 4, 3, 1});
  CHECK(every_other(1, 2, 2, 0) == x(1, 2, 4));
  CHECK(r.at(0, 0, ds(1, 2, 3)).extents() == Shape<2>{2, 1});
}

TEST_CASE("behaviour 51: (..., 4) of (5, 5) is a column of 5") {
  const Tensor<I32, 2> x = counted<2>({5, 5});
  Tensor<I32, 1> out({5});
  copy(x.ref().at(ellipsis, 4), column(out.ref()));
  for (Index r = 0; r < 5; ++r) CHECK(out(r) == 5 * r + 4);
}

TEST_CASE("behaviour 50: what lies outside is refused with dimension, start, size and extent") {
  Tensor<I32, 2> x({2, 3}, 0);
  const Ref<I32, 2> r = x;
  CHECK(refusal([&] { r.at(0, 4); }) ==
        "Ref::at: dimension 1: element 4 does not lie inside the extent 3");
  CHECK(
      refusal([&] { r.at(-1); }) ==
      "Ref::at: dimension 0: element -1 does not lie inside the extent 2; from_end(1) is the last "
      "element");
  CHECK(refusal([&] { r.at(from_end(3)); }) ==
        "Ref::at: dimension 0: from_end(3) does not lie inside the extent 2");
  CHECK(refusal([&] { r.at(from_end(0)); }) ==
        "Ref::at: dimension 0: from_end(0) does not lie inside the extent 2");
  CHECK(refusal([&] { r.at(ds(), ds(2, 2)); }) ==
        "Ref::at: dimension 1: start 2, size 2: elements 2:4 do not lie inside the extent 3");
  CHECK(refusal([&] { r.at(ellipsis, ds(-1, 2)); }) ==
        "Ref::at: dimension 1: start -1, size 2: elements -1:1 do not lie inside the extent 3");
  CHECK(refusal([&] { r.at(ds(0, -1)); }) ==
        "Ref::at: dimension 0: start 0, size -1, expected a size >= 0");
  CHECK(refusal([&] { r.at(ds(), ds(1, 2, 2)); }) ==
        "Ref::at: dimension 1: start 1, size 2, stride 2 does not lie inside the extent 3");
  CHECK(refusal([&] { r.at(ds(0, 2, -1)); }) ==
        "Ref::at: dimension 0: start 0, size 2, stride -1, expected size and stride >= 0");
  constexpr Index kFar = std::numeric_limits<Index>::max();
  CHECK_THROWS_AS(r.at(ds(0, kFar)), Error);
  CHECK_THROWS_AS(r.at(ds(1, kFar, kFar)), Error);
  CHECK_THROWS_AS(r.at(ds(kFar, 1)), Error);
  CHECK_THROWS_AS(r.at(-kFar - 1), Error);
}

TEST_CASE("a grid names the operand that a view was to reach outside of") {
  const Tensor<I32, 2> x = counted<2>({8, 4});
  Tensor<I32, 2> z({8, 4});
  const auto message = [&](auto use) {
    Grid grid("g");
    const Axis i = grid.sequential("i", 2);
    const auto xb = grid.in("x", x, {.block = {4, 4}, .index = {i, 0}});
    const auto zb = grid.out("z", z, {.block = {4, 4}, .index = {i, 0}});
    const auto table = grid.scratch<I32>("table", {10, 2});
    return refusal([&] {
      grid.run([&](const Step& s) {
        if (s.last(i)) use(s[xb], s[zb], s[table]);
      });
    });
  };
  CHECK(message([](auto r, auto, auto) { r.at(ds(2, 3)); }) ==
        "grid 'g': input 'x': step 1 (i=1): Ref::at: dimension 0: start 2, size 3: elements 2:5 do "
        "not lie inside the extent 4");
  CHECK(
      message([](auto, auto r, auto) { r.at(ds(1, 3)).at(3); }) ==
      "grid 'g': output 'z': step 1 (i=1): Ref::at: dimension 0: element 3 does not lie inside the "
      "extent 3");
  CHECK(message([](auto, auto r, auto) {
          r.block({0, 2}, {4, 3});
        }) ==
        "grid 'g': output 'z': step 1 (i=1): Ref::block: dimension 1: 2:5 does not lie inside the "
        "extent 4");
  CHECK(message([](auto, auto, auto r) { r.at(10, 0)() = 1; }) ==
        "grid 'g': scratch 'table': step 1 (i=1): Ref::at: dimension 0: element 10 does not lie "
        "inside the extent 10");
}

TEST_CASE("an element outside is refused in debug builds, in a body with its operand and step") {
#ifndef NDEBUG
  Tensor<float, 2> x({4, 8}, 1.0f);
  CHECK(refusal([&] { x.ref()(4, 7) = 2; }) == "element [4,7] is asked for, the extents are [4,8]");
  Grid grid("g");
  const Axis i = grid.parallel("i", 2);
  const auto xb = grid.in("x", x.ref(), {.block = {2, 8}, .index = {i, 0}});
  const std::string text = refusal([&] {
    grid.run([&](const Step& s) {
      if (s.index(i) == 1) static_cast<void>(s[xb](2, 0) + 1);
    });
  });
  CHECK(says(text, "element [2,0] is asked for, the extents are [2,8]"));
  CHECK(says(text, "'x'"));
#endif
}

TEST_CASE("behaviour 53: strides 1 to 10 load and store, and stride 0 repeats an element") {
  const Tensor<float, 2> x({40, 6}, 2.0f);
  for (Index stride = 1; stride <= 10; ++stride) {
    const Index n = cdiv(40, stride);
    Tensor<float, 2> every({n, 6}), back({40, 6}, 0.0f);
    copy(x.ref().at(ds(0, n, stride)), every.ref());
    copy(every, back.ref().at(ds(0, n, stride)));
    for (Index r = 0; r < 40; ++r) CHECK(back(r, 5) == (r % stride == 0 ? 2.0f : 0.0f));
  }
  const Tensor<I32, 2> y = counted<2>({4, 6});
  Tensor<I32, 2> repeated({5, 6});
  copy(y.ref().at(ds(2, 5, 0)), repeated.ref());
  for (Index r = 0; r < 5; ++r) CHECK(repeated(r, 1) == 13);
  Tensor<I32, 1> lanes({3});
  copy(y.ref().at(1, ds(4, 3, 0)), column(lanes.ref()));
  CHECK(lanes(0) == 10);
  CHECK(lanes(2) == 10);
  CHECK_THROWS_AS(copy(y.ref().at(ds(1)), repeated.ref().at(ds(0, 2, 0))), Error);
}

TEST_CASE("behaviour 54: views of views compose from left to right") {
  Tensor<I32, 3> x({16, 8, 8}, 0);
  const Ref<I32, 3> r = x;
  fill(r.at(ds(0, 8)).at(0).at(ds(0, 4), ds(0, 4)), 7);
  for (Index i = 0; i < x.size(); ++i) {
    const Index a = i / 64, b = i / 8 % 8, c = i % 8;
    CHECK(x.data()[i] == (a == 0 && b < 4 && c < 4 ? 7 : 0));
  }
  // A stride of a stride.
  Tensor<I32, 2> y = counted<2>({16, 2});
  const Ref<I32, 2> v = y.ref().at(ds(1, 7, 2)).at(ds(1, 2, 3));
  CHECK(v(0, 0) == 2 * 3);
  CHECK(v(1, 1) == 2 * 9 + 1);
}

TEST_CASE("reshape: every shape that strides can describe, and no other") {
  const Tensor<I32, 3> x = counted<3>({4, 6, 8});
  const Ref<const I32, 3> r = x;
  CHECK(r.reshape(192)(100) == 100);
  CHECK(r.reshape(2, 2, 3, 2, 4, 2)(1, 0, 2, 1, 3, 1) == 2 * 48 + 5 * 8 + 7);
  CHECK(r.reshape(24, 1, 8)(7, 0, 3) == 59);
  // Rows 1, 3 and 5 of each plane: the first two dimensions do not merge, the others split.
  const Ref<const I32, 3> odd = r.at(ds(), ds(1, 3, 2));
  CHECK(odd.reshape(2, 2, 3, 4, 2)(1, 1, 2, 3, 1) == 3 * 48 + 5 * 8 + 7);
  CHECK(odd.reshape(12, 8)(4, 5) == 48 + 3 * 8 + 5);  // 48 = 3 * 16: they happen to merge
  CHECK(
      refusal([&] { odd.reshape(4, 24); }) ==
      "Ref::reshape: [4,3,8] to [4,24]: the strides are [48,16,1], dimension 1 has no single one; "
      "copy the elements first");
  CHECK(refusal([&] { r.reshape(4, 6, 7); }) ==
        "Ref::reshape: [4,6,8] to [4,6,7]: 192 elements, expected as many, found 168");
  const Ref<const I32, 3> part = r.at(ds(0, 2), ds(0, 5), ds(0, 4));
  CHECK(part.reshape(2, 5, 2, 2)(1, 4, 1, 1) == 48 + 4 * 8 + 3);
  CHECK_THROWS_AS(part.reshape(10, 4), Error);
  CHECK_THROWS_AS(part.reshape(40), Error);
  CHECK(r.at(ds(0)).reshape(0, 3).extents() == Shape<2>{0, 3});
  CHECK(r.at(1, 2, ds(3, 1)).reshape(1, 1)(0, 0) == 67);
  const Tensor<I32, 0> scalar(Shape<0>{}, 5);
  CHECK(scalar.ref().reshape(1, 1, 1)(0, 0, 0) == 5);
}

TEST_CASE("transpose: any order of the dimensions that leaves lanes in place") {
  const Tensor<I32, 3> x = counted<3>({3, 4, 5});
  const Ref<const I32, 3> t = x.ref().transpose(1, 0, 2);
  CHECK(t.extents() == Shape<3>{4, 3, 5});
  CHECK(t(3, 1, 2) == x(1, 3, 2));
  CHECK(t.at(ds(1, 2, 2), 2)(1, 4) == x(2, 3, 4));
  CHECK(refusal([&] { x.ref().transpose(0, 2, 1); }) ==
        "Ref::transpose: dimension 1 of [3,4,5] would be the last one: lanes stay where they are; "
        "the verb transpose moves them");
  CHECK(refusal([&] { x.ref().transpose(0, 0, 2); }) ==
        "Ref::transpose: dimension 1 is 0, expected each of 0..3 - 1 once");
  CHECK(x.ref().at(ds(), ds(0, 1)).transpose(0, 2, 1).at(2, 4, 0)() == x(2, 0, 4));
}

TEST_CASE("behaviour 59: scalar memory is never padded; element 10 of 10 is an error") {
  Tensor<I32, 1> z({10});
  Grid grid("g");
  const auto zb = grid.out("z", z);
  const auto smem = grid.scratch<I32>("smem", {10});
  grid.check([&](const Step& s) {
    const Ref<I32, 1> scalars = s[smem];
    for (Index i = 0; i < 10; ++i) scalars.at(i)() = static_cast<I32>(i * i);
    for (Index i = 0; i < 10; ++i) s[zb].at(i)() = scalars.at(9 - i)();
    CHECK_THROWS_AS(scalars.at(10), Error);
  });
  for (Index i = 0; i < 10; ++i) CHECK(z(i) == (9 - i) * (9 - i));
}

TEST_CASE("behaviour 82: a scalar of a block is a row index") {
  // Row 6 becomes 6 by way of scalar x[0, 0] = 6, and row 7 is a copy of it.
  Tensor<I32, 2> x({8, 4}, 0);
  x(0, 0) = 6;
  Grid grid("g");
  const auto xb = grid.in_out("x", x);
  grid.check([&](const Step& s) {
    const Index row = s[xb].at(0, 0)();
    fill(s[xb].at(row), static_cast<I32>(row));
    copy(s[xb].at(row), s[xb].at(row + 1));
  });
  for (Index c = 0; c < 4; ++c) {
    CHECK(x(5, c) == 0);
    CHECK(x(6, c) == 6);
    CHECK(x(7, c) == 6);
  }
}

TEST_CASE("behaviour 62: loops over sub-slices, with bounds and carries") {
  const Tensor<I32, 2> x = counted<2>({16, 3});
  for (const Index step : {1, 2, 3, 5}) {
    // pl.loop(1, 14, step=step): rows start..start+2 are summed into row i of the result.
    Tensor<I32, 2> z({cdiv(13, step), 3}, 0);
    Index trips = 0;
    for (Index i = 1; i < 14; i += step, ++trips) {
      for (Index r = 0; r < 3; ++r)
        add(z.ref().at(trips), x.ref().at(ds(i, 3)).at(r), z.ref().at(trips));
    }
    REQUIRE(trips == z.extent(0));
    for (Index t = 0; t < trips; ++t) {
      for (Index c = 0; c < 3; ++c) CHECK(z(t, c) == 3 * x(1 + t * step + 1, c));
    }
  }
  I32 carry = 32;
  for (Index i = 0; i < 5; ++i) carry += static_cast<I32>(i);
  CHECK(carry == 42);
}

TEST_CASE("behaviour 61: a Ref is no value: s[z] = s[x] does not compile") {
  static_assert(!std::is_assignable_v<Ref<float, 2>, Ref<float, 2>>);
  static_assert(std::is_assignable_v<Ref<float, 2>&, Ref<float, 2>>);
  static_assert(std::is_trivially_copyable_v<Ref<float, 2>>);
  CHECK(!std::is_convertible_v<Ref<float, 2>, float>);
}

}  // namespace
}  // namespace kref
