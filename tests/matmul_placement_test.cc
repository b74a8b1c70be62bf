// SPDX-License-Identifier: Apache-2.0
#include "sharding/matmul_placement.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/refusal.h"

namespace kref {
namespace {

using Ranges = std::vector<ContractionRange>;
using Indices = std::vector<Index>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("one mesh axis: every placement of it, legal or not") {
  const Mesh mesh = Mesh::parse("X=2");
  const MatmulShape shape{.m = 4, .n = 6, .k = 8};
  const auto place = [&](char x, char y, char z) {
    const P xs = x == 'm' ? P{"X"} : x == 'k' ? P{none, "X"} : P{};
    const P ys = y == 'k' ? P{"X"} : y == 'n' ? P{none, "X"} : P{};
    OutSpec zs{z == 'm' ? P{"X"} : z == 'n' ? P{none, "X"} : P{}, {}};
    if (z == 'u') zs.unreduced = {"X"};
    return place_matmul(mesh, shape, xs, ys, zs);
  };
  const struct {
    char x, y;
    int which;          // the case, when z is one of:
    const char* legal;  // - replicated, m rows, n columns, u unreduced
  } cases[] = {
      {'-', '-', 1, "-mn"}, {'-', 'k', 2, "-mn"},  {'-', 'n', 1, "n"},
      {'m', '-', 1, "m"},   {'m', 'k', 2, "mn"},   {'m', 'n', 4, "mn"},
      {'k', '-', 2, "-mn"}, {'k', 'k', 3, "-mnu"}, {'k', 'n', 2, "mn"},
  };
  for (const auto& c : cases) {
    for (const char z : {'-', 'm', 'n', 'u'}) {
      CAPTURE(c.x);
      CAPTURE(c.y);
      CAPTURE(z);
      // Free dimensions that trade places: one is gathered, which is case 4.
      const bool moved =
          (c.x == 'm' && c.y == '-' && z == 'n') || (c.x == '-' && c.y == 'n' && z == 'm');
      if (std::string(c.legal).find(z) != std::string::npos) {
        CHECK(static_cast<int>(place(c.x, c.y, z).which) == c.which);
      } else if (moved) {
        CHECK(place(c.x, c.y, z).which == MatmulCase::kFreeConflict);
      } else {
        CHECK(has(refusal([&] { place(c.x, c.y, z); }),
                  z == 'u' ? "does not shard the contracting dimension of both"
                           : "the result is not gathered, expected 'X' in out_specs.z"));
      }
    }
  }
}

// The lines of to_string without the first.
std::vector<std::string> steps(const MatmulPlacement& placement) {
  std::vector<std::string> out;
  for (const MatmulStep& step : placement.steps) out.push_back(to_string(step));
  return out;
}

TEST_CASE("what each device does, in the cases of the book") {
  using Steps = std::vector<std::string>;
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const MatmulShape shape{.m = 8, .n = 12, .k = 32};
  const auto place = [&](const P& x, const P& y, const OutSpec& z) {
    return place_matmul(mesh, shape, x, y, z);
  };
  // Case 1: nothing to do.
  CHECK(steps(place({"X"}, {none, "Y"}, {P{"X", "Y"}, {}})) == Steps{"multiply"});
  // FSDP: the weight is gathered.
  const MatmulPlacement fsdp = place({"X"}, {"X"}, {P{"X"}, {}});
  CHECK(steps(fsdp) == Steps{"all_gather y along contraction over X", "multiply"});
  CHECK(to_string(fsdp) ==
        "case 2 (contraction sharded on one side)\n"
        "  all_gather y along contraction over X\n"
        "  multiply [4,32] by [32,12]");
  // Half of tensor parallelism: the activations are gathered.
  CHECK(steps(place({"X", "Y"}, {none, "Y"}, {P{"X", "Y"}, {}})) ==
        Steps{"all_gather x along contraction over Y", "multiply"});
  // Case 3: reduced, scattered, kept.
  const P xk{"X", "Y"}, yk{"Y"};
  CHECK(steps(place(xk, yk, {P{"X"}, {}})) == Steps{"multiply", "psum z over Y"});
  CHECK(steps(place(xk, yk, {P{axes("X", "Y")}, {}})) ==
        Steps{"multiply", "psum_scatter z along rows over Y"});
  CHECK(steps(place(xk, yk, {P{"X", "Y"}, {}})) ==
        Steps{"multiply", "psum_scatter z along columns over Y"});
  CHECK(steps(place(xk, yk, {P{"X"}, {"Y"}})) == Steps{"multiply", "keep the partial sums over Y"});
  const P both_x{none, axes("X", "Y")}, both_y{axes("X", "Y")};
  CHECK(steps(place(both_x, both_y, {P{none, "Y"}, {}})) ==
        Steps{"multiply", "psum z over X", "psum_scatter z along columns over Y"});
  CHECK(steps(place(both_x, both_y, {P{"X"}, {"Y"}})) ==
        Steps{"multiply", "psum_scatter z along rows over X", "keep the partial sums over Y"});
  // Case 4: z says which of the two is gathered.
  CHECK(steps(place({"X"}, {none, "X"}, {P{"X"}, {}})) ==
        Steps{"all_gather y along columns over X", "multiply"});
  CHECK(steps(place({"X"}, {none, "X"}, {P{none, "X"}, {}})) ==
        Steps{"all_gather x along rows over X", "multiply"});
  // What is whole is sliced for free; once z is scattered, it is z that is sliced.
  CHECK(steps(place({}, {}, {P{"X"}, {}})) == Steps{"slice x along rows over X", "multiply"});
  CHECK(steps(place({none, "Y"}, {"Y"}, {P{axes("X", "Y")}, {}})) ==
        Steps{"slice x along rows over X", "multiply", "psum_scatter z along rows over Y"});
  CHECK(steps(place({none, "Y"}, {"Y"}, {P{axes("Y", "X")}, {}})) ==
        Steps{"multiply", "psum_scatter z along rows over Y", "slice z along rows over X"});
  CHECK(steps(place(both_x, both_y, {P{axes("Y", "X")}, {}})) ==
        Steps{"multiply", "psum_scatter z along rows over (Y,X)"});
}

TEST_CASE("case 2 with the whole operand sliced: partial sums in place of a gather") {
  using Steps = std::vector<std::string>;
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const MatmulShape shape{.m = 8, .n = 12, .k = 32};
  const auto place = [&](const P& x, const P& y, const OutSpec& z) {
    return place_matmul(mesh, shape, x, y, z, OneSidedK::kSlice);
  };
  const MatmulPlacement summed = place({none, "X"}, {}, {});
  CHECK(to_string(summed) ==
        "case 2 (contraction sharded on one side)\n"
        "  slice y along contraction over X\n"
        "  multiply [8,16] by [16,12]\n"
        "  psum z over X");
  CHECK(contraction_parts(summed) == std::vector<Ranges>{{{0, 16}, {16, 32}}});
  CHECK(
      steps(place({"X"}, {"Y"}, {P{"X", "Y"}, {}})) ==
      Steps{"slice x along contraction over Y", "multiply", "psum_scatter z along columns over Y"});
  const MatmulPlacement kept = place({}, {"Y"}, {P{"X"}, {"Y"}});
  CHECK(steps(kept) == Steps{"slice x along contraction over Y", "slice x along rows over X",
                             "multiply", "keep the partial sums over Y"});
  CHECK(kept.output_shape() == Indices{4, 8, 12});
  // The other cases do not change.
  const OutSpec rows{P{"X"}, {}};
  CHECK(place({"X"}, {}, rows).steps == place_matmul(mesh, shape, {"X"}, {}, rows).steps);
  CHECK(place({"X", "Y"}, {"Y"}, rows).steps ==
        place_matmul(mesh, shape, {"X", "Y"}, {"Y"}, rows).steps);
  // What is sharded over the axis elsewhere can not be sliced over it.
  CHECK(refusal([&] {
          place({none, "X"}, {none, "X"}, {P{"X"}, {}});
        }) ==
        "y is sharded over 'X', so that its contracting dimension can not be sliced over it "
        "(in_specs.x P(None, 'X'), in_specs.y P(None, 'X')); gather the other side");
}

TEST_CASE("stored transposes and batches") {
  const Mesh mesh = Mesh::parse("X=2,Y=2,Z=2");
  MatmulShape shape{.batch = {4}, .m = 6, .n = 10, .k = 8};
  CHECK(shape.x() == Indices{4, 6, 8});
  CHECK(shape.y() == Indices{4, 8, 10});
  const MatmulPlacement batched =
      place_matmul(mesh, shape, {"X", "Y"}, {"X", none, "Z"}, {P{"X", "Y", "Z"}, {}});
  CHECK(batched.which == MatmulCase::kNoContraction);
  CHECK(batched.local.x() == Indices{2, 3, 8});
  CHECK(batched.local.y() == Indices{2, 8, 5});

  shape.shared_y = true;
  CHECK(shape.y() == Indices{8, 10});
  const MatmulPlacement shared = place_matmul(mesh, shape, {"X", none, "Y"}, {"Y"}, {P{"X"}, {}});
  CHECK(shared.which == MatmulCase::kBothSides);
  CHECK(shared.contraction == std::vector<std::string>{"Y"});
  CHECK(shared.local.x() == Indices{2, 6, 4});
  CHECK(shared.local.y() == Indices{4, 10});
  // A batch dimension against the columns of a shared y.
  CHECK(place_matmul(mesh, shape, {"X"}, {none, "X"}, {P{none, none, "X"}, {}}).which ==
        MatmulCase::kFreeConflict);

  const MatmulShape turned{.m = 9, .n = 12, .k = 16, .trans_x = true, .trans_y = true};
  CHECK(turned.x() == Indices{16, 9});
  CHECK(turned.y() == Indices{12, 16});
  const Mesh odd = Mesh::parse("X=3,Y=2");
  const MatmulPlacement t = place_matmul(odd, turned, {"Y", "X"}, {none, "Y"}, {P{"X"}, {}});
  CHECK(t.which == MatmulCase::kBothSides);
  CHECK(t.local.x() == Indices{8, 3});
  CHECK(t.local.y() == Indices{12, 8});
}

TEST_CASE("parts of the contraction, in the order in which they are added") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const MatmulShape shape{.m = 8, .n = 12, .k = 32};
  const P x{none, axes("X", "Y")}, y{axes("X", "Y")};
  const auto parts = [&](const OutSpec& z) {
    return contraction_parts(place_matmul(mesh, shape, x, y, z));
  };
  const std::vector<Ranges> whole = parts({P{}, {}});
  REQUIRE(whole.size() == 1);
  CHECK(whole[0] ==
        Ranges{{0, 4}, {4, 8}, {8, 12}, {12, 16}, {16, 20}, {20, 24}, {24, 28}, {28, 32}});
  // A partial sum along Y adds one block of each X, which do not lie side by side.
  CHECK(parts({P{"X"}, {"Y"}}) ==
        std::vector<Ranges>{
            {{0, 4}, {16, 20}}, {{4, 8}, {20, 24}}, {{8, 12}, {24, 28}}, {{12, 16}, {28, 32}}});
  const std::vector<Ranges> each = parts({P{}, {"Y", "X"}});
  REQUIRE(each.size() == 8);
  CHECK(each[0] == Ranges{{0, 4}});    // Y=0, X=0
  CHECK(each[1] == Ranges{{16, 20}});  // Y=0, X=1
  CHECK(each[2] == Ranges{{4, 8}});
  const MatmulPlacement placed = place_matmul(mesh, shape, x, y, {P{}, {"Y", "X"}});
  CHECK(placed.output_shape() == Indices{4, 2, 8, 12});
  CHECK(placed.contraction_range(mesh.device(Indices{1, 2})) == ContractionRange{24, 28});

