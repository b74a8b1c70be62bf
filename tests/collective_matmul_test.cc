// SPDX-License-Identifier: Apache-2.0
// Behaviours 68 and 71: products round a ring are the plain product, exactly on integers.
#include "sharding/collective_matmul.h"

#include <doctest/doctest.h>

#include "sharding/collective_calls.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

// [rows, columns] of the product of x [m, k] and y [k, n] by plain loops.
std::vector<double> plain(const Array& x, const Array& y) {
  const Index m = x.extent(0), depth = x.extent(1), n = y.extent(1);
  std::vector<double> out;
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      double sum = 0;
      for (Index k = 0; k < depth; ++k) sum += x.at(i * depth + k) * y.at(k * n + j);
      out.push_back(sum);
    }
  }
  return out;
}

Array transpose(const Array& x) {
  const Index rows = x.extent(0), columns = x.extent(1);
  Array out(x.dtype(), std::vector<Index>{columns, rows});
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      out.mutable_elements<float>()[static_cast<std::size_t>(j * rows + i)] =
          static_cast<float>(x.at(i * columns + j));
    }
  }
  return out;
}

struct Case {
  RingTraveller traveller;
  const char *mesh, *axis;
  MatmulSpecs specs;
};

// Every form alone on its axis, and beside other axes that shard, gather and sum as well.
std::vector<Case> cases() {
  using T = RingTraveller;
  std::vector<Case> out;
  for (const char* mesh : {"X=1", "X=2", "X=3", "X=4"}) {
    out.push_back({T::kXContraction, mesh, "X", {P{none, "X"}, P{none, "X"}, {P{none, "X"}, {}}}});
    out.push_back({T::kYContraction, mesh, "X", {P{"X"}, P{"X"}, {P{"X"}, {}}}});
    out.push_back({T::kXRows, mesh, "X", {P{"X"}, P{none, "X"}, {P{none, "X"}, {}}}});
    out.push_back({T::kYColumns, mesh, "X", {P{"X"}, P{none, "X"}, {P{"X"}, {}}}});
    out.push_back({T::kZRows, mesh, "X", {P{none, "X"}, P{"X"}, {P{"X"}, {}}}});
    out.push_back({T::kZColumns, mesh, "X", {P{none, "X"}, P{"X"}, {P{none, "X"}, {}}}});
  }
  for (const char* mesh : {"X=2,Y=3", "Y=3,X=2"}) {
    out.push_back({T::kXContraction, mesh, "Y", {P{"X", "Y"}, P{none, "Y"}, {P{"X", "Y"}, {}}}});
    // x's rows are gathered over X first, y's columns sliced over it.
    out.push_back({T::kXContraction, mesh, "Y", {P{"X", "Y"}, P{}, {P{none, "X"}, {}}}});
    out.push_back({T::kYContraction, mesh, "Y", {P{"Y"}, P{"Y", "X"}, {P{"Y", "X"}, {}}}});
    out.push_back({T::kXRows, mesh, "Y", {P{axes("X", "Y")}, P{none, "Y"}, {P{"X", "Y"}, {}}}});
    // Partial sums over X behind the ring over Y: summed, scattered, kept.
    out.push_back({T::kXRows, mesh, "Y", {P{"Y", "X"}, P{"X", "Y"}, {P{none, "Y"}, {}}}});
    out.push_back({T::kXRows, mesh, "Y", {P{"Y", "X"}, P{"X", "Y"}, {P{"X", "Y"}, {}}}});
    const P both{none, axes("X", "Y")}, rows{axes("X", "Y")};
    out.push_back({T::kZRows, mesh, "Y", {both, rows, {P{"Y"}, {}}}});
    out.push_back({T::kZColumns, mesh, "Y", {both, rows, {P{"X", "Y"}, {}}}});
    out.push_back({T::kZRows, mesh, "Y", {both, rows, {P{axes("Y", "X")}, {}}}});
    out.push_back({T::kXContraction, mesh, "X", {P{none, axes("X", "Y")}, P{}, {P{}, {}}}});
    out.push_back({T::kZRows, mesh, "X", {P{"Y", "X"}, P{"X"}, {P{axes("Y", "X")}, {}}}});
  }
  return out;
}

