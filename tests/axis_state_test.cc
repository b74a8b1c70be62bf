// SPDX-License-Identifier: Apache-2.0
// Numbers in test names are those of sharding_semantics section 9.
#include "sharding/axis_state.h"

#include <doctest/doctest.h>

#include "tests/refusal.h"

namespace kref {
namespace {

using Names = std::vector<std::string>;
using Indices = std::vector<Index>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Mesh kMesh = Mesh::parse("x=2,y=3,z=2");

ValueState state(const StateSets& sets) { return ValueState(kMesh, sets); }

constexpr AxisState kAll[] = {AxisState::kInvarying, AxisState::kVarying, AxisState::kUnreduced,
                              AxisState::kReduced};

TEST_CASE("a state is written down as sets and printed as JAX prints it") {
  const ValueState s = state({.varying = {"z"}, .unreduced = {"x"}, .reduced = {"y"}});
  CHECK(s.axes == std::vector{AxisState::kUnreduced, AxisState::kReduced, AxisState::kVarying});
  CHECK(to_string(s, kMesh) == "{V:z, U:x, R:y}");
  CHECK(to_string(ValueState(kMesh), kMesh) == "{}");
  const Indices shape{2, 2};
  const Mesh ij = Mesh::parse("i=2,j=2");
  CHECK(type_string(DType::kF32, shape, ValueState(ij, {.varying = {"j", "i"}}), ij) ==
        "f32[2,2]{V:(i,j)}");
  CHECK(type_string(DType::kI32, {}, ValueState(ij), ij) == "i32[]");
  CHECK(s.in(AxisState::kVarying, kMesh) == Names{"z"});
  CHECK(s.any(AxisState::kReduced));
  CHECK_FALSE(s.any(AxisState::kInvarying));
  CHECK(state({.unreduced = {"z", "x"}, .kind = UnreducedKind::kMax}).kind == UnreducedKind::kMax);
  CHECK(state({.varying = {"x"}, .kind = UnreducedKind::kMax}).kind == UnreducedKind::kSum);
  CHECK(has(refusal([] { state({.varying = {"x"}, .reduced = {"x"}}); }),
            "axis 'x' is both varying and reduced"));
  CHECK(has(refusal([] { state({.varying = {"q"}}); }), "axis 'q' is not in the mesh"));
}

TEST_CASE("cotangents: varying and invarying stay, unreduced and reduced change places") {
  const ValueState s = state({.varying = {"z"}, .unreduced = {"x"}, .reduced = {"y"}});
  CHECK(cotangent(s) == state({.varying = {"z"}, .unreduced = {"y"}, .reduced = {"x"}}));
  CHECK(cotangent(cotangent(s)) == s);
  CHECK(cotangent(ValueState(kMesh)) == ValueState(kMesh));
  for (const UnreducedKind kind : {UnreducedKind::kMax, UnreducedKind::kMin}) {
    const std::string message =
        refusal([&] { cotangent(state({.unreduced = {"x"}, .kind = kind})); });
    CHECK(has(message, std::string("kind ") + to_string(kind) + " has no cotangent"));
  }
}

TEST_CASE("pcast makes four of the sixteen conversions and names the rest") {
  const struct {
    AxisState from, to;
    const char* name;
  } allowed[] = {
      {AxisState::kInvarying, AxisState::kVarying, "pvary"},
      {AxisState::kInvarying, AxisState::kReduced, "preduced"},
      {AxisState::kVarying, AxisState::kUnreduced, "vary_unreduced_cast"},
      {AxisState::kReduced, AxisState::kVarying, "reduced_vary_cast"},
  };
  int made = 0;
  for (const AxisState from : kAll) {
    ValueState before(kMesh);
    before.axes[0] = before.axes[2] = from;
    for (const AxisState to : kAll) {
      CAPTURE(to_string(from));
      CAPTURE(to_string(to));
      const char* name = nullptr;
      for (const auto& each : allowed) {
        if (each.from == from && each.to == to) name = each.name;
      }
      if (name == nullptr) {
        const std::string message = refusal([&] { pcast(before, axes("z", "x"), to, kMesh); });
        CHECK(has(message, to == AxisState::kInvarying ? "unexpected `to` value"
                                                       : "Unsupported pcast from="));
        continue;
      }
      ++made;
      const auto step = pcast(before, axes("z", "x"), to, kMesh);
      REQUIRE(step);
      CHECK(std::string(to_string(step->cast)) == name);
      CHECK(step->axes == Names{"x", "z"});  // in mesh order
      const ValueState after = apply(*step, before, kMesh);
      CHECK(after.axes[0] == to);
      CHECK(after.axes[1] == AxisState::kInvarying);
      CHECK(after.axes[2] == to);
      CHECK(has(refusal([&] { apply(*step, after, kMesh); }), "collective"));
    }
  }
  CHECK(made == 4);
  CHECK_FALSE(pcast(ValueState(kMesh), AxisNames(), AxisState::kVarying, kMesh));
}

TEST_CASE("54 and 43: casts that JAX refuses, by its words") {
  const ValueState mixed = state({.varying = {"x"}, .unreduced = {"y"}});
  const std::string message =
      refusal([&] { pcast(mixed, axes("x", "y"), AxisState::kUnreduced, kMesh); });
  CHECK(has(message, "can only accept axis_name which corresponds to one of"));
  CHECK(has(message, "'x' is varying, 'y' is unreduced"));
  CHECK(has(refusal([&] { pcast(mixed, "q", AxisState::kVarying, kMesh); }),
            "found an unbound axis name 'q'; the mesh is x=2,y=3,z=2"));
  CHECK(has(refusal([&] {
              apply({Cast::kPvary, {"x"}}, mixed, kMesh);
            }),
            "pvary is a invariant->variant collective"));
  // A second axis of another kind: the terms of one value combine in one way.
  const ValueState maxed =
      state({.varying = {"x"}, .unreduced = {"y"}, .kind = UnreducedKind::kMax});
  CHECK(has(refusal([&] {
              apply({Cast::kVaryUnreducedCast, {"x"}}, maxed, kMesh);
            }),
            "with kind max"));
}

TEST_CASE("53: operands are brought to the union of what varies") {
  const std::vector<ValueState> operands{state({.varying = {"x"}}),
                                         state({.varying = {"y"}, .reduced = {"x"}}),
                                         ValueState(kMesh), state({.reduced = {"z"}})};
  const Promotion p = promote("mul", operands, kMesh);
  const ValueState both = state({.varying = {"x", "y"}});
  CHECK(p.operands ==
        std::vector{both, both, both, state({.varying = {"x", "y"}, .reduced = {"z"}})});
  REQUIRE(p.casts.size() == 4);
  CHECK(p.casts[0] == std::vector<CastStep>{{Cast::kPvary, {"y"}}});
  CHECK(p.casts[1] == std::vector<CastStep>{{Cast::kReducedVaryCast, {"x"}}});
  CHECK(p.casts[2] == std::vector<CastStep>{{Cast::kPvary, {"x", "y"}}});
  CHECK(p.casts[3] == std::vector<CastStep>{{Cast::kPvary, {"x", "y"}}});

  CHECK(promote("mul", std::vector{both, both}, kMesh, false).casts ==
        std::vector<std::vector<CastStep>>(2));
  const std::string off = refusal([&] {
    promote("mul", std::vector{both, operands[0]}, kMesh, false);
  });
  CHECK(has(off, "Primitive mul requires varying manual axes to match"));
  CHECK(has(off, "operand 1 does not vary along {y} (states {V:(x,y)}, {V:x})"));
  CHECK(has(refusal([&] {
              promote("add", std::vector{both, state({.unreduced = {"x"}})}, kMesh);
            }),
            "operand 1 is unreduced along {x}"));
  CHECK(promote("zeros", {}, kMesh).operands.empty());
}

TEST_CASE("arguments get the states that their specs say") {
  CHECK(input_state(P{axes("z", "x")}, kMesh) == state({.varying = {"x", "z"}}));
  CHECK(input_state(P{}, kMesh) == ValueState(kMesh));
  CHECK(
      input_state(
          Placement(P{"y"}, {.unreduced = {"x"}, .reduced = {"z"}, .kind = UnreducedKind::kMin}),
          kMesh) ==
      state({.varying = {"y"}, .unreduced = {"x"}, .reduced = {"z"}, .kind = UnreducedKind::kMin}));
}

TEST_CASE("50 and 51: what leaves must be proved to be what out_specs say") {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const ValueState x = input_state(P{"x", "y"}, mesh);
  const auto leave = [&](const ValueState& value, const Placement& spec) {
    return output_casts(value, spec, mesh, "out_specs[0]");
  };
  const std::string message = refusal([&] { leave(x, P{none, "y"}); });
  CHECK(has(message, "out_specs[0] is P(None, 'y')"));
  CHECK(has(message, "statically inferred"));
  CHECK(has(message, "require replication"));
  CHECK(leave(ValueState(mesh, {.varying = {"y"}}), P{none, "y"}).empty());

  const std::string three = refusal([&] {
    output_casts(state({.varying = {"x", "y", "z"}}), P{"x"}, kMesh, "out_specs");
  });
  CHECK(has(three, "may vary over {x} and must not over {y,z}, but it may vary over {x,y,z}"));
}

TEST_CASE("an invarying output is fanned out silently over the axes that split it") {
  CHECK(output_casts(state({.varying = {"y"}}), P{axes("z", "x"), "y"}, kMesh, "out_specs") ==
        std::vector<CastStep>{{Cast::kPvary, {"x", "z"}}});
  CHECK(output_casts(ValueState(kMesh), P{}, kMesh, "out_specs").empty());
}

TEST_CASE("56: unreduced and reduced outputs match their specs exactly") {
  const auto leave = [&](const ValueState& value, const Placement& spec) {
    return refusal([&] { output_casts(value, spec, kMesh, "out_specs"); });
  };
  const Placement x_terms(P{}, {.unreduced = {"x"}});
  CHECK(leave(state({.unreduced = {"x"}}), x_terms) == "(not refused)");
  CHECK(leave(state({.reduced = {"x"}}), Placement(P{}, {.reduced = {"x"}})) == "(not refused)");
  CHECK(has(leave(state({.varying = {"x"}}), x_terms),
            "along 'x' the output is varying, expected unreduced"));
  CHECK(has(leave(ValueState(kMesh), x_terms), "is invarying, expected unreduced"));
  CHECK(has(leave(state({.unreduced = {"x"}}), P{}), "is unreduced, expected invarying"));
  CHECK(has(leave(state({.unreduced = {"x"}}), P{"x"}), "is unreduced, expected varying"));
  CHECK(has(leave(state({.reduced = {"x"}}), P{}), "is reduced, expected invarying"));
  CHECK(has(leave(state({.unreduced = {"x"}, .kind = UnreducedKind::kMax}), x_terms),
            "unreduced_kind max"));
}

}  // namespace
}  // namespace kref
