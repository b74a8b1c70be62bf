// SPDX-License-Identifier: Apache-2.0
#include "kernels/tile_ops.h"

#include <doctest/doctest.h>

#include "dsl/dsl.h"

namespace kref {
namespace {

TEST_CASE("fill and copy touch the block and nothing else") {
  for (const Index rows : {0, 1, 3}) {
    for (Index cols = 0; cols < 35; ++cols) {
      CAPTURE(rows);
      CAPTURE(cols);
      Tensor<float, 2> t({rows + 2, cols + 2}, -1.0f);
      const Ref<float, 2> inner = t.ref().block({1, 1}, {rows, cols});
      fill(inner, 2);
      Tensor<float, 2> u({rows + 2, cols + 2}, -3.0f);
      copy(inner, u.ref().block({1, 1}, {rows, cols}));
      for (Index r = 0; r < rows + 2; ++r) {
        for (Index c = 0; c < cols + 2; ++c) {
          const bool inside = r >= 1 && r <= rows && c >= 1 && c <= cols;
          REQUIRE(t(r, c) == (inside ? 2.0f : -1.0f));
          REQUIRE(u(r, c) == (inside ? 2.0f : -3.0f));
        }
      }
    }
  }
}

TEST_CASE("ranks 0 to 6, strides of all kinds") {
  Tensor<float, 4> x({2, 3, 4, 5}), z({2, 3, 4, 5});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i);
  const Ref<float, 4> part = x.ref().block({0, 1, 1, 1}, {2, 2, 3, 3});
  Tensor<float, 3> y({2, 1, 3});
  for (Index i = 0; i < 6; ++i) y.data()[i] = 1000.0f * static_cast<float>(i);
  z.fill(-1);
  add(part, y, z.ref().block({0, 0, 0, 2}, {2, 2, 3, 3}));
  for (Index a = 0; a < 2; ++a) {
    for (Index b = 0; b < 3; ++b) {
      for (Index c = 0; c < 4; ++c) {
        for (Index d = 0; d < 5; ++d) {
          const bool inside = b < 2 && c < 3 && d >= 2;
          CHECK(z(a, b, c, d) == (inside ? x(a, b + 1, c + 1, d - 1) + y(b, 0, d - 2) : -1.0f));
        }
      }
    }
  }
  // Rows from last to first, and one row seen three times.
  const Ref<float, 2> reversed(x.data() + 10, {3, 5}, {-5, 1}), repeated(x.data(), {3, 5}, {0, 1});
  Tensor<float, 2> sum({3, 5});
  sub(reversed, repeated, sum.ref());
  for (Index r = 0; r < 3; ++r) CHECK(sum(r, 4) == static_cast<float>(10 - 5 * r));
  Tensor<float, 0> scalar(Shape<0>{});
  mul(2.0f, 3.0f, scalar.ref());
  CHECK(scalar() == 6.0f);
}

TEST_CASE("shapes that do not fit are refused by name") {
  const Tensor<float, 2> x({2, 3}, 1.0f), y({2, 2}, 1.0f);
  Tensor<float, 2> out({2, 3});
  CHECK_THROWS_WITH_AS(add(x, y, out.ref()), "add: y is F32[2,2], which does not fit out F32[2,3]",
                       Error);
  CHECK_THROWS_WITH_AS(exp(Tensor<float, 3>({1, 2, 3}, 1.0f), out.ref()),
                       "exp: x is F32[1,2,3], which does not fit out F32[2,3]", Error);
  CHECK_THROWS_WITH_AS(
      add(x, x, Ref<float, 2>(out.data(), {2, 3}, {0, 1})),
      "add: out repeats its elements along dimension 0 (stride 0), it cannot be written", Error);
  CHECK_THROWS_WITH_AS(cast(y.ref(), out.ref()),
                       "cast: x is F32[2,2], which does not fit out F32[2,3]", Error);
  CHECK_THROWS_WITH_AS(copy(y, out.ref()), "copy: x is F32[2,2], which does not fit out F32[2,3]",
                       Error);
  Tensor<float, 2> narrow({2, 1});
  CHECK_THROWS_AS(neg(x, narrow.ref()), Error);
}

TEST_CASE("a verb that is refused in a body names grid and step as well") {
  const Tensor<float, 2> x({4, 3}, 1.0f);
  Tensor<float, 2> z({4, 3});
  Grid grid("sums");
  const Axis i = grid.parallel("i", 2), j = grid.sequential("j", 1);
  const auto xb = grid.in("x", x, {.block = {2, 3}, .index = {i, j}});
  const auto zb = grid.out("z", z, {.block = {2, 3}, .index = {i, j}});
  CHECK_THROWS_WITH_AS(
      grid.run([&](const Step& s) {
        s.last(i) ? add(s[xb], s[xb].block({0, 0}, {2, 2}), s[zb]) : copy(s[xb], s[zb]);
      }),
      "grid 'sums': step 1 (i=1, j=0): add: y is F32[2,2], which does not fit out F32[2,3]", Error);
}

}  // namespace
}  // namespace kref
