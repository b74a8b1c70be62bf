// SPDX-License-Identifier: Apache-2.0
#include "sharding/shard_map.h"

#include <doctest/doctest.h>

#include <atomic>

#include "sharding/collective_calls.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// A scalar s32 as an array of rank `rank`.
Array number(Index value, std::size_t rank = 0) {
  Array out(DType::kI32, std::vector<Index>(rank, 1));
  out.mutable_elements<std::int32_t>()[0] = static_cast<std::int32_t>(value);
  return out;
}

// x + add, elementwise.
Array plus(const Array& x, float add) {
  Array out = Array::unwritten(DType::kF32, x.shape());
  const auto from = x.elements<float>();
  const auto to = out.mutable_elements<float>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + add;
  return out;
}

TEST_CASE("behaviour 1: the identity gives back the same blocks") {
  const Mesh mesh = Mesh::parse("x=2,y=2,z=2");
  const P spec{"z", axes("x", "y")};
  std::atomic<int> seen{0};
  const auto body = [&](Device&, const Array& x) {
    if (shape_of(x) == std::vector<Index>{4, 2}) ++seen;
    return x;
  };
  const Array x = iota({8, 8});
  const Array y = shard_map(mesh, {.in_specs = {spec}, .out_specs = {spec}}, body)(x);
  CHECK(seen == 8);
  CHECK(shape_of(y) == std::vector<Index>{8, 8});
  CHECK(values(y) == values(x));
  CHECK(y.data() != x.data());
}

// Block number of a device along a dimension, by JAX's words: the first name is the major one.
Index block_of(const std::vector<std::string>& names, const Mesh& mesh, Index device) {
  Index block = 0, rest = device;
  std::vector<Index> at(mesh.axes().size());
  for (std::size_t k = at.size(); k-- > 0;) {
    at[k] = rest % mesh.axes()[k].size;
    rest /= mesh.axes()[k].size;
  }
  for (const std::string& name : names) {
    for (std::size_t k = 0; k < at.size(); ++k) {
      if (mesh.axes()[k].name == name) block = block * mesh.axes()[k].size + at[k];
    }
  }
  return block;
}

TEST_CASE("behaviour 2: arguments are cut, and results put together, as the specs say") {
  const Mesh mesh = Mesh::parse("x=2,y=3,z=2");
  const std::vector<P> specs = {P(),
                                P{"x"},
                                P{none, "y"},
                                P{axes("x", "y")},
                                P{axes("y", "x"), "z"},
                                P{"z", axes("y", "x")},
                                P{axes("z", "y", "x")},
                                P{none, axes("x", "z", "y")}};
  const std::vector<Index> shape{12, 24};
  const Array x = iota(shape);
  for (const P& in : specs) {
    for (const P& out : specs) {
      // Each device adds 1000 times its number, so that the result shows who wrote what.
      const auto body = [&](Device& device, const Array& block) {
        return plus(block, 1000.0f * static_cast<float>(device.index()));
      };
      const Array y = shard_map(mesh, {.in_specs = {in}, .out_specs = {out}}, body)(x);
      std::vector<Index> local(2), whole(2);
      for (std::size_t d = 0; d < 2; ++d) {
        local[d] = shape[d];
        for (const std::string& axis : in[d]) local[d] /= mesh.size(axis);
        whole[d] = local[d];
        for (const std::string& axis : out[d]) whole[d] *= mesh.size(axis);
      }
      REQUIRE(shape_of(y) == whole);
      Index wrong = 0, found = 0;
      for (Index flat = 0; flat < y.size(); ++flat) {
        const std::vector<Index> at = unravel(flat, whole);
        // The lowest device whose block this is.
        for (Index device = 0; device < mesh.device_count(); ++device) {
          std::vector<Index> from(2);
          bool owns = true;
          for (std::size_t d = 0; d < 2; ++d) {
            const std::vector<std::string> o(out[d].begin(), out[d].end());
            const std::vector<std::string> i(in[d].begin(), in[d].end());
            owns = owns && block_of(o, mesh, device) == at[d] / local[d];
            from[d] = block_of(i, mesh, device) * local[d] + at[d] % local[d];
          }
          if (!owns) continue;
          ++found;
          wrong += y.at(flat) != static_cast<double>(ravel(from, shape) + 1000 * device);
          break;
        }
      }
      CHECK(found == y.size());
      CHECK_MESSAGE(wrong == 0, to_string(in), " -> ", to_string(out));
    }
  }
}

