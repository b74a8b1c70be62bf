// SPDX-License-Identifier: Apache-2.0
// The first kernels of the Pallas guide, as the README shows them: add, matmul, softmax. Each is
// checked against a loop, run under the strict rules, and compared for every number of threads.
#include <doctest/doctest.h>

#include <cmath>

#include "dsl/dsl.h"
#include "kernels/kernels.h"

namespace kref {
namespace {

void add_vectors(Ref<const float, 1> x, Ref<const float, 1> y, Ref<float, 1> z) {
  Grid grid("add_vectors");
  const Axis i = grid.parallel("i", cdiv(x.extent(0), 128));
  const auto xb = grid.in("x", x, {.block = {128}, .index = {i}});
  const auto yb = grid.in("y", y, {.block = {128}, .index = {i}});
  const auto zb = grid.out("z", z, {.block = {128}, .index = {i}});
  grid.run([&](const Step& s) { add(s[xb], s[yb], s[zb]); });
}

void tiled_matmul(Ref<const float, 2> x, Ref<const float, 2> y, Ref<float, 2> z,
                  const MatmulTile& t) {
  Grid grid("tiled_matmul");
  const Axis i = grid.parallel("i", cdiv(x.extent(0), t.m));
  const Axis j = grid.parallel("j", cdiv(y.extent(1), t.n));
  const Axis k = grid.sequential("k", cdiv(x.extent(1), t.k));

  const auto xb = grid.in("x", x, {.block = {t.m, t.k}, .index = {i, k}});
  const auto yb = grid.in("y", y, {.block = {t.k, t.n}, .index = {k, j}});
  const auto zb = grid.out("z", z, {.block = {t.m, t.n}, .index = {i, j}});
  const auto acc = grid.scratch<float>("acc", {t.m, t.n});

  grid.run([&](const Step& s) {
    if (s.first(k)) fill(s[acc], 0.0f);
    dot_add(s.valid(xb), s.valid(yb), s[acc]);
    if (s.last(k)) cast(s[acc], s[zb]);
  });
}

void softmax_rows(Ref<const float, 2> x, Ref<float, 2> z) {
  const Index rows = 8, columns = x.extent(1);
  Grid grid("softmax_rows");
  const Axis i = grid.parallel("i", cdiv(x.extent(0), rows));
  const auto xb = grid.in("x", x, {.block = {rows, columns}, .index = {i, 0}});
  const auto zb = grid.out("z", z, {.block = {rows, columns}, .index = {i, 0}});
  const auto row = grid.scratch<float>("row", {rows, 1});

  grid.run([&](const Step& s) {
    row_max(s[xb], s[row]);
    sub(s[xb], s[row], s[zb]);  // a column broadcasts over its row
    exp(s[zb], s[zb]);
    row_sum(s[zb], s[row]);
    div(s[zb], s[row], s[zb]);
  });
}

template <std::size_t R>
Tensor<float, R> ramp(const Shape<R>& shape, Index step) {
  Tensor<float, R> t(shape);
  for (Index i = 0; i < t.size(); ++i) t.data()[i] = static_cast<float>((i * step) % 17 - 8);
  return t;
}

// f with 1, 2, 3 and 8 threads and under the strict rules: the same bits, which it returns.
template <std::size_t R, class F>
Tensor<float, R> same_everywhere(const Shape<R>& shape, const F& f) {
  Tensor<float, R> first(shape);
  set_threads(1);
  f(first.ref());
  for (const int count : {2, 3, 8}) {
    Tensor<float, R> again(shape);
    set_threads(count);
    f(again.ref());
    bool equal = true;
    for (Index i = 0; i < first.size(); ++i) equal = equal && first.data()[i] == again.data()[i];
    CHECK(equal);
  }
  set_threads(0);
  return first;
}

TEST_CASE("add: the last block has 44 of 128 elements") {
  const auto x = ramp<1>({300}, 3), y = ramp<1>({300}, 5);
  const auto z = same_everywhere<1>({300}, [&](Ref<float, 1> out) { add_vectors(x, y, out); });
  for (Index i = 0; i < 300; ++i) CHECK(z(i) == x(i) + y(i));
}

TEST_CASE("matmul: no extent is a multiple of its tile") {
  const auto x = ramp<2>({45, 70}, 3), y = ramp<2>({70, 33}, 5);
  const auto z = same_everywhere<2>({45, 33}, [&](Ref<float, 2> out) {
    tiled_matmul(x, y, out, {16, 8, 32});
  });
  for (Index i = 0; i < 45; ++i)
    for (Index j = 0; j < 33; ++j) {
      float sum = 0;
      for (Index k = 0; k < 70; ++k) sum += x(i, k) * y(k, j);
      CHECK(z(i, j) == sum);
    }
}

TEST_CASE("softmax: 21 rows in blocks of 8") {
  const auto x = ramp<2>({21, 50}, 7);
  const auto z = same_everywhere<2>({21, 50}, [&](Ref<float, 2> out) { softmax_rows(x, out); });
  for (Index i = 0; i < 21; ++i) {
    double sum = 0;
    for (Index j = 0; j < 50; ++j) sum += std::exp(static_cast<double>(x(i, j)));
    for (Index j = 0; j < 50; ++j) {
      const double expected = std::exp(static_cast<double>(x(i, j))) / sum;
      CHECK(std::abs(z(i, j) - expected) <= 60 * 0x1p-24 * expected);
    }
  }
}

}  // namespace
}  // namespace kref
