// SPDX-License-Identifier: Apache-2.0
// What each reshard takes: the table of sharding_semantics 1.8, and that every step is what it
// says.
#include <doctest/doctest.h>

#include <random>

#include "sharding/reshard.h"
#include "tests/placed.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using Kind = ReshardStep::Kind;
using Axes = std::vector<std::string>;

const Mesh kMesh = Mesh::parse("x=2,y=3");

Placement terms(const PartitionSpec& spec, const Axes& axes) {
  return Placement(spec, {.unreduced = axes});
}

std::string plan(const Placement& from, const Placement& to, const Mesh& mesh = kMesh) {
  return to_string(plan_reshard(from, to, mesh));
}

TEST_CASE("the rows of table 1.8") {
  CHECK(plan(P{"x"}, P{}) == "AllGather over x along dimension 0");
  CHECK(plan(P{}, P{none, "x"}) == "slice over x along dimension 1");
  CHECK(plan(P{"x"}, P{none, "x"}) == "AllToAll over x from dimension 0 to 1");
  CHECK(plan(terms(P{}, {"x"}), P{}) == "AllReduce over x");
  CHECK(plan(terms(P{}, {"x"}), P{none, "x"}) == "ReduceScatter over x along dimension 1");
  CHECK(plan(P{}, Placement(P{}, {.reduced = {"x"}})) == "relabel to P(reduced={'x'})");
  CHECK(plan(P{}, terms(P{}, {"x"})) == "zeros but at index 0 over x");
  CHECK(plan(P{none, "x"}, terms(P{}, {"x"})) == "own block among zeros over x along dimension 1");
  CHECK(plan(P{"x"}, P{"x", none}) == "nothing moves");
}

TEST_CASE("several axes") {
  CHECK(plan(P{axes("x", "y")}, P{}) == "AllGather over (x,y) along dimension 0");
  CHECK(plan(P{}, P{axes("y", "x")}) == "slice over (y,x) along dimension 0");
  CHECK(plan(P{axes("x", "y")}, P{none, axes("x", "y")}) ==
        "AllToAll over (x,y) from dimension 0 to 1");
  CHECK(plan(P{axes("x", "y")}, P{"x", "y"}) == "AllToAll over y from dimension 0 to 1");
  CHECK(plan(P{axes("x", "y")}, P{axes("y", "x")}) == "CollectivePermute to P(('y', 'x'))");
  // What is not wanted goes behind what is; then half of the bytes of gathering both.
  CHECK(plan(P{axes("x", "y")}, P{"y"}) ==
        "CollectivePermute to P(('y', 'x'))\nAllGather over x along dimension 0");
  CHECK(plan(terms(P{}, {"x", "y"}), P{"y"}) ==
        "ReduceScatter over y along dimension 0\nAllReduce over x");
  // Slices first: then less is gathered.
  CHECK(plan(P{"x"}, P{none, "y"}) ==
        "slice over y along dimension 1\nAllGather over x along dimension 0");
  // Blocks that change places, where there are as many of them; else by way of a gather.
  CHECK(plan(P{"x", "y"}, P{"y", "x"}, Mesh::parse("x=2,y=2")) ==
        "CollectivePermute to P('y', 'x')");
  CHECK(plan(P{"x"}, P{"y"}, Mesh::parse("x=2,y=2")) == "CollectivePermute to P('y')");
  CHECK(plan(P{"x", "y"}, P{"y", "x"}) ==
        "AllGather over x along dimension 0\nAllToAll over y from dimension 1 to 0\n"
        "slice over x along dimension 1");
  // What becomes unreduced keeps its owners: y makes way for x.
  CHECK(plan(P{axes("x", "y")}, terms(P{"y"}, {"x"})) ==
        "AllGather over y along dimension 0\nown block among zeros over x along dimension 0\n"
        "slice over y along dimension 0");
}

TEST_CASE("axes of one device make no step") {
  const Mesh mesh = Mesh::parse("one=1,x=2");
  CHECK(plan(P{axes("one", "x")}, P{none, axes("x", "one")}, mesh) ==
        "AllToAll over x from dimension 0 to 1");
  CHECK(plan(P{"one"}, P{none, "one"}, mesh) == "relabel to P(None, 'one')");
  CHECK(plan(terms(P{}, {"one"}), P{}, mesh) == "relabel to P()");
  CHECK(plan_reshard(P{axes("one", "x")}, P{}, mesh).back().to == Placement());
}

