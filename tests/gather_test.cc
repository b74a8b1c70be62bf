// SPDX-License-Identifier: Apache-2.0
// Loads and stores by arrays of indices, against loops; shapes are those of numpy. The numbers in
// the names are those of the behaviours of Pallas (tests/behaviours.tsv).
#include "kernels/gather.h"

#include <doctest/doctest.h>

#include "dsl/dsl.h"
#include "tests/filled_blocks.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

Tensor<I32, 1> list(std::initializer_list<I32> values) {
  Tensor<I32, 1> x({static_cast<Index>(values.size())});
  std::copy(values.begin(), values.end(), x.data());
  return x;
}

TEST_CASE("behaviour 52: arrays and integers run together, in front where a slice parts them") {
  const Tensor<I32, 3> x = counted<3>({2, 3, 4});
  const Tensor<I32, 1> v = list({3, 0, 0, 2, 1});
  // (0, :3, v): the slice lies between, so (5, 3).
  Tensor<I32, 2> parted({5, 3});
  load_at(x.ref(), {0, ds(3), v}, parted.ref());
  for (Index i = 0; i < 5; ++i) {
    for (Index r = 0; r < 3; ++r) CHECK(parted(i, r) == x(0, r, v(i)));
  }
  // (:, 1, v): together, so where they stood.
  Tensor<I32, 2> together({2, 5});
  load_at(x.ref(), {ds(), 1, v}, together.ref());
  for (Index p = 0; p < 2; ++p) {
    for (Index i = 0; i < 5; ++i) CHECK(together(p, i) == x(p, 1, v(i)));
  }
  // (10, 1) and (1, 20) run over (10, 20); the last dimension is whole.
  Tensor<I32, 2> a({10, 1}), b({1, 20});
  for (Index i = 0; i < 10; ++i) a(i, 0) = static_cast<I32>(i % 2);
  for (Index i = 0; i < 20; ++i) b(0, i) = static_cast<I32>(i % 3);
  Tensor<I32, 3> grid({10, 20, 4});
  load_at(x.ref(), {a, b}, grid.ref());
  for (Index i = 0; i < 10; ++i) {
    for (Index j = 0; j < 20; ++j) {
      for (Index c = 0; c < 4; ++c) CHECK(grid(i, j, c) == x(i % 2, j % 3, c));
    }
  }
  CHECK(refusal([&] {
          load_at(x.ref(), {list({0, 1}), list({0, 1, 2})}, grid.ref());
        }) == "load_at: cannot broadcast shapes for indexing: [2] and [3]");
  // No arrays at all, strides, places from the end.
  Tensor<I32, 2> plain({2, 2});
  load_at(x.ref(), {ds(), from_end(1), ds(1, 2, 2)}, plain.ref());
  CHECK(plain(1, 1) == x(1, 2, 3));
  Tensor<I32, 0> one(Shape<0>{});
  load_at(x.ref(), {1, 2, 3}, one.ref());
  CHECK(one() == 23);
}

TEST_CASE("a store by arrays: the last of equal places stays, a wrong entry changes nothing") {
  Tensor<I32, 2> z({4, 3}, -1);
  const Tensor<I32, 2> value = counted<2>({3, 3});
  store_at(value.ref(), z.ref(), {list({2, 0, 2})});
  for (Index c = 0; c < 3; ++c) {
    CHECK(z(0, c) == 3 + c);
    CHECK(z(1, c) == -1);
    CHECK(z(2, c) == 6 + c);
    CHECK(z(3, c) == -1);
  }
  const Tensor<I32, 1> row = list({7, 8});
  store_at(row.ref(), z.ref(), {3, list({2, 0})});
  CHECK((z(3, 0) == 8 && z(3, 1) == -1 && z(3, 2) == 7));
  const Tensor<I32, 2> before = z;
  CHECK(
      refusal([&] {
        store_at(value.ref(), z.ref(), {list({1, 0, 4})});
      }) ==
      "store_at: dimension 0: entry [2] of the index is 4, which does not lie inside the extent 4");
  CHECK(std::equal(z.data(), z.data() + 12, before.data()));
}

TEST_CASE("take_along_axis picks along one dimension") {
  const Tensor<I32, 2> x = counted<2>({4, 6});
  Tensor<I32, 2> columns({4, 9}), at({4, 9});
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c < 9; ++c) at(r, c) = static_cast<I32>((r + 5 * c) % 6);
  }
  take_along_axis(x, at, 1, columns.ref());
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c < 9; ++c) CHECK(columns(r, c) == x(r, at(r, c)));
  }
  const Tensor<std::int8_t, 2> bytes({4, 6}, std::int8_t{5});
  Tensor<std::int8_t, 2> rows({2, 6});
  take_along_axis(bytes, Tensor<I32, 2>({2, 6}, 3), 0, rows.ref());
  CHECK(rows(1, 5) == 5);
  CHECK(
      refusal([&] {
        take_along_axis(x, Tensor<I32, 2>({4, 9}, 6), 1, columns.ref());
      }) ==
      "take_along_axis: dimension 1: entry [0,0] of the index is 6, which does not lie inside the "
      "extent 6");
  CHECK(
      refusal([&] { take_along_axis(x, at, 0, columns.ref()); }) ==
      "take_along_axis: x is I32[4,6], index is I32[4,9], out is I32[4,9], expected the shape of x "
      "in both but along axis 0");
}

TEST_CASE("what does not fit is refused; a grid names the operand") {
  const Tensor<I32, 2> x = counted<2>({4, 6});
  Tensor<I32, 1> z({3});
  CHECK(refusal([&] {
          load_at(x.ref(), {0, 0, 0}, z.ref());
        }) == "load_at: 3 indices for I32[4,6]");
  CHECK(refusal([&] {
          load_at(x.ref(), {0, list({1, 2})}, z.ref());
        }) == "load_at: out is I32[3], expected [2]");
  CHECK(refusal([&] {
          load_at(x.ref(), {4, list({1, 2, 3})}, z.ref());
        }) == "Ref::at: dimension 0: element 4 does not lie inside the extent 4");
  Grid grid("g");
  const auto xb = grid.in("x", x);
  const auto zb = grid.out("z", z);
  CHECK(
      refusal([&] {
        grid.run([&](const Step& s) { load_at(s[xb], {0, list({1, -2, 3})}, s[zb]); });
      }) ==
      "grid 'g': input 'x': step 0: load_at: dimension 1: entry [1] of the index is -2, which does "
      "not lie inside the extent 6");
}

}  // namespace
}  // namespace kref
