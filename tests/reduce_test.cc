// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions on every SIMD target, against their definition in f64.
#include "kernels/reduce.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "dsl/dsl.h"
#include "kernels/reference_vectors.h"
#include "tests/filled_blocks.h"
#include "tests/refusal.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

using I32 = std::int32_t;
using I16 = std::int16_t;

const std::vector<std::vector<Index>> kAxes = {{},     {0},    {1},    {2},      {0, 1},
                                               {0, 2}, {1, 2}, {2, 0}, {0, 1, 2}};

// f(axes, kept) with a rank-3 result that keeps its axes with extent 1.
template <class F>
void for_each_axes(const Shape<3>& shape, F f) {
  for (const std::vector<Index>& axes : kAxes) {
    Shape<3> kept = shape;
    for (const Index a : axes) kept[static_cast<std::size_t>(a)] = 1;
    f(axes, kept);
  }
}

template <class S, class T>
void check_reductions(bool whole) {
  unsigned seed = 1;
  for (const Shape<3>& shape :
       {Shape<3>{1, 1, 1}, {2, 3, 5}, {5, 4, 33}, {3, 17, 16}, {7, 2, 70}}) {
    const Tensor<S, 3> x = random_block<S, 3>(shape, ++seed, whole ? 7 : 0);
    for_each_axes(shape, [&](const std::vector<Index>& axes, const Shape<3>& kept) {
      Index n = 1;
      for (const Index a : axes) n *= x.extent(static_cast<std::size_t>(a));
      Tensor<T, 3> sum(kept), top(kept), bottom(kept);
      const auto run = [&](detail::Reduction op, Tensor<T, 3>& out) {
        detail::reduce(op, x.ref(), axes, MutableArrayRef(out.ref()));
      };
      run(detail::Reduction::kSum, sum);
      const auto sums = reference::reduce(reference::Reduce::kSum, x.ref(), axes);
      const double u = unit_roundoff(std::is_integral_v<T> ? DType::kF64
                                     : sizeof(T) == 8      ? DType::kF64
                                                           : DType::kF32);
      for (Index i = 0; i < sum.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double exact = sums.value[at];
        // n additions in f32, and one rounding to T.
        const double bound = whole ? 0
                                   : static_cast<double>(n) * u * sums.magnitude[at] * 1.01 +
                                         unit_roundoff(dtype_of<T>) * std::abs(exact) * 1.01;
        if (whole) {
          REQUIRE(static_cast<double>(sum.data()[i]) == static_cast<double>(static_cast<T>(exact)));
        } else {
          REQUIRE(std::abs(static_cast<double>(sum.data()[i]) - exact) <= bound);
        }
      }
      if constexpr (std::is_same_v<S, T> || !std::is_integral_v<T>) {
        run(detail::Reduction::kMax, top);
        run(detail::Reduction::kMin, bottom);
        const auto most = reference::reduce(reference::Reduce::kMax, x.ref(), axes),
                   least = reference::reduce(reference::Reduce::kMin, x.ref(), axes);
        for (Index i = 0; i < top.size(); ++i) {
          REQUIRE(static_cast<double>(top.data()[i]) == most.value[static_cast<std::size_t>(i)]);
          REQUIRE(static_cast<double>(bottom.data()[i]) ==
                  least.value[static_cast<std::size_t>(i)]);
        }
      }
    });
  }
}

TEST_CASE("whole numbers: every type, every set of axes, exactly") {
  for_each_target([] {
    check_reductions<float, float>(true);
    check_reductions<double, double>(true);
    check_reductions<bf16, float>(true);
    check_reductions<f16, f16>(true);
    check_reductions<I32, I32>(true);
    check_reductions<std::int64_t, std::int64_t>(true);
    check_reductions<I16, I16>(true);
    check_reductions<std::int8_t, I32>(true);
    check_reductions<std::uint8_t, I32>(true);
    check_reductions<std::uint32_t, std::uint32_t>(true);
  });
}

TEST_CASE("floats: within the bound of their sums, rounded to a narrow result once") {
  for_each_target([] {
    check_reductions<float, float>(false);
    check_reductions<double, double>(false);
    check_reductions<bf16, float>(false);
    check_reductions<bf16, bf16>(false);
    check_reductions<f16, f16>(false);
  });
}