TEST_CASE("integers give the plain product, whatever goes round, in one direction and in both") {
  for (const Case& c : cases()) {
    const Mesh mesh = Mesh::parse(c.mesh);
    // Blocks of x's rows, of the contraction and of y's columns are odd on some of the meshes.
    for (const auto& [m, k, n] : {std::array<Index, 3>{12, 24, 36}, {18, 12, 12}}) {
      if (m % mesh.size(c.axis) != 0) continue;
      for (const DType type : {DType::kF32, DType::kI8, DType::kBF16}) {
        const Array x = mixed({m, k}, 1, type), y = mixed({k, n}, 2, type);
        for (const RingDirection direction : {RingDirection::kOne, RingDirection::kBoth}) {
          CAPTURE(c.mesh);
          CAPTURE(to_string(c.traveller));
          CAPTURE(name_of(direction));
          const Array z =
              collective_matmul(mesh, c.specs, x, y,
                                {.axis_name = c.axis,
                                 .direction = direction,
                                 .out_dtype = type == DType::kI8 ? DType::kI32 : DType::kF32});
          CHECK(values(z) == plain(x, y));
          const MatmulPlacement placement =
              place_matmul(mesh, {.m = m, .n = n, .k = k}, c.specs.x, c.specs.y, c.specs.z);
          CHECK(plan_ring(placement, c.axis).traveller == c.traveller);
        }
      }
    }
  }
}

TEST_CASE("operands stored transposed") {
  const Mesh mesh = Mesh::parse("X=4");
  const Array x = mixed({8, 16}, 3), y = mixed({16, 12}, 4);
  const struct {
    P x, y, z;
  } all[] = {{P{none, "X"}, P{none, "X"}, P{none, "X"}},
             {P{"X"}, P{"X"}, P{"X"}},
             {P{"X"}, P{none, "X"}, P{none, "X"}},
             {P{"X"}, P{none, "X"}, P{"X"}},
             {P{none, "X"}, P{"X"}, P{"X"}},
             {P{none, "X"}, P{"X"}, P{none, "X"}}};
  const auto swapped = [](const P& spec) { return spec == P{"X"} ? P{none, "X"} : P{"X"}; };
  for (const auto& s : all) {
    for (const RingDirection direction : {RingDirection::kOne, RingDirection::kBoth}) {
      const Array z = collective_matmul(
          mesh, {swapped(s.x), swapped(s.y), {s.z, {}}}, transpose(x), transpose(y),
          {.axis_name = "X", .direction = direction, .trans_x = true, .trans_y = true});
      CHECK(values(z) == plain(x, y));
    }
  }
}

// The loop of 4.1 as a body of one's own; `slip`: as first published, where the chunk of w that a
// step multiplies does not depend on the device.
Array published(const Mesh& mesh, const Array& a, const Array& w, bool slip) {
  const auto body = [slip](Device& device, Ref<const float, 2> lhs_in, Ref<const float, 2> rhs) {
    const Index n = device.axis_size("Y"), me = device.axis_index("Y");
    const Index chunk = lhs_in.extent(1);
    Tensor<float, 2> acc({lhs_in.extent(0), rhs.extent(1)});
    std::fill_n(acc.data(), acc.ref().size(), 0.0f);
    Array lhs(DType::kF32, std::vector<Index>{lhs_in.extent(0), chunk});
    for (Index i = 0; i < lhs_in.extent(0); ++i) {
      for (Index j = 0; j < chunk; ++j) {
        lhs.mutable_elements<float>()[static_cast<std::size_t>(i * chunk + j)] = lhs_in(i, j);
      }
    }
    for (Index i = 0; i < n; ++i) {
      const Index first = (slip ? i : (me + i) % n) * chunk;
      dot_add(lhs.ref().ref<const float, 2>(), rhs.block({first, 0}, {chunk, rhs.extent(1)}),
              acc.ref());
      if (i + 1 < n) lhs = ppermute(device, lhs, "Y", ring(n, -1));
    }
    return acc;
  };
  return shard_map(mesh, {.in_specs = {P{"X", "Y"}, P{none, "Y"}}, .out_specs = P{"X", "Y"}}, body)(
      a, w);
}

TEST_CASE("behaviour 68: the book's product on mesh 2x4, and its first published form") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const Array a = mixed({8, 16}, 9), w = mixed({16, 12}, 10);
  const std::vector<double> right = plain(a, w);
  CHECK(values(published(mesh, a, w, false)) == right);
  const MatmulSpecs specs{P{"X", "Y"}, P{none, "Y"}, {P{"X", "Y"}, {}}};
  CHECK(values(collective_matmul(mesh, specs, a, w, {.axis_name = "Y"})) == right);
  // Without axis_index: right on the devices of index 0 along Y, and there only.
  const Array slipped = published(mesh, a, w, true);
  for (Index y = 0; y < 4; ++y) {
    Index wrong = 0;
    for (Index i = 0; i < 8; ++i) {
      for (Index j = y * 3; j < y * 3 + 3; ++j) {
        wrong += slipped.at(i * 12 + j) != right[static_cast<std::size_t>(i * 12 + j)];
      }
    }
    CHECK((wrong == 0) == (y == 0));
  }
}