// Axes of `a` that are not in `b`.
Axes without(Axes a, const Axes& b) {
  std::erase_if(a, [&](const std::string& axis) { return in_set(b, axis); });
  return a;
}
Axes joined(Axes a, const Axes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Does the step, done to `from`, give its `to`, and nothing else?
bool is_what_it_says(const Placement& from, const ReshardStep& step) {
  Placement after = from;
  after.spec.entries.resize(2);
  Axes& split = after.spec.entries[step.dim];
  switch (step.kind) {
    case Kind::kReduceScatter:
      after.unreduced = without(from.unreduced, step.axes);
      if (after.unreduced.size() + step.axes.size() != from.unreduced.size()) return false;
      split = joined(split, step.axes);
      break;
    case Kind::kSlice:
      split = joined(split, step.axes);
      break;
    case Kind::kAllReduce:
      after.unreduced = without(from.unreduced, step.axes);
      if (after.unreduced.size() + step.axes.size() != from.unreduced.size()) return false;
      break;
    case Kind::kAllToAll:
    case Kind::kAllGather:
    case Kind::kPad: {
      const Axes left = without(split, step.axes);
      if (joined(left, step.axes) != split) return false;  // they are the minor ones
      split = left;
      if (step.kind == Kind::kAllToAll) {
        after.spec.entries[step.to_dim] = joined(after.spec.entries[step.to_dim], step.axes);
      }
      if (step.kind == Kind::kPad) after.unreduced = joined(after.unreduced, step.axes);
      break;
    }
    case Kind::kMask:
      after.unreduced = joined(after.unreduced, step.axes);
      break;
    case Kind::kPermute:
      after.spec = step.to.spec;
      break;
    case Kind::kRelabel:
      after.reduced = step.to.reduced;
      break;
  }
  return after == step.to;
}

TEST_CASE("every step is what it says, and the last one arrives") {
  std::mt19937 random(18);
  for (const char* text : {"x=2", "x=2,y=2", "x=2,y=3", "x=2,y=2,z=2", "x=2,y=3,z=2"}) {
    const Mesh mesh = Mesh::parse(text);
    const std::vector<Placement> all = all_placements(mesh);
    std::uniform_int_distribution<std::size_t> any(0, all.size() - 1);
    for (int i = 0; i < 3000; ++i) {
      const Placement &from = all[any(random)], &to = all[any(random)];
      const std::vector<ReshardStep> steps = plan_reshard(from, to, mesh);
      Placement now = from;
      bool right = true;
      for (const ReshardStep& step : steps) {
        right = right && is_what_it_says(now, step) && !(step.to == now);
        // As many blocks as before: then blocks can change places.
        for (std::size_t d = 0; step.kind == Kind::kPermute && d < 2; ++d) {
          right = right && block_count(now.spec[d], mesh) == block_count(step.to.spec[d], mesh);
        }
        now = step.to;
      }
      CAPTURE(to_string(from));
      CAPTURE(to_string(to));
      CAPTURE(to_string(steps));
      CHECK((right && now == to && steps.size() <= 10));
    }
  }
}

TEST_CASE("which steps use the links") {
  const auto first = [](const Placement& from, const Placement& to) {
    return communicates(plan_reshard(from, to, kMesh)[0]);
  };
  CHECK(first(P{"x"}, P{}));
  CHECK(first(P{"x"}, P{none, "x"}));
  CHECK(first(terms(P{}, {"x"}), P{}));
  CHECK(first(terms(P{}, {"x"}), P{"x"}));
  CHECK(first(P{axes("x", "y")}, P{axes("y", "x")}));
  CHECK_FALSE(first(P{}, P{"x"}));
  CHECK_FALSE(first(P{}, terms(P{}, {"x"})));
  CHECK_FALSE(first(P{"x"}, terms(P{}, {"x"})));
  CHECK_FALSE(first(P{}, Placement(P{}, {.reduced = {"x"}})));
}

}  // namespace
}  // namespace kref
