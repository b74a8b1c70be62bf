// SPDX-License-Identifier: Apache-2.0
// Verbs that move elements, against loops over indices. The numbers in the names are those of the
// behaviours of Pallas (tests/behaviours.tsv).
#include "kernels/move_ops.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "dsl/dsl.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using I32 = std::int32_t;

template <class T = I32, std::size_t R>
Tensor<T, R> counted(const Shape<R>& shape) {
  Tensor<T, R> x(shape);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<T>(static_cast<double>(i % 113));
  return x;
}

TEST_CASE("iota counts along any axis of any number type, from any start") {
  Tensor<I32, 3> x({3, 4, 5});
  for (Index axis = 0; axis < 3; ++axis) {
    iota(axis, x.ref(), 100);
    for (Index a = 0; a < 3; ++a) {
      for (Index b = 0; b < 4; ++b) {
        for (Index c = 0; c < 5; ++c)
          CHECK(x(a, b, c) == 100 + Shape<3>{a, b, c}[static_cast<std::size_t>(axis)]);
      }
    }
  }
  Tensor<std::int8_t, 1> bytes({300});
  iota(0, bytes.ref(), -3);
  for (Index i = 0; i < 300; ++i) CHECK(bytes(i) == static_cast<std::int8_t>(i - 3));
  Tensor<bf16, 2> narrow({2, 300});
  iota(1, narrow.ref());
  CHECK(static_cast<float>(narrow(1, 255)) == 255.0f);
  CHECK(static_cast<float>(narrow(1, 257)) == 256.0f);  // rounded to even
  Tensor<double, 0> scalar(Shape<0>{});
  CHECK(refusal([&] { iota(0, scalar.ref()); }) == "iota: axis 0 of F64[], expected 0..0 - 1");
  CHECK_THROWS_AS(iota(-1, x.ref()), Error);
  Tensor<I32, 2> empty({0, 3});
  iota(1, empty.ref());
}

template <class T>
void roll_every_way() {
  const Tensor<T, 3> x = counted<T, 3>({3, 4, 7});
  for (Index axis = 0; axis < 3; ++axis) {
    for (const Index shift : {0, 1, 2, 3, 6, 7, 9, 700}) {
      Tensor<T, 3> z({3, 4, 7});
      roll(x, shift, axis, z.ref());
      for (Index stride_axis = 0; stride_axis < 3; ++stride_axis) {
        for (const Index stride : {0, 1, 2, 5, 30}) {
          if (stride_axis == axis) continue;
          Tensor<T, 3> strided({3, 4, 7});
          roll(x, shift, axis, stride, stride_axis, strided.ref());
          for (Index i = 0; i < x.size(); ++i) {
            Shape<3> at{i / 28, i / 7 % 4, i % 7}, to = at;
            const auto d = static_cast<std::size_t>(axis);
            const Index n = x.extent(d);
            to[d] = (at[d] + shift + at[static_cast<std::size_t>(stride_axis)] * stride) % n;
            REQUIRE(strided.ref()[to] == x.ref()[at]);
            to[d] = (at[d] + shift) % n;
            REQUIRE(z.ref()[to] == x.ref()[at]);
          }
        }
      }
    }
  }
}

TEST_CASE("behaviour 88: roll by any shift, along any axis, with strides") {
  roll_every_way<float>();
  roll_every_way<std::int16_t>();
  roll_every_way<std::uint8_t>();
  // A part of a larger block, and a row view.
  const Tensor<I32, 2> x = counted<I32, 2>({6, 40});
  Tensor<I32, 2> z({6, 40}, -1);
  roll(x.ref().at(ds(1, 2), ds(3, 33)), 5, 1, z.ref().at(ds(2, 2), ds(0, 33)));
  for (Index c = 0; c < 33; ++c) CHECK(z(3, (c + 5) % 33) == x(2, c + 3));
  CHECK(z(3, 33) == -1);
  CHECK(z(1, 0) == -1);
}