TEST_CASE("behaviour 71: the five forms of the JAX documentation, 8x8 by 8x4 over 4") {
  const Mesh mesh = Mesh::parse("i=4");
  const Array lhs = mixed({8, 8}, 11), rhs = mixed({8, 4}, 12);
  for (const RingDirection direction : {RingDirection::kOne, RingDirection::kBoth}) {
    CHECK(values(collective_matmul(
              mesh, {P{"i"}, P{"i"}, {P{"i"}, {}}}, lhs, rhs,
              {.axis_name = "i", .form = MatmulForm::kAllGather, .direction = direction})) ==
          plain(lhs, rhs));
    CHECK(values(collective_matmul(
              mesh, {P{none, "i"}, P{"i"}, {P{"i"}, {}}}, lhs, rhs,
              {.axis_name = "i", .form = MatmulForm::kReduceScatter, .direction = direction})) ==
          plain(lhs, rhs));
  }
}

TEST_CASE("cotangents are collective matmuls too") {
  for (const Case& c : cases()) {
    const Mesh mesh = Mesh::parse(c.mesh);
    if (mesh.axes().size() > 1 && c.specs.z.spec != P{"X", "Y"}) continue;
    const Array x = mixed({12, 24}, 13), y = mixed({24, 36}, 14), ct = mixed({12, 36}, 15);
    const MatmulPlacement placement =
        place_matmul(mesh, {.m = 12, .n = 36, .k = 24}, c.specs.x, c.specs.y, c.specs.z);
    if (mesh.axes().size() > 1 && c.traveller != RingTraveller::kXContraction) continue;
    for (const RingDirection direction : {RingDirection::kOne, RingDirection::kBoth}) {
      const auto cts = collective_matmul_vjp(mesh, c.specs, x, y, ct,
                                             {.axis_name = c.axis, .direction = direction});
      CAPTURE(to_string(placement));
      CHECK(values(cts.first) == plain(ct, transpose(y)));
      CHECK(values(cts.second) == plain(transpose(x), ct));
    }
  }
}

std::string refused(const char* mesh, const P& x, const P& y, const OutSpec& z,
                    const std::string& axis, std::optional<MatmulForm> form = {}) {
  return refusal([&] {
    collective_matmul(Mesh::parse(mesh), {x, y, z}, mixed({12, 24}, 1), mixed({24, 36}, 2),
                      {.axis_name = axis, .form = form});
  });
}

void has(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("what is no ring is refused by name") {
  has(refused("X=4", P{none, "X"}, P{}, {P{}, {}}, "Z"), "unbound axis name 'Z', the mesh has X=4");
  has(refused("X=4", P{"X"}, P{}, {P{"X"}, {}}, "X"),
      "nothing is gathered or scattered over 'X' (the steps are: multiply)");
  has(refused("X=4", P{none, "X"}, P{}, {P{}, {}}, "X", MatmulForm::kReduceScatter),
      "form is reduce_scatter, but these specs gather x's contracting dimension over 'X'");
  has(refused("X=4", P{none, "X"}, P{"X"}, {P{"X"}, {}}, "X", MatmulForm::kAllGather),
      "form is all_gather, but these specs scatter z's rows over 'X', which is reduce_scatter");
  has(refused("X=4", P{none, "X"}, P{"X"}, {P{}, {}}, "X"),
      "the step over 'X' is: psum z over X; expected a gather of x or y, or a scattered z");
  has(refused("X=4", P{}, P{}, {P{"X"}, {}}, "X"), "the step over 'X' is: slice x along rows");
  has(refused("X=2,Y=2", P{none, axes("X", "Y")}, P{}, {P{}, {}}, "Y"),
      "is: all_gather x along contraction over (X,Y); expected 'Y' first");
  has(refused("X=4", P{"X"}, P{"X"}, {P{none, "X"}, {}}, "X"), "more than one step is over 'X'");
  has(refused("X=2,Y=2", P{none, axes("X", "Y")}, P{axes("X", "Y")}, {P{axes("X", "Y")}, {}}, "Y"),
      "expected 'Y' first");
  has(refusal([] {
        collective_matmul(Mesh::parse("X=2"), {}, mixed({2, 2, 4}, 1), mixed({4, 2}, 1),
                          {.axis_name = "X"});
      }),
      "collective matmul of batches [2], expected x [M, K] and y [K, N]");
}

}  // namespace
}  // namespace kref
