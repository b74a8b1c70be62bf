// SPDX-License-Identifier: Apache-2.0
// Numbers in test names are those of sharding_semantics section 9.
#include "sharding/placement.h"

#include <doctest/doctest.h>

#include "tests/refusal.h"

namespace kref {
namespace {

using Indices = std::vector<Index>;
using Names = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Mesh kMesh = Mesh::parse("x=2,y=2,z=2");

TEST_CASE("a placement is printed and read back") {
  const Placement all(P{"x", none}, {.unreduced = {"y"}, .reduced = {"z"}});
  CHECK(to_string(all) == "P('x', None, unreduced={'y'}, reduced={'z'})");
  const Placement top(P{}, {.unreduced = {"x", "y"}, .kind = UnreducedKind::kMax});
  CHECK(to_string(top) == "P(unreduced={'x', 'y'}, unreduced_kind=max)");
  for (const Placement& each : {all, top, Placement(P{axes("y", "x")}), Placement()}) {
    CHECK(Placement::parse(to_string(each)) == each);
  }
  CHECK(Placement::parse("P('x', unreduced_kind='min', reduced={z}, unreduced=('y',))") ==
        Placement(P{"x"}, {.unreduced = {"y"}, .reduced = {"z"}, .kind = UnreducedKind::kMin}));
  CHECK(has(refusal([] { Placement::parse("P(unreduced={'x'}, unreduced_kind=mean)"); }),
            "unreduced_kind is mean, expected sum, max or min"));
  CHECK(
      has(refusal([] { Placement::parse("P(reduced={'x'}, 'y')"); }), "an entry follows reduced="));
  CHECK(has(refusal([] { Placement::parse("P(reduced={x}, reduced={y})"); }), "appears twice"));
  CHECK(has(refusal([] { OutSpec::parse("P('x', reduced={'y'})"); }), "partition spec"));
}

TEST_CASE("two placements are the same up to trailing Nones and the order of sets") {
  CHECK(Placement(P{"x"}, {.unreduced = {"y", "z"}}) ==
        Placement(P{"x", none}, {.unreduced = {"z", "y"}}));
  CHECK_FALSE(Placement(P{"x"}, {.unreduced = {"y"}}) == Placement(P{"x"}, {.reduced = {"y"}}));
  CHECK_FALSE(Placement(P{"x"}) == Placement(P{none, "x"}));
  CHECK_FALSE(Placement(P{}, {.unreduced = {"x"}}) ==
              Placement(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMax}));
}

TEST_CASE("types are printed as JAX prints them, axes in mesh order") {
  const Mesh mesh = Mesh::parse("x=2,y=2,X=2,Y=2,Z=2");
  const Indices shape{8, 4};
  CHECK(type_string(DType::kF32, shape,
                    Placement(P{"X", axes("Y", "Z")}, {.unreduced = {"x"}, .reduced = {"y"}}),
                    mesh) == "f32[8@X,4@(Y,Z)]{U:x, R:y}");
  CHECK(type_string(DType::kBF16, shape, Placement(P{}, {.unreduced = {"Y", "x"}}), mesh) ==
        "bf16[8,4]{U:(x,Y)}");
  CHECK(type_string(DType::kI32, {}, Placement(P{}, {.reduced = {"Z"}}), mesh) == "i32[]{R:Z}");
}

TEST_CASE("replication, and the cotangent's placement") {
  const Placement u(P{"x"}, {.unreduced = {"y"}});
  CHECK(replicated_axes(u, kMesh) == Names{"z"});
  CHECK(cotangent(u) == Placement(P{"x"}, {.reduced = {"y"}}));
  CHECK(cotangent(cotangent(u)) == u);
  CHECK(is_fully_replicated(P{}, kMesh));
  CHECK(is_fully_replicated(Placement(P{}, {.reduced = {"x"}}), kMesh));
  CHECK_FALSE(is_fully_replicated(Placement(P{}, {.unreduced = {"x"}}), kMesh));
  CHECK_FALSE(is_fully_replicated(P{none, "z"}, kMesh));
  CHECK(is_fully_replicated(P{"one"}, Mesh::parse("one=1,x=2")));
  CHECK(has(
      refusal([] { cotangent(Placement(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMin})); }),
      "kind min has no cotangent"));
}

// Every row of sharding_semantics 1.4, and the disjointness of 1.3.
TEST_CASE("3, 4 and 5: a placement that does not fit is refused by JAX's words") {
  const auto message = [](const Placement& placement, Indices shape) {
    return refusal([&] { check_placement(placement, shape, kMesh, "in_specs.x"); });
  };
  CHECK(message(Placement(P{"x"}, {.unreduced = {"y"}, .reduced = {"z"}}), {2, 3}) ==
        "(not refused)");
  CHECK(message(Placement(P{"x", "x"}), {4, 4}) ==
        "in_specs.x: spec P('x', 'x') names axis 'x' in dimensions 0 and 1; at most one positional "
        "dimension per mesh axis (DuplicateSpecError)");
  CHECK(has(message(Placement(P{axes("x", "x")}), {4}), "DuplicateSpecError"));
  CHECK(has(message(Placement(P{"q"}), {4}), "resource axis not found in mesh"));
  CHECK(has(message(Placement(P{}, {.unreduced = {"q"}}), {4}),
            "unreduced axis 'q', which is not in the mesh"));
  CHECK(has(message(Placement(P{}, {.reduced = {"q"}}), {4}),
            "reduced axis 'q', which is not in the mesh"));
  CHECK(has(message(Placement(P{"x"}), {}), "which has length 1"));
  CHECK(has(message(Placement(P{"x"}), {}), "which has rank 0; a scalar takes P()"));
  CHECK(has(message(Placement(P{"x", "y"}), {4}), "which has rank 1"));
  CHECK(has(message(Placement(P{"x"}), {5, 2}), "is not divisible by the 2 devices of axis x"));
  CHECK(has(message(Placement(P{"x"}), {5, 2}), "does not evenly divide the dimension size"));
  CHECK(has(message(Placement(P{"x"}, {.reduced = {"x"}}), {4}),
            "'x' both reduced and splitting a dimension"));
  CHECK(has(message(Placement(P{"x"}, {.unreduced = {"x"}}), {4}),
            "'x' both unreduced and splitting a dimension"));
  CHECK(has(message(Placement(P{}, {.unreduced = {"x"}, .reduced = {"x"}}), {4}),
            "both unreduced and reduced: they cannot overlap"));
  CHECK(has(message(Placement(P{}, {.reduced = {"x", "x"}}), {4}), "reduced axis 'x' twice"));
  CHECK(has(message(Placement(P{}, {.kind = UnreducedKind::kMax}), {4}),
            "has an unreduced_kind, but no unreduced axis"));
}

}  // namespace
}  // namespace kref
