// SPDX-License-Identifier: Apache-2.0
// Behaviours 13 to 15, 23 to 29, 69 and 70 of sharding_semantics section 9, by number. Global
// arrays go in and out by shard_map, as in JAX's own tests.
#include <doctest/doctest.h>

#include "sharding/typed_shard_map.h"
#include "sharding/value_collectives.h"
#include "tests/global_arrays.h"

namespace kref {
namespace {

Array product(const Array& a, const Array& b) {
  const Index m = a.extent(0), k = a.extent(1), n = b.extent(1);
  Array out(DType::kF32, Extents{m, n});
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      double sum = 0;
      for (Index l = 0; l < k; ++l) sum += a.at(i * k + l) * b.at(l * n + j);
      out.mutable_elements<float>()[static_cast<std::size_t>(i * n + j)] = static_cast<float>(sum);
    }
  }
  return out;
}

TEST_CASE("behaviour 13: psum_scatter of a product, over the summed axis and over one more") {
  const Array a = arange({8, 8}), b = arange({8, 8});
  const Values full = values_of(product(a, b));
  const auto run = [&](const AxisNames& over, Index rows) {
    return shard_map(
        kCube, {.in_specs = {P{"z", "y"}, P{"y", none}}, .out_specs = P{axes("z", "y"), none}},
        [&](Device& d, const Array& x, const Array& y) {
          const Array out = psum_scatter(d, product(x, y), over, {.tiled = true});
          CHECK(out.extent(0) == rows);
          return out;
        })(a, b);
  };
  CHECK(values_of(run("y", 2)) == full);
  Values halves;
  for (std::size_t i = 0; i < 32; ++i) halves.push_back(full[i] + full[i + 32]);
  CHECK(values_of(run(axes("z", "y"), 1)) == halves);
}

TEST_CASE("behaviour 14: psum_scatter in groups") {
  const Array out =
      mapped(kEight, {none, "x"}, {none, "x"}, arange({8, 8}), [](Device& d, const Array& x) {
        return psum_scatter(d, x, "x", {.tiled = true, .axis_index_groups = kParity});
      });
  REQUIRE(shape_string(out.shape()) == "[2,8]");
  for (Index r = 0; r < 2; ++r) {
    for (Index member = 0; member < 8; ++member) {
      double sum = 0;  // row 2 chunk + r of the columns of the member's parity
      for (Index c = member % 2; c < 8; c += 2)
        sum += static_cast<double>((member / 2 * 2 + r) * 8 + c);
      CHECK(out.at(r * 8 + member) == sum);
    }
  }
}

TEST_CASE("behaviour 15: psum_scatter in groups, member i gets chunk i / 2") {
  const Array x = arange({8, 4});
  const Array out = mapped(kEight, {"x", none}, {"x"}, x, [](Device& d, const Array& mine) {
    const Array flat(DType::kF32, Extents{4}, mine.owner(), mine.data());
    return psum_scatter(d, flat, "x", {.tiled = true, .axis_index_groups = kParity});
  });
  for (Index member = 0; member < 8; ++member) {
    double sum = 0;
    for (Index d = member % 2; d < 8; d += 2) sum += x.at(d * 4 + member / 2);
    CHECK(out.at(member) == sum);
  }
}

TEST_CASE("behaviours 23 and 24: pmin, pmax, and the lowest place of a tie") {
  const auto run = [](const Array& x, const Body& body) {
    return values_of(mapped(kFour, {"x"}, P(), x, body));
  };
  const Array x = arange({8});
  CHECK(run(x, [](Device& d, const Array& a) { return pmin(d, a, "x"); }) == Values{0, 1});
  CHECK(run(x, [](Device& d, const Array& a) { return pmax(d, a, "x"); }) == Values{6, 7});
  const Array ties = array_of({8}, {1, 7, 3, 7, 3, -2, 0, -2});
  CHECK(run(ties, [](Device& d, const Array& a) { return pargmax(d, a, "x"); }) == Values{1, 0});
  CHECK(run(ties, [](Device& d, const Array& a) { return pargmin(d, a, "x"); }) == Values{3, 2});
}

TEST_CASE("behaviours 25 to 28: bools, a constant, uneven groups, psum of psum") {
  const Mesh two = Mesh::parse("x=2");
  const Array flags = array_of({2}, {1, 0}, DType::kBool);
  const Array count =
      mapped(two, {"x"}, {"x"}, flags, [](Device& d, const Array& x) { return psum(d, x, "x"); });
  const Array mean =
      mapped(two, {"x"}, {"x"}, flags, [](Device& d, const Array& x) { return pmean(d, x, "x"); });
  CHECK(count.dtype() == DType::kI32);
  CHECK(values_of(count) == Values{1, 1});
  CHECK(values_of(mean) == Values{0.5, 0.5});

  const auto eight = [](const AxisIndexGroups& groups) {
    return values_of(mapped(kEight, {"x"}, {"x"}, arange({8}), [&](Device& d, const Array& x) {
      return psum(d, x, "x", {.axis_index_groups = groups});
    }));
  };
  const Array twos =
      mapped(kEight, {"x"}, {"x"}, array_of({8}, Values(8, 2)), [](Device& d, const Array& x) {
        return psum(d, x, "x", {.axis_index_groups = {{0, 1, 2, 3}, {4, 5, 6, 7}}});
      });
  CHECK(values_of(twos) == Values(8, 8));
  CHECK(eight({{0, 1}, {2, 3, 4, 5, 6, 7}}) == Values{1, 1, 27, 27, 27, 27, 27, 27});
  const Array again = mapped(kFour, {"x"}, P(), arange({4}), [](Device& d, const Array& x) {
    return psum(d, psum(d, x, "x"), "x");
  });
  CHECK(values_of(again) == Values{24});
}

