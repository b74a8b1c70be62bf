// SPDX-License-Identifier: Apache-2.0
// A reshard's steps as collectives: devices that run them hold what reshard gives.
#include "sharding/reshard_collective.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "sharding/launch.h"
#include "tests/placed.h"

namespace kref {
namespace {

using Kind = ReshardStep::Kind;

Array counted(const Indices& shape) {
  Array out(DType::kI32, shape);
  std::int32_t next = 1;
  for (auto& element : out.mutable_elements<std::int32_t>()) element = next++;
  return out;
}

// An array in which every element of every term is another one.
Sharded made(const Mesh& mesh, Indices shape, const Placement& placement) {
  Indices stacked = shape;
  for (const std::string& axis : placement.unreduced) {
    stacked.insert(stacked.begin(), mesh.size(axis));
  }
  Placement reversed = placement;
  std::reverse(reversed.unreduced.begin(), reversed.unreduced.end());
  return shard_terms(mesh, counted(stacked), reversed);
}

bool equal(std::span<const Array> a, std::span<const Array> b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].bytes() == b[i].bytes() && std::memcmp(a[i].data(), b[i].data(), a[i].bytes()) == 0;
  }
  return same;
}

TEST_CASE("devices that run the collectives of a plan hold what reshard gives") {
  const struct {
    const char* mesh;
    Indices shape;
    int pairs;
  } cases[] = {{"x=2", {4, 2}, 25}, {"x=2,y=3", {6, 12}, 60}, {"x=2,y=2,z=2", {8, 8}, 60}};
  std::mt19937 random(54);
  int ran[9] = {};
  for (const auto& c : cases) {
    const Mesh mesh = Mesh::parse(c.mesh);
    const std::vector<Placement> all = all_placements(mesh);
    std::uniform_int_distribution<std::size_t> any(0, all.size() - 1);
    for (int pair = 0; pair < c.pairs; ++pair) {
      const Placement &first = all[any(random)], &last = all[any(random)];
      Placement from = first;
      for (const ReshardStep& step : plan_reshard(first, last, mesh)) {
        const std::optional<LinearCollective> op = collective_of(step, from, mesh);
        CHECK(op.has_value() == (communicates(step) || step.kind == Kind::kSlice));
        if (op) {
          const Sharded x = made(mesh, c.shape, from);
          std::vector<Array> got(x.blocks().size());
          launch(mesh, [&](Device& device) {
            const Index d = device.index();
            got[static_cast<std::size_t>(d)] = apply(*op, device, x.block(d));
          });
          CAPTURE(to_string(from));
          CAPTURE(to_string(step));
          CAPTURE(to_string(*op));
          CHECK(equal(got, reshard(x, step.to).blocks()));
          ++ran[static_cast<int>(step.kind)];
        }
        from = step.to;
      }
    }
  }
  for (const Kind kind : {Kind::kSlice, Kind::kReduceScatter, Kind::kAllReduce, Kind::kAllToAll,
                          Kind::kAllGather, Kind::kPermute}) {
    CAPTURE(static_cast<int>(kind));
    CHECK(ran[static_cast<int>(kind)] > 0);
  }
}

TEST_CASE("blocks that stay are not sent in a permute, extrema have no linear collective") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const ReshardStep step = plan_reshard(P{"x"}, P{"y"}, mesh)[0];
  const auto op = std::get<Ppermute>(*collective_of(step, P{"x"}, mesh));
  int stay = 0;
  for (const auto& pair : op.perm) stay += pair.first == pair.second ? 1 : 0;
  CHECK(op.perm.size() == 4);
  CHECK(stay == 2);
  const Placement top(P{}, {.unreduced = {"x"}, .kind = UnreducedKind::kMax});
  for (const Placement& to : {Placement(P{}), Placement(P{"x"})}) {
    CHECK_FALSE(collective_of(plan_reshard(top, to, mesh)[0], top, mesh));
  }
}

}  // namespace
}  // namespace kref