TEST_CASE("the order of a sum is the documented one on every target") {
  for_each_target([] {
    const Tensor<float, 2> x = random_block<float, 2>({37, 51}, 9, 0);
    Tensor<float, 1> z({51});
    reduce_sum(x.ref(), {0}, z.ref());
    for (Index c = 0; c < 51; ++c) {
      float sum = 0;
      for (Index r = 0; r < 37; ++r) sum += x(r, c);
      CHECK(z(c) == sum);
    }
    // Both axes: rows first, as row_sum, then down.
    Tensor<float, 1> rows({37});
    row_sum(x.ref(), rows.ref());
    float sum = 0;
    for (Index r = 0; r < 37; ++r) sum += rows(r);
    Tensor<float, 0> all(Shape<0>{});
    reduce_sum(x.ref(), {0, 1}, all.ref());
    Tensor<float, 1> once({1});
    reduce_sum(rows.ref().reshape(37, 1), {0}, once.ref());
    CHECK(once(0) == sum);
    Tensor<float, 0> last(Shape<0>{});
    row_sum(rows.ref(), last.ref());
    CHECK(all() == last());  // what is left is a row, in lanes again
  });
}

TEST_CASE("NaN, signed zeros, infinities, and integers that wrap") {
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_each_target([] {
    Tensor<float, 2> x({3, 20}, -0.0f);
    x(1, 3) = kNan, x(1, 4) = 0.0f, x(2, 5) = kInfinity, x(0, 5) = -kInfinity;
    Tensor<float, 1> z({20});
    reduce_max(x.ref(), {0}, z.ref());
    CHECK((std::isnan(z(3)) && !std::signbit(z(3))));
    CHECK((z(4) == 0 && !std::signbit(z(4))));
    CHECK((z(6) == 0 && std::signbit(z(6))));
    CHECK(z(5) == kInfinity);
    reduce_min(x.ref(), {0}, z.ref());
    CHECK((z(4) == 0 && std::signbit(z(4))));
    CHECK(z(5) == -kInfinity);
    reduce_sum(x.ref(), {0}, z.ref());
    CHECK((std::isnan(z(5)) && !std::signbit(z(5))));
    CHECK((z(6) == 0 && !std::signbit(z(6))));
    const Tensor<std::int8_t, 2> bytes({300, 2}, std::int8_t{100});
    Tensor<std::int8_t, 1> wrapped({2});
    Tensor<I32, 1> wide({2});
    reduce_sum(bytes.ref(), {0}, wrapped.ref());
    reduce_sum(bytes.ref(), {0}, wide.ref());
    CHECK(wrapped(1) == static_cast<std::int8_t>(30000));
    CHECK(wide(1) == 30000);
  });
}

TEST_CASE("of no elements: sums are 0, any is false, all is true, extrema are refused") {
  const Tensor<float, 3> x({2, 0, 3});
  Tensor<float, 2> z({2, 3});
  reduce_sum(x.ref(), {1}, z.ref());
  for (Index i = 0; i < 6; ++i) CHECK(z.data()[i] == 0.0f);
  CHECK(refusal([&] { reduce_max(x.ref(), {1}, z.ref()); }) ==
        "reduce_max: x is F32[2,0,3], of no elements there is no largest or smallest one");
  const Tensor<bool, 2> none({0, 2});
  Tensor<bool, 1> any({2}), all({2});
  reduce_or(none.ref(), {0}, any.ref());
  reduce_and(none.ref(), {0}, all.ref());
  CHECK((!any(0) && !any(1) && all(0) && all(1)));
  Tensor<I32, 1> at({3});
  CHECK(refusal([&] {
          argmax(Tensor<float, 2>({0, 3}).ref(), 0, at.ref());
        }) == "argmax: x is F32[0,3], axis 0 has no elements");
}