// JAX sums in the integer type, and divides that.
TEST_CASE("a mean of integers divides the sum, which wraps") {
  const Mesh two = Mesh::parse("x=2");
  const auto mean = [&](const Array& x, const SumOptions& sum = {}) {
    const Array out = mapped(two, {"x"}, P(), x, [&](Device& d, const Array& mine) {
      return pmean(d, mine, "x", {.sum = sum});
    });
    CHECK(out.dtype() == DType::kF32);
    return values_of(out);
  };
  const Array x = array_of({4}, {100, 1, 100, 2}, DType::kI8);
  CHECK(mean(x) == Values{-28, 1.5});
  CHECK(mean(x, {.accumulate = DType::kI32}) == Values{100, 1.5});
  CHECK(mean(array_of({2}, {200, 100}, DType::kU8)) == Values{22});
  CHECK(mean(array_of({2}, {2147483520, 2147483520}, DType::kI32)) == Values{-128});
  // 64 bits: more than a float holds before the terms cancel.
  CHECK(mean(array_of({2}, {4611686018427387904, -4611686018427387904}, DType::kI64)) == Values{0});
  const auto typed = [](Tracer&, const Value& v) { return pmean(v, "x"); };
  const auto f = shard_map(two, {.in_specs = {P{"x"}}, .out_specs = {P()}}, typed);
  CHECK(values_of(f(x)) == Values{-28, 1.5});
}

TEST_CASE("behaviour 29: pbroadcast") {
  const Array out =
      mapped(kEight, {"x"}, {"x"}, array_of({8}, Values(8, 4)), [](Device& d, const Array& x) {
        const Array mine = d.index() == 0 ? array_of({1}, {x.at(0) + 1}) : x;
        return pbroadcast(d, mine, "x", 0);
      });
  CHECK(values_of(out) == Values(8, 5));
}

TEST_CASE("behaviour 69: a mean over both axes of the first elements of each block") {
  const auto body = [](Device& d, const Array& x) {
    Array first(DType::kF32, Extents{4});
    std::copy_n(x.elements<float>().begin(), 4, first.mutable_elements<float>().begin());
    return pmean(d, first, axes("x", "y"));
  };
  const auto mean =
      shard_map(Mesh::parse("x=2,y=4"), {.in_specs = P{axes("x", "y")}, .out_specs = P()}, body);
  CHECK(values_of(mean(arange({512}))) == Values{224, 225, 226, 227});
}

TEST_CASE("behaviour 70: the mean of each block, and rows rolled within each block") {
  const Mesh mesh = Mesh::parse("x=4,y=2");
  const Array a = arange({512, 8});
  const auto mean = shard_map(
      mesh, {.in_specs = P{"x", "y"}, .out_specs = P{"x", "y"}}, [](Device&, const Array& x) {
        double sum = 0;
        for (const float v : x.elements<float>()) sum += v;
        Array out(DType::kF32, Extents{1, 1});
        out.mutable_elements<float>()[0] = static_cast<float>(sum / static_cast<double>(x.size()));
        return out;
      });
  Values means;
  for (Index x = 0; x < 4; ++x) {
    for (Index y = 0; y < 2; ++y) {  // reshape(4, 128, 2, 4).mean((1, 3))
      double sum = 0;
      for (Index r = 0; r < 128; ++r) {
        for (Index c = 0; c < 4; ++c) sum += a.at((x * 128 + r) * 8 + y * 4 + c);
      }
      means.push_back(sum / 512);
    }
  }
  CHECK(values_of(mean(a)) == means);

  const Index shift = 5;
  const auto roll = shard_map(
      mesh, {.in_specs = P{"x", "y"}, .out_specs = P{"x", "y"}}, [](Device&, const Array& x) {
        const Index rows = x.extent(0), columns = x.extent(1);
        Array out(DType::kF32, Extents{rows, columns});
        for (Index i = 0; i < x.size(); ++i) {
          const Index to = (i / columns + shift) % rows * columns;
          out.mutable_elements<float>()[static_cast<std::size_t>(to + i % columns)] =
              static_cast<float>(x.at(i));
        }
        return out;
      });
  const Array rolled = roll(a);
  for (Index i = 0; i < a.size(); ++i) {
    const Index block = i / 8 / 128, row = i / 8 % 128;
    REQUIRE(rolled.at((block * 128 + (row + shift) % 128) * 8 + i % 8) == a.at(i));
  }
}

}  // namespace
}  // namespace kref