TEST_CASE("roll refuses by Pallas' words") {
  const Tensor<float, 2> x({2, 3}, 1.0f);
  Tensor<float, 2> z({2, 3});
  CHECK(refusal([&] { roll(x, -1, 0, z.ref()); }) == "roll: shift must be non-negative, found -1");
  CHECK(refusal([&] { roll(x, 1, 2, z.ref()); }) == "roll: axis is out of range: 2 of x F32[2,3]");
  CHECK(refusal([&] { roll(x, 1, 0, -1, 1, z.ref()); }) ==
        "roll: stride must be non-negative, found -1");
  CHECK(refusal([&] { roll(x, 1, 0, 1, 2, z.ref()); }) ==
        "roll: stride_axis is out of range: 2 of x F32[2,3]");
  CHECK(refusal([&] { roll(x, 1, 1, 1, 1, z.ref()); }) ==
        "roll: expected axis and stride_axis are different, both are 1");
  CHECK(refusal([&] { roll(z, 1, 1, z.ref()); }) ==
        "roll: out F32[2,3] shares memory with x F32[2,3]");
  Tensor<float, 2> other({3, 2});
  CHECK(refusal([&] { roll(x, 1, 1, other.ref()); }) ==
        "roll: out is F32[3,2], expected the shape of x, F32[2,3]");
}

template <class T>
void transpose_matrices() {
  for (const Index m : {0, 1, 2, 7, 15, 16, 17, 33, 64}) {
    for (const Index n : {1, 3, 16, 31, 40}) {
      const Tensor<T, 2> x = counted<T, 2>({m, n});
      Tensor<T, 2> z({n, m});
      transpose(x, {1, 0}, z.ref());
      for (Index r = 0; r < m; ++r) {
        for (Index c = 0; c < n; ++c) REQUIRE(std::memcmp(&z(c, r), &x(r, c), sizeof(T)) == 0);
      }
    }
  }
}