TEST_CASE("any and all over every set of axes") {
  std::mt19937 bits(3);
  for (const unsigned rare : {2u, 9u}) {
    Tensor<bool, 3> x({3, 4, 35});
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = bits() % rare == 0;
    for (const bool turned : {false, true}) {
      if (turned) {
        for (Index i = 0; i < x.size(); ++i) x.data()[i] = !x.data()[i];
      }
      for_each_axes({3, 4, 35}, [&](const std::vector<Index>& axes, const Shape<3>& kept) {
        Tensor<bool, 3> any(kept), all(kept);
        detail::reduce_bools(detail::Reduction::kMax, x.ref(), axes, MutableArrayRef(any.ref()));
        detail::reduce_bools(detail::Reduction::kMin, x.ref(), axes, MutableArrayRef(all.ref()));
        const auto most = reference::reduce(reference::Reduce::kMax, x.ref(), axes),
                   least = reference::reduce(reference::Reduce::kMin, x.ref(), axes);
        for (Index i = 0; i < any.size(); ++i) {
          REQUIRE(any.data()[i] == (most.value[static_cast<std::size_t>(i)] != 0));
          REQUIRE(all.data()[i] == (least.value[static_cast<std::size_t>(i)] != 0));
        }
      });
    }
  }
}

template <class T>
void check_arg() {
  for (const Shape<3>& shape : {Shape<3>{1, 1, 1}, {4, 5, 6}, {3, 20, 33}}) {
    // Few values, so that ties abound.
    const Tensor<T, 3> x = random_block<T, 3>(shape, 21, 7);
    for (Index axis = 0; axis < 3; ++axis) {
      Shape<3> kept = shape;
      kept[static_cast<std::size_t>(axis)] = 1;
      Tensor<I32, 3> top(kept);
      Tensor<I16, 3> bottom(kept);
      argmax(x.ref(), axis, top.ref());
      argmin(x.ref(), axis, bottom.ref());
      const auto most = reference::arg_extreme(true, x.ref(), axis),
                 least = reference::arg_extreme(false, x.ref(), axis);
      for (Index i = 0; i < top.size(); ++i) {
        REQUIRE(top.data()[i] == most[static_cast<std::size_t>(i)]);
        REQUIRE(bottom.data()[i] == least[static_cast<std::size_t>(i)]);
      }
    }
  }
}

TEST_CASE("argmax and argmin: the first of equal elements, the first NaN, as jnp") {
  check_arg<float>();
  check_arg<double>();
  check_arg<bf16>();
  check_arg<f16>();
  check_arg<I32>();
  check_arg<std::int8_t>();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Tensor<float, 2> x({2, 4}, 1.0f);
  x(0, 1) = kNan, x(0, 3) = kNan, x(0, 2) = 9.0f, x(1, 0) = -0.0f, x(1, 1) = 0.0f;
  Tensor<I32, 1> top({2}), bottom({2});
  argmax(x.ref(), 1, top.ref());
  argmin(x.ref(), 1, bottom.ref());
  CHECK((top(0) == 1 && bottom(0) == 1));
  CHECK((top(1) == 2 && bottom(1) == 0));
}

TEST_CASE("axes, shapes and types that do not fit are refused by name") {
  const Tensor<float, 2> x({2, 3}, 1.0f);
  Tensor<float, 1> z({3});
  Tensor<I32, 1> n({3});
  CHECK(refusal([&] { reduce_sum(x.ref(), {2}, z.ref()); }) ==
        "reduce_sum: axis 2 of x F32[2,3], expected 0..2 - 1");
  CHECK(refusal([&] {
          reduce_sum(x.ref(), {0, 0}, z.ref());
        }) == "reduce_sum: axis 0 is named twice");
  CHECK(
      refusal([&] { reduce_min(x.ref(), {1}, z.ref()); }) ==
      "reduce_min: x is F32[2,3], out is F32[3], expected the shape of x without the axes, or with "
      "extent 1 there");
  CHECK(refusal([&] { reduce_sum(x.ref(), {0}, n.ref()); }) ==
        "reduce_sum: x is F32[2,3], out is I32[3], expected one element type, or F32 for F16 and "
        "BF16, "
        "or I32 for I8, U8, I16");
  Tensor<I16, 1> few({1});
  CHECK(refusal([&] {
          argmax(Tensor<float, 2>({32769, 1}, 0.0f).ref(), 0, few.ref());
        }) == "argmax: axis 0 of x F32[32769,1] has more elements than I16 counts");
}

}  // namespace
}  // namespace kref
