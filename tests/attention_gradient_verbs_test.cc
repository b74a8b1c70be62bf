// SPDX-License-Identifier: Apache-2.0
// The verbs of the backward pass of attention, on every SIMD target and at guard pages: transposes,
// what is odd in a block, and a block of scores to its weights and cotangents.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/attention_gradient.h"
#include "kernels/dot.h"
#include "tests/guarded.h"
#include "tests/simd_targets.h"

namespace kref::detail {
namespace {

using guarded::Tester;

TEST_CASE("transpose: every remainder, at guard pages") {
  for_each_target([] {
    Tester test;
    for (Index rows = 0; rows <= 18; ++rows) {
      for (const Index columns : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31}) {
        test("transpose", {{DType::kF32, rows, columns}, {DType::kF32, columns, rows}},
             [](const ArrayRef* in, const MutableArrayRef& out) {
               transpose(in[0].ref<const float, 2>(), out.ref<float, 2>());
             });
        Tensor<float, 2> x({rows, columns}), out({columns, rows});
        std::iota(x.data(), x.data() + x.size(), 1.0f);
        transpose(x, out);
        for (Index r = 0; r < rows; ++r) {
          for (Index c = 0; c < columns; ++c) REQUIRE(out(c, r) == x(r, c));
        }
      }
    }
  });
}

TEST_CASE("take_odd: what is infinite or NaN leaves, the rest stays") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor<float, 2> x({3, 4}, 2.0f);
  x(0, 3) = kInfinity, x(2, 0) = -kInfinity, x(2, 1) = std::nanf("");
  const std::vector<OddElement> odd = take_odd(x);
  REQUIRE(odd.size() == 3);
  CHECK((odd[0].row == 0 && odd[0].column == 3 && odd[0].value == kInfinity));
  CHECK((odd[1].row == 2 && odd[1].column == 0 && odd[1].value == -kInfinity));
  CHECK((odd[2].row == 2 && odd[2].column == 1 && std::isnan(odd[2].value)));
  CHECK((x(0, 3) == 0 && x(2, 0) == 0 && x(2, 1) == 0 && x(1, 1) == 2));
}

TEST_CASE("add_by_keys: odd elements reach the keys that their row sees") {
  for_each_target([] {
    BlockMask mask;
    mask.rows = 2, mask.keys = 3, mask.whole = false;
    mask.begin = {0, 1}, mask.end = {2, 3};
    Tensor<float, 2> x({2, 3}), y({2, 2}, 0.0f), acc({2, 3}, 1.0f);
    for (Index i = 0; i < 6; ++i) x.data()[i] = static_cast<float>(i + 1);
    x(0, 2) = 0, x(1, 0) = 0;
    y(0, 1) = 10;
    const float infinity = std::numeric_limits<float>::infinity();
    add_by_keys(mask, x, y, {{1, 0, infinity}}, acc);
    CHECK((acc(0, 0) == 1 && acc(0, 1) == infinity && acc(0, 2) == infinity));
    CHECK((acc(1, 0) == 11 && acc(1, 1) == 21 && acc(1, 2) == 1));
  });
}

// A block with every kind of mask, bias and rule, and what plain loops in f64 make of it.
struct Block {
  Index rows, keys;
  BlockMask mask;
  Tensor<float, 2> p, ds, bias;
  Tensor<float, 1> lse, delta;
  Tensor<bool, 2> chosen;
  ScoreRule rule;
  bool has_bias;

  Block(Index r, Index k, std::mt19937& random)
      : rows(r),
        keys(k),
        p({r, cdiv(k, 16) * 16}),
        ds({r, cdiv(k, 16) * 16}),
        bias({r, k}),
        lse({r}),
        delta({r}),
        chosen({r, k}, true) {
    std::normal_distribution<float> normal;
    const auto below = [&](Index n) {
      return static_cast<Index>(random() % static_cast<unsigned>(n));
    };
    for (Tensor<float, 2>* t : {&p, &ds, &bias})
      for (Index i = 0; i < t->size(); ++i) t->data()[i] = normal(random);
    for (Index i = 0; i < rows; ++i) lse(i) = 3 + normal(random), delta(i) = normal(random);
    mask.rows = rows, mask.keys = keys, mask.whole = false;
    for (Index i = 0; i < rows; ++i) {
      const Index a = below(keys + 1), b = below(keys + 1);
      mask.begin.push_back(static_cast<std::int32_t>(std::min(a, b)));
      mask.end.push_back(static_cast<std::int32_t>(std::max(a, b)));
    }
    if (below(2) == 0) {
      for (Index i = 0; i < chosen.size(); ++i) chosen.data()[i] = below(3) > 0;
      mask.chosen = chosen;
    }
    rule.scale = 0.5f;
    rule.cap = below(2) == 0 ? 0.0f : 0.75f;
    rule.bias_before_scale = below(2) == 0;
    has_bias = below(2) == 0;
  }
  ArrayRef bias_ref() const { return has_bias ? ArrayRef(bias.ref()) : ArrayRef(); }
  void run(Tensor<float, 2>& weights, Tensor<float, 2>& cotangents) const {
    weights = p, cotangents = ds;
    attention_gradient(rule, 2.0f, mask, bias_ref(), {lse, delta},
                       weights.ref().block({0, 0}, {rows, keys}),
                       cotangents.ref().block({0, 0}, {rows, keys}));
  }
};