TEST_CASE("behaviour 6: axis_index over two axes, put together by both, counts up") {
  const Mesh mesh = Mesh::parse("i=4,j=2");
  const auto body = [](Device& device) { return number(device.axis_index(axes("i", "j")), 2); };
  const Array y = shard_map(mesh, {.out_specs = {P{"i", "j"}}}, body)();
  CHECK(shape_of(y) == std::vector<Index>{4, 2});
  CHECK(values(y) == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("behaviour 7: a rotation over two axes counts them as one, the first major") {
  const Mesh mesh = Mesh::parse("x=2,y=2,z=2");
  const P all{axes("x", "y", "z")};
  const auto rotate = [](const SpecEntry& names, Index n) {
    return [names, n](Device& device, const Array& x) {
      std::vector<std::pair<Index, Index>> perm;
      for (Index i = 0; i < n; ++i) perm.emplace_back(i, (i + 1) % n);
      return ppermute(device, x, names, perm);
    };
  };
  const Array x = iota({8});
  const auto over_xy = rotate(axes("x", "y"), 4), over_yz = rotate(axes("y", "z"), 4);
  // Block i of (x, y) goes to (i + 2) % 8 of the flat numbers, z staying; of (y, z) to its half's
  // next.
  const Array xy = shard_map(mesh, {.in_specs = {all}, .out_specs = {all}}, over_xy)(x);
  const Array yz = shard_map(mesh, {.in_specs = {all}, .out_specs = {all}}, over_yz)(x);
  for (Index i = 0; i < 8; ++i) {
    CHECK(xy.at((i + 2) % 8) == static_cast<double>(i));
    CHECK(yz.at(4 * (i / 4) + (i + 1) % 4) == static_cast<double>(i));
  }
}

TEST_CASE("behaviour 8: along an axis that no spec names the first device counts") {
  const Mesh mesh = Mesh::parse("i=8");
  const auto body = [](Device& device) { return number(device.axis_index("i"), 1); };
  const Array y = shard_map(mesh, {.out_specs = {P()}}, body)();
  CHECK(values(y) == std::vector<double>{0});
  const auto twice = [](Device& device, const Array& x) {
    return plus(x, static_cast<float>(device.axis_index("i")));
  };
  const Array z = shard_map(mesh, {.in_specs = {P{}}, .out_specs = {P{}}}, twice)(iota({4}));
  CHECK(values(z) == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("contiguous blocks and whole arrays are viewed where they lie, others are copied") {
  const Mesh mesh = Mesh::parse("X=4");
  const Array x = iota({8, 4}), w = iota({3}), c = iota({2, 8});
  std::atomic<int> rows{0}, whole{0}, columns{0};
  const auto body = [&](Device& device, const Array& a, const Array& b, const Array& d) {
    const auto* at = static_cast<const float*>(x.data()) + device.index() * 8;
    if (a.data() == at) ++rows;
    if (b.data() == w.data()) ++whole;
    if (d.at(1) == static_cast<double>(2 * device.index() + 1) &&
        d.at(3) == static_cast<double>(8 + 2 * device.index() + 1)) {
      ++columns;
    }
  };
  shard_map(mesh, {.in_specs = {P{"X"}, P(), P{none, "X"}}}, body)(x, w, c);
  CHECK(rows == 4);
  CHECK(whole == 4);
  CHECK(columns == 4);
}

TEST_CASE("bodies take and return views, tensors, tuples and lists") {
  const Mesh mesh = Mesh::parse("X=2");
  Tensor<float, 2> x({4, 3});
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c < 3; ++c) x(r, c) = static_cast<float>(10 * r + c);
  }
  const auto doubled = [](Device&, Ref<const float, 2> a) {
    Tensor<float, 2> out(a.extents());
    for (Index r = 0; r < a.extent(0); ++r) {
      for (Index c = 0; c < a.extent(1); ++c) out(r, c) = 2 * a(r, c);
    }
    return out;
  };
  const Array y = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, doubled)(x);
  CHECK(y.dtype() == DType::kF32);
  CHECK(values(y) == std::vector<double>{0, 2, 4, 20, 22, 24, 40, 42, 44, 60, 62, 64});

  const auto pair = [](Device& device, const Array& a) {
    return std::pair(a, number(device.index(), 1));
  };
  const auto [same, numbers] =
      shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}, P{"X"}}}, pair)(x);
  CHECK(same.extent(0) == 4);
  CHECK(values(numbers) == std::vector<double>{0, 1});

  const auto triple = [](Device& device, const Array& a) {
    return std::tuple(number(device.index()), a, number(7));
  };
  const auto three =
      shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P(), P{none, "X"}, P()}}, triple)(x);
  CHECK(shape_of(std::get<1>(three)) == std::vector<Index>{2, 6});
  CHECK(std::get<2>(three).at(0) == 7);

  const auto any = [](Device&, std::span<const Array> all) {
    return std::vector<Array>(all.rbegin(), all.rend());
  };
  const std::vector<Array> back =
      shard_map(mesh, {.in_specs = P{"X"}, .out_specs = {P{"X"}, P{"X"}}}, any)(x, iota({2}));
  REQUIRE(back.size() == 2);
  CHECK(values(back[0]) == std::vector<double>{0, 1});
  CHECK(shape_of(back[1]) == std::vector<Index>{4, 3});
}

