// SPDX-License-Identifier: Apache-2.0
// Collective matmuls in typed bodies: the bits of collective_matmul and of its derivative, with
// groups of their own along other axes, and what is refused.
#include "sharding/typed_ring.h"

#include <doctest/doctest.h>

#include <cstring>

#include "sharding/local_math.h"
#include "sharding/value_collectives.h"
#include "sharding/vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

auto typed(const Mesh& mesh, const MatmulSpecs& specs, const CollectiveMatmulOptions& options) {
  return shard_map(mesh, {.in_specs = {specs.x, specs.y}, .out_specs = {Placement(specs.z.spec)}},
                   [specs, options](Tracer&, const Value& x, const Value& y) {
                     return collective_matmul(x, y, specs, options);
                   });
}

TEST_CASE("a typed ring has the bits of collective_matmul, forward and backward") {
  const struct {
    const char* mesh;
    const char* axis;
    MatmulSpecs specs;
  } cases[] = {
      {"X=4", "X", {P{none, "X"}, P{none, "X"}, {P{none, "X"}, {}}}},
      {"X=3", "X", {P{"X"}, P{"X"}, {P{"X"}, {}}}},
      {"X=4", "X", {P{"X"}, P{none, "X"}, {P{none, "X"}, {}}}},
      {"X=2", "X", {P{"X"}, P{none, "X"}, {P{"X"}, {}}}},
      {"X=4", "X", {P{none, "X"}, P{"X"}, {P{"X"}, {}}}},
      {"X=3", "X", {P{none, "X"}, P{"X"}, {P{none, "X"}, {}}}},
      {"X=2,Y=3", "Y", {P{"X", "Y"}, P{none, "Y"}, {P{"X", "Y"}, {}}}},
      {"Y=3,Z=2", "Y", {P{none, "Y"}, P{none, "Y"}, {P{none, "Y"}, {}}}},
      {"X=1", "X", {P{none, "X"}, P{none, "X"}, {P{none, "X"}, {}}}},
  };
  for (const auto& c : cases) {
    for (const RingDirection direction : {RingDirection::kOne, RingDirection::kBoth}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        CAPTURE(c.mesh);
        CAPTURE(to_string(c.specs.x));
        const Mesh mesh = Mesh::parse(c.mesh);
        // Fractions: sums round, so the order in which they are added shows.
        const auto part = [&](Index rows, Index columns, unsigned seed) {
          return converted(scaled(mixed({rows, columns}, seed), 0.3), type);
        };
        const Array x = part(12, 24, 1), y = part(24, 36, 2), ct = part(12, 36, 3);
        const CollectiveMatmulOptions options{.axis_name = c.axis, .direction = direction};
        const auto f = typed(mesh, c.specs, options);
        const auto [z, back] = vjp(f, x, y);
        CHECK(same_bits(z, collective_matmul(mesh, c.specs, x, y, options)));
        const std::vector<Array> cts = back(ct);
        const auto right = collective_matmul_vjp(mesh, c.specs, x, y, ct, options);
        CHECK(same_bits(cts[0], right.first));
        CHECK(same_bits(cts[1], right.second));
        CHECK(f.count("collective_matmul", x, y) == 1);
        CHECK(back.count("collective_matmul") == 2);
      }
    }
  }
}

TEST_CASE("a product for each group along an axis that no spec names") {
  // Rows of x over S, as data parallel has them; y is the same everywhere, its cotangent a sum.
  const Mesh mesh = Mesh::parse("S=2,Y=3");
  const MatmulSpecs specs{P{none, "Y"}, P{none, "Y"}, {P{none, "Y"}, {}}};
  const auto f =
      shard_map(mesh, {.in_specs = {P{"S", "Y"}, P{none, "Y"}}, .out_specs = {P{"S", "Y"}}},
                [specs](Tracer&, const Value& x, const Value& y) {
                  return collective_matmul(x * 2.0, y, specs, {.axis_name = "Y"});
                });
  const Array x = mixed({8, 12}, 1), y = mixed({12, 9}, 2), ct = mixed({8, 9}, 3);
  const auto [z, back] = vjp(f, x, y);
  const MatmulSpecs alone{P{}, P{}, {P{}, {}}};
  CHECK(values(z) == values(sharded_matmul(Mesh(), alone, scaled(x, 2), y)));
  const std::vector<Array> cts = back(ct);
  CHECK(values(cts[0]) ==
        values(scaled(sharded_matmul(Mesh(), alone, ct, y, {.trans_y = true}), 2)));
  CHECK(values(cts[1]) ==
        values(sharded_matmul(Mesh(), alone, scaled(x, 2), ct, {.trans_x = true})));
  CHECK(back.count("psum") == 1);
}

TEST_CASE("what a typed ring does not take is refused before a device starts") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  const Array x = mixed({4, 8}, 1), y = mixed({8, 4}, 2);
  const MatmulSpecs good{P{none, "X"}, P{none, "X"}, {P{none, "X"}, {}}};
  CHECK(says(refusal([&] { typed(mesh, good, {.axis_name = "Z"})(x, y); }),
             "unbound axis name 'Z', the mesh has X=2,Y=2"));
  CHECK(says(refusal([&] {
               typed(mesh, good, {.axis_name = "X"})(x, mixed({6, 4}, 1));
             }),
             "has K = 8, but y f32[6,2]{V:X} as P(None, 'X') has 6"));
  CHECK(says(refusal([&] { typed(mesh, good, {.axis_name = "X", .trans_x = true})(x, y); }),
             "expected x and y stored [M, K] and [K, N]"));
  const auto varies =
      shard_map(mesh, {.in_specs = {P{none, "X"}, P{"X", "Y"}}, .out_specs = {P{none, "X"}}},
                [good](Tracer&, const Value& a, const Value& b) {
                  return collective_matmul(a, b, {good.x, P{}, {P{"X"}, {}}}, {.axis_name = "X"});
                });
  CHECK(says(refusal([&] { varies(x, y); }),
             "y is f32[4,2]{V:(X,Y)}, which varies along 'X', but its spec P() is whole there"));
  const auto unchecked = shard_map(
      mesh, {.in_specs = {good.x, good.y}, .out_specs = {good.z.spec}, .check_vma = false},
      [good](Tracer&, const Value& a, const Value& b) {
        return collective_matmul(a, b, good, {.axis_name = "X"});
      });
  CHECK(says(refusal([&] { unchecked(x, y); }), "needs check_vma"));
  const auto reduced = shard_map(mesh, {.in_specs = {good.x, good.y}, .out_specs = {good.z.spec}},
                                 [good](Tracer&, const Value& a, const Value& b) {
                                   return collective_matmul(pcast(a, "Y", AxisState::kReduced), b,
                                                            good, {.axis_name = "X"});
                                 });
  CHECK(says(refusal([&] { reduced(x, y); }), "expected neither unreduced nor reduced axes"));
}

}  // namespace
}  // namespace kref