TEST_CASE("transpose: matrices of every width, every order of four dimensions") {
  transpose_matrices<std::int8_t>();
  transpose_matrices<bf16>();
  transpose_matrices<float>();
  transpose_matrices<double>();
  const Tensor<I32, 4> x = counted<I32, 4>({2, 3, 5, 4});
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  int orders = 0;
  do {
    Shape<4> shape{};
    for (std::size_t d = 0; d < 4; ++d) shape[d] = x.extent(order[d]);
    Tensor<I32, 4> z(shape);
    transpose(x, order, z.ref());
    for (Index i = 0; i < x.size(); ++i) {
      const Shape<4> at{i / 60, i / 20 % 3, i / 4 % 5, i % 4};
      Shape<4> to{};
      for (std::size_t d = 0; d < 4; ++d) to[d] = at[order[d]];
      REQUIRE(z.ref()[to] == x.ref()[at]);
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 24);
  Tensor<I32, 4> z({2, 3, 5, 4});
  CHECK(refusal([&] {
          transpose(x, {0, 1, 3, 2}, z.ref());
        }) == "transpose: x is I32[2,3,5,4], out is I32[2,3,5,4], expected I32[2,3,4,5]");
  CHECK(refusal([&] {
          transpose(x, {0, 1, 1, 2}, z.ref());
        }) == "transpose: dimension 2 is 1, expected each of 0..4 - 1 once");
}

TEST_CASE("broadcast_in_dim: dimensions of x along dimensions of out") {
  const Tensor<I32, 2> x = counted<I32, 2>({3, 4});
  Tensor<I32, 4> z({3, 2, 4, 5});
  broadcast_in_dim(x.ref(), {0, 2}, z.ref());
  for (Index i = 0; i < z.size(); ++i) {
    const Shape<4> at{i / 40, i / 20 % 2, i / 5 % 4, i % 5};
    REQUIRE(z.ref()[at] == x(at[0], at[2]));
  }
  const Tensor<I32, 1> row = counted<I32, 1>({5});
  Tensor<I32, 2> square({5, 5});
  broadcast_in_dim(row.ref(), {0}, square.ref());
  CHECK(square(3, 1) == 3);
  broadcast_in_dim(row.ref(), {1}, square.ref());
  CHECK(square(3, 1) == 1);
  CHECK(refusal([&] {
          broadcast_in_dim(x.ref(), {2, 0}, z.ref());
        }) ==
        "broadcast_in_dim: dimension 0 of x I32[3,4] does not fit dimension 2 of out I32[3,2,4,5]");
  CHECK(
      refusal([&] {
        broadcast_in_dim(x.ref(), {0, 0}, z.ref());
      }) ==
      "broadcast_in_dim: dimension 1 of x I32[3,4] lies along 0, expected rising dimensions of out "
      "I32[3,2,4,5]");
}

TEST_CASE("behaviour 91: einshape splits, orders and joins by name") {
  const Tensor<I32, 2> x = counted<I32, 2>({4, 6});
  Tensor<I32, 2> z({8, 3});
  einshape("a(bc)->(ab)c", x.ref(), z.ref(), {{'b', 2}});
  for (Index a = 0; a < 4; ++a) {
    for (Index b = 0; b < 2; ++b) {
      for (Index c = 0; c < 3; ++c) CHECK(z(a * 2 + b, c) == x(a, b * 3 + c));
    }
  }
  Tensor<I32, 2> turned({8, 3});
  einshape("a(bc)->(ba)c", x.ref(), turned.ref(), {{'c', 3}});
  for (Index a = 0; a < 4; ++a) {
    for (Index b = 0; b < 2; ++b) {
      for (Index c = 0; c < 3; ++c) CHECK(turned(b * 4 + a, c) == x(a, b * 3 + c));
    }
  }
  // There and back: what a derivative would do is the reverse.
  Tensor<I32, 2> back({4, 6});
  einshape("(ba)c->a(bc)", turned.ref(), back.ref(), {{'a', 4}});
  CHECK(std::equal(x.data(), x.data() + 24, back.data()));
  const Tensor<I32, 4> image = counted<I32, 4>({2, 3, 5, 7});
  Tensor<I32, 4> channels({2, 7, 3, 5});
  einshape("nhwc->nchw", image.ref(), channels.ref());
  CHECK(channels(1, 6, 2, 4) == image(1, 2, 4, 6));
  Tensor<I32, 1> flat({210});
  einshape(" n h w c -> (n h w c)", image.ref(), flat.ref());
  CHECK(flat(100) == image.data()[100]);
}

TEST_CASE("einshape refuses by Pallas' words") {
  const Tensor<I32, 2> x({4, 6}, 1);
  Tensor<I32, 2> z({8, 3});
  const auto told = [&](const char* equation, std::initializer_list<EinshapeSize> sizes) {
    return refusal([&] { einshape(equation, x.ref(), z.ref(), sizes); });
  };
  CHECK(told("ab", {}) == "einshape: \"ab\": expected exactly one '->'");
  CHECK(told("ab->b->a", {}) == "einshape: \"ab->b->a\": expected exactly one '->'");
  CHECK(told("a(b->ab", {}) == "einshape: \"a(b->ab\": unmatched parenthesis");
  CHECK(told("ab)->ab", {}) == "einshape: \"ab)->ab\": unmatched parenthesis");
  CHECK(told("a->a", {}) == "einshape: \"a->a\": the left side has 1 groups but x is I32[4,6]");
  CHECK(told("a(bc)->(ab)c", {}) ==
        "einshape: \"a(bc)->(ab)c\": ambiguous split of dimension 1: sizes of b and c are both "
        "unknown");
  CHECK(told("a(bc)->(ab)c", {{'b', 4}}) ==
        "einshape: \"a(bc)->(ab)c\": cannot split dimension 1 of x I32[4,6] by 4");
  CHECK(told("a(bc)->(ab)c", {{'b', 4}, {'c', 2}}) ==
        "einshape: \"a(bc)->(ab)c\": size mismatch for group 1: (bc) is 8, x is I32[4,6]");
  CHECK(told("ab->ba", {{'a', 3}}) ==
        "einshape: \"ab->ba\": size mismatch for group 0: (a) is 3, x is I32[4,6]");
  CHECK(told("ab->bc", {}) == "einshape: \"ab->bc\": unknown dimension c on the right");
  CHECK(told("ab->b", {}) == "einshape: \"ab->b\": dimension a is missing on the right");
  CHECK(told("aa->a", {}) == "einshape: \"aa->a\": dimension a appears twice on a side");
  CHECK(told("ab->ba", {}) == "einshape: \"ab->ba\": out is I32[8,3], expected [6,4]");
  CHECK(told("ab->ba", {{'q', 3}}) == "einshape: \"ab->ba\": unknown dimension q");
}

}  // namespace
}  // namespace kref