TEST_CASE("attention_gradient: within a few units of plain loops, 0 where nothing is seen") {
  std::mt19937 random(5);
  for (const Index keys : {1, 3, 15, 16, 17, 31, 32, 33, 48, 70}) {
    for (int n = 0; n < 6; ++n) {
      const Block block(1 + n, keys, random);
      Tensor<float, 2> first_p, first_ds;
      block.run(first_p, first_ds);
      for (Index r = 0; r < block.rows; ++r) {
        for (Index j = 0; j < keys; ++j) {
          if (!block.mask.sees(r, j)) {
            REQUIRE(first_p(r, j) == 0);
            REQUIRE(first_ds(r, j) == 0);
            continue;
          }
          const double bias = block.has_bias ? static_cast<double>(block.bias(r, j)) : 0;
          double s = static_cast<double>(block.p(r, j)), slope = 1;
          s = block.rule.bias_before_scale ? (s + bias) / 2 : s / 2 + bias;
          if (block.rule.cap > 0) {
            const double tanh = std::tanh(s / 0.75);
            s = 0.75 * tanh, slope = 1 - tanh * tanh;
          }
          const double weight = std::exp(s - static_cast<double>(block.lse(r)));
          const double size = std::fabs(static_cast<double>(block.ds(r, j))) +
                              std::fabs(static_cast<double>(block.delta(r)));
          const double ds =
              2 * weight * slope *
              (static_cast<double>(block.ds(r, j)) - static_cast<double>(block.delta(r)));
          const double unit = 0x1p-20 * weight * (1 + std::fabs(bias));
          REQUIRE(std::fabs(static_cast<double>(first_p(r, j)) - weight) < unit);
          REQUIRE(std::fabs(static_cast<double>(first_ds(r, j)) - ds) < 2 * unit * (size + 1));
        }
      }
      for_each_target([&] {
        Tensor<float, 2> again_p, again_ds;
        block.run(again_p, again_ds);
        const auto bytes = static_cast<std::size_t>(first_p.size()) * sizeof(float);
        CHECK(std::memcmp(first_p.data(), again_p.data(), bytes) == 0);
        CHECK(std::memcmp(first_ds.data(), again_ds.data(), bytes) == 0);
      });
    }
  }
}

TEST_CASE("attention_gradient: touches nothing but its rows and their room") {
  for_each_target([] {
    Tester test;
    for (const Index columns : {16, 32, 48}) {
      for (const Index keys : {columns - 15, columns - 1, columns}) {
        for (const float cap : {0.0f, 2.0f}) {
          // ds is read and written, so that it is copied from an input; p is a scratch of its own.
          test("attention_gradient",
               {{DType::kF32, 3, columns}, {DType::kF32, 3, keys}, {DType::kF32, 3, columns}},
               [&](const ArrayRef* in, const MutableArrayRef& out) {
                 BlockMask mask;
                 mask.rows = 3, mask.keys = keys, mask.begin = {0, 0, 0};
                 mask.end.assign(3, static_cast<std::int32_t>(keys));
                 ScoreRule rule;
                 rule.cap = cap;
                 const Tensor<float, 1> lse({3}, 1.0f), delta({3}, 0.5f);
                 const Ref<float, 2> to = out.ref<float, 2>();
                 Tensor<float, 2> p({3, columns}, 0.25f);
                 for (Index r = 0; r < 3; ++r) {
                   for (Index c = 0; c < columns; ++c) to(r, c) = in[0].ref<const float, 2>()(r, c);
                 }
                 attention_gradient(rule, 1.0f, mask, in[1], {lse, delta}, p,
                                    to.block({0, 0}, {3, keys}));
               });
        }
      }
    }
  });
}

}  // namespace
}  // namespace kref::detail