  // Gathered or whole: one sum, the bits of the unsharded product.
  const std::vector<Ranges> one{{{0, 32}}};
  CHECK(contraction_parts(place_matmul(mesh, shape, {"X"}, {"X"}, {P{"X"}, {}})) == one);
  CHECK(contraction_parts(place_matmul(mesh, shape, {}, {}, {})) == one);
  // Nothing to sum, in four empty parts.
  const MatmulShape empty{.m = 8, .n = 12, .k = 0};
  CHECK(contraction_parts(place_matmul(mesh, empty, {none, "Y"}, {"Y"}, {})) ==
        std::vector<Ranges>{{{0, 0}, {0, 0}, {0, 0}, {0, 0}}});
}

TEST_CASE("illegal placements are refused by name") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const MatmulShape shape{.m = 8, .n = 16, .k = 16};
  const auto message = [&](const P& x, const P& y, const OutSpec& z) {
    return refusal([&] { place_matmul(mesh, shape, x, y, z); });
  };
  CHECK(message({none, "X"}, {"Y"}, {}) ==
        "contracting dimensions sharded over different axes, X and Y (in_specs.x P(None, "
        "'X'), in_specs.y P('Y')); gather one side first");
  CHECK(has(message({none, "X"}, {"Y"}, {P{"X"}, {}}), "different axes, X and Y"));
  CHECK(has(message({none, axes("X", "Y")}, {"X"}, {}), "different axes, (X,Y) and X"));
  CHECK(has(message({none, axes("X", "Y")}, {axes("Y", "X")}, {}),
            "the same axes in different orders, (X,Y) and (Y,X)"));
  CHECK(has(message({none, "Y"}, {}, {P{}, {"Y"}}), "unreduced over 'Y', which does not shard"));
  CHECK(has(message({"X", "Y"}, {"Y"}, {P{}, {"X"}}), "unreduced over 'X'"));
  CHECK(has(message({"X"}, {none, "Y"}, {P{"X"}, {}}),
            "out_specs.z: P('X') shards columns over none, but in_specs.x P('X'), in_specs.y "
            "P(None, 'Y') shard them over Y: the result is not gathered"));
  CHECK(has(message({"X", "Y"}, {"Y"}, {P{axes("Y", "X")}, {}}),
            "the axes that an operand brings come first"));
  // Each spec by itself.
  CHECK(has(message({"Q"}, {}, {}), "in_specs.x: spec P('Q') names axis 'Q'"));
  CHECK(has(message({}, {none, none, "X"}, {}), "in_specs.y"));
  CHECK(has(message({}, {}, {P{}, {"Q"}}), "out_specs.z"));

  MatmulShape batched{.batch = {4, 4}, .m = 8, .n = 16, .k = 16};
  CHECK(has(refusal([&] {
              place_matmul(mesh, batched, {none, "X"}, {none, "Y"}, {});
            }),
            "batch dimension 1 is sharded over X in x and over Y in y"));
  CHECK(has(refusal([&] {
              place_matmul(mesh, batched, {"X"}, {"X"}, {P{none, "X"}, {}});
            }),
            "a batch dimension of both operands keeps its axes"));
  batched.batch = {1, 1, 1};
  const P k4{none, none, none, none, axes("X", "Y")}, k3{none, none, none, axes("X", "Y")};
  CHECK(has(refusal([&] {
              place_matmul(mesh, batched, k4, k3, {P{}, {"X", "Y"}});
            }),
            "gives z the rank 7, expected at most 6"));
}

}  // namespace
}  // namespace kref