TEST_CASE("an unreduced axis is a leading dimension: each device has its own term") {
  const Mesh mesh = Mesh::parse("X=2,Y=3");
  const Placement terms(P{"X"}, {.unreduced = {"Y"}});
  const auto body = [](Device& device, const Array& x) {
    return plus(x, 100.0f * static_cast<float>(device.axis_index("Y")));
  };
  const Array y = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {terms}}, body)(iota({4}));
  CHECK(shape_of(y) == std::vector<Index>{3, 4});
  CHECK(values(y) == std::vector<double>{0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203});
  const Array z = shard_map(mesh, {.in_specs = {terms}, .out_specs = {terms}}, body)(y);
  CHECK(values(z) == std::vector<double>{0, 1, 2, 3, 200, 201, 202, 203, 400, 401, 402, 403});
}

TEST_CASE("scalars, empty arrays and any element type pass") {
  const Mesh mesh = Mesh::parse("X=3");
  const auto same = [](Device&, const Array& x) { return x; };
  for (const DType type : {DType::kBF16, DType::kI8, DType::kF64, DType::kBool}) {
    const Array x = iota({6, 1, 2}, 0, type);
    const auto f = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, same);
    CHECK(values(f(x)) == values(x));
    CHECK(f(x).dtype() == type);
  }
  const auto replicated = shard_map(mesh, {.in_specs = {P()}, .out_specs = {P()}}, same);
  CHECK(replicated(iota({}, 5)).at(0) == 5);
  CHECK(shape_of(replicated(iota({0, 4}))) == std::vector<Index>{0, 4});
  const auto cut = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{none, "X"}}}, same);
  CHECK(shape_of(cut(iota({0, 4}))) == std::vector<Index>{0, 12});
}

TEST_CASE("arrays that live on the mesh go in and come out without being copied") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const Array w = iota({4, 2});
  const Sharded weights = shard(mesh, w, P{"X"});
  std::atomic<int> in_place{0};
  const auto body = [&](Device& device, const Array& a, const Array& x) {
    if (a.data() == weights.block(device.index()).data()) ++in_place;
    return std::pair(a, plus(x, 1));
  };
  const auto f =
      shard_map(mesh, {.in_specs = {P{"X"}, P{"Y"}}, .out_specs = {P{"X"}, P{none, "Y"}}}, body);
  const auto [same, next] = f(weights, iota({2, 2}));
  CHECK(in_place == 4);
  CHECK(values(same) == values(w));
  CHECK(values(next) == std::vector<double>{1, 2, 3, 4});
  const std::vector<Sharded> kept = f.sharded(weights, iota({2, 2}));
  REQUIRE(kept.size() == 2);
  CHECK(kept[0].block(3).data() == weights.block(3).data());
  CHECK(kept[1].type() == "f32[1,4@Y]");
  CHECK(values(unshard(kept[1])) == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("results that stay on the mesh do not view an argument that nobody keeps") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto same = [](Device&, const Array& x) { return x; };
  const auto f = shard_map(mesh, {.in_specs = {P{"X"}}, .out_specs = {P{"X"}}}, same);
  Tensor<float, 1> x({4});
  for (Index i = 0; i < 4; ++i) x.data()[i] = static_cast<float>(i);
  const std::vector<Sharded> kept = f.sharded(x);
  std::fill_n(x.data(), 4, -1.0f);
  CHECK(values(unshard(kept[0])) == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("64 devices take part on any number of cores") {
  const Mesh mesh = Mesh::parse("X=8,Y=8");
  const auto body = [](Device& device, const Array& x) {
    return psum(device, all_gather(device, x, "X", {.tiled = true}), "Y");
  };
  const P spec{axes("Y", "X")};
  const Array y = shard_map(mesh, {.in_specs = {spec}, .out_specs = {P()}}, body)(iota({64}));
  std::vector<double> expected;
  for (Index i = 0; i < 8; ++i) expected.push_back(static_cast<double>(8 * i + 8 * 28));
  CHECK(values(y) == expected);
}

}  // namespace
}  // namespace kref
