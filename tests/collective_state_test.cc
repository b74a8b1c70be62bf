// SPDX-License-Identifier: Apache-2.0
// Numbers in test names are those of sharding_semantics section 9.
#include "sharding/collective_state.h"

#include <doctest/doctest.h>

#include "tests/refusal.h"

namespace kref {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Mesh kMesh = Mesh::parse("x=2,y=3");

ValueState state(const StateSets& sets) { return ValueState(kMesh, sets); }

constexpr AxisState kI = AxisState::kInvarying, kV = AxisState::kVarying,
                    kU = AxisState::kUnreduced, kR = AxisState::kReduced;

// What one collective over x makes of an operand in each state along x, y varying: the state of x
// afterwards, or part of the message.
struct Row {
  CollectiveEffect effect;
  AxisState varying;      // V -> this
  const char* unreduced;  // nullptr: U -> sum_to
  AxisState sum_to = kI;
  const char* without_auto = "is a variant->invariant collective";  // of an invarying operand
};

TEST_CASE("the last column of table 2.1") {
  const char* const not_unreduced = "op cannot accept args which are unreduced";
  const char* const varying_only = "op must be applied to a device-varying type";
  const Row rows[] = {
      {CollectiveEffect::kSum, kI, nullptr, kI},
      {CollectiveEffect::kExtremum, kI, not_unreduced},
      {CollectiveEffect::kScatterSum, kV, nullptr, kV, varying_only},
      {CollectiveEffect::kExchange, kV, not_unreduced, kI, varying_only},
      {CollectiveEffect::kGatherInvarying, kI, not_unreduced},
      {CollectiveEffect::kGatherReduced, kR, not_unreduced, kI, varying_only},
  };
  for (const Row& row : rows) {
    CAPTURE(static_cast<int>(row.effect));
    const auto typed = [&](AxisState x, bool auto_pcast = true) {
      ValueState operand = state({.varying = {"y"}});
      operand.axes[0] = x;
      return collective_state(row.effect, "op", "x", false, operand, kMesh, auto_pcast);
    };
    const CollectiveState varying = typed(kV, false);
    CHECK(varying.casts.empty());
    CHECK(varying.result.axes == std::vector{row.varying, kV});
    // Lifted first, unless that is switched off.
    const CollectiveState invarying = typed(kI);
    CHECK(invarying.casts == std::vector<CastStep>{{Cast::kPvary, {"x"}}});
    CHECK(invarying.result == varying.result);
    CHECK(has(refusal([&] { typed(kI, false); }), row.without_auto));
    if (row.unreduced != nullptr) {
      CHECK(has(refusal([&] { typed(kU); }), row.unreduced));
    } else {
      CHECK(typed(kU).result.axes == std::vector{row.sum_to, kV});
    }
    CHECK(has(refusal([&] { typed(kR); }), "op cannot accept args which are reduced"));
  }
}

TEST_CASE("own_slice and pvary begin where nothing varies") {
  for (const CollectiveEffect effect : {CollectiveEffect::kSlice, CollectiveEffect::kPvary}) {
    const auto typed = [&](const ValueState& x) {
      return collective_state(effect, "pvary", "x", false, x, kMesh);
    };
    CHECK(typed(ValueState(kMesh)).result == state({.varying = {"x"}}));
    CHECK(typed(ValueState(kMesh)).casts.empty());
    CHECK(has(refusal([&] { typed(state({.varying = {"x"}})); }),
              "pvary is a invariant->variant collective"));
    CHECK(has(refusal([&] { typed(state({.unreduced = {"x"}})); }), "which are unreduced"));
  }
}

TEST_CASE("28: a sum may be summed again") {
  const Psum psum{"x"};
  const CollectiveState once = collective_state(psum, state({.varying = {"x"}}), kMesh);
  CHECK(once.result == ValueState(kMesh));
  const CollectiveState twice = collective_state(psum, once.result, kMesh);
  CHECK(twice.casts == std::vector<CastStep>{{Cast::kPvary, {"x"}}});
  CHECK(twice.result == ValueState(kMesh));
}

TEST_CASE("reductions demand one state of all axes they name, exchanges do not") {
  const ValueState mixed = state({.varying = {"x"}});
  const AxisNames both = axes("x", "y");
  for (const std::string& message :
       {refusal([&] { collective_state(Psum{both}, mixed, kMesh); }),
        refusal([&] { collective_state(Pmax{both}, mixed, kMesh); }),
        refusal([&] { collective_state(PsumScatter{both}, mixed, kMesh); })}) {
    CHECK(has(message, "can only accept axis_name which corresponds to one of"));
    CHECK(has(message, "'x' is varying, 'y' is invarying"));
  }
  const CollectiveState gathered = collective_state(AllGather{both}, mixed, kMesh);
  CHECK(gathered.casts == std::vector<CastStep>{{Cast::kPvary, {"y"}}});
  CHECK(gathered.result == state({.varying = {"x", "y"}}));
  CHECK(collective_state(Psum{both}, ValueState(kMesh), kMesh).result == ValueState(kMesh));
}

TEST_CASE("44 and 45: the dual pairs of gather and scatter by their types") {
  const ValueState v = state({.varying = {"y"}});
  AllGather gather{"y"};
  gather.to = GatherTo::kReduced;
  const ValueState reduced = collective_state(gather, v, kMesh).result;
  CHECK(reduced == state({.reduced = {"y"}}));
  CHECK(cotangent(reduced) == state({.unreduced = {"y"}}));
  CHECK(collective_state(PsumScatter{"y"}, cotangent(reduced), kMesh).result == v);
  gather.to = GatherTo::kInvarying;
  CHECK(collective_state(gather, v, kMesh).result == ValueState(kMesh));
  // 45: reduced along y, summed over x, which leaves y alone.
  CHECK(collective_state(Psum{"x"}, state({.varying = {"x"}, .reduced = {"y"}}), kMesh).result ==
        reduced);
  CHECK(collective_state(Psum{"y"}, state({.unreduced = {"y"}}), kMesh).result ==
        ValueState(kMesh));
}

TEST_CASE("63: what is unreduced by maximum is not summed") {
  const ValueState top = state({.varying = {"y"}, .unreduced = {"x"}, .kind = UnreducedKind::kMax});
  for (const char* axis : {"x", "y"}) {
    CHECK(has(refusal([&] { collective_state(Psum{axis}, top, kMesh); }),
              "unreduced_psum cannot accept args with unreduced_kind max"));
  }
  CHECK(collective_state(AllGather{"y"}, top, kMesh).result == top);
  // Nor is the extremum of a sum the sum of the extrema.
  CHECK(has(refusal([&] {
              collective_state(Pmax{"y"}, state({.varying = {"y"}, .unreduced = {"x"}}), kMesh);
            }),
            "pmax cannot accept args which are unreduced"));
}

TEST_CASE("54: an unbound name, and no name at all") {
  CHECK(has(refusal([] { collective_state(Psum{"q"}, ValueState(kMesh), kMesh); }),
            "psum: found an unbound axis name 'q'"));
  CHECK(has(refusal([] { axis_index_state("q", kMesh); }), "unbound axis name 'q'"));
  const ValueState u = state({.unreduced = {"x"}});
  CHECK(collective_state(Psum{AxisNames()}, u, kMesh) == CollectiveState{{}, u});
  CHECK(axis_index_state(axes("y", "x"), kMesh) == state({.varying = {"x", "y"}}));
}

TEST_CASE("groups are refused where the result would not be what its type says") {
  const ValueState v = state({.varying = {"y"}});
  const AxisIndexGroups groups{{0, 2}, {1}};
  AllGather gather{"y"};
  gather.axis_index_groups = groups;
  CHECK(collective_state(gather, v, kMesh).result == v);
  gather.to = GatherTo::kInvarying;
  Psum psum{"y"};
  psum.axis_index_groups = groups;
  PsumScatter scatter{"y"};
  scatter.axis_index_groups = groups;
  CHECK(collective_state(scatter, v, kMesh).result == v);
  for (const std::string& message :
       {refusal([&] { collective_state(gather, v, kMesh); }),
        refusal([&] { collective_state(psum, v, kMesh); }),
        refusal([&] { collective_state(scatter, state({.unreduced = {"y"}}), kMesh); })}) {
    CHECK(has(message, "axis_index_groups are not implemented"));
  }
}

TEST_CASE("any linear collective is typed by the one it holds") {
  const LinearCollective any = AllToAll{"x"};
  CHECK(collective_state(any, state({.varying = {"x"}}), kMesh).result ==
        state({.varying = {"x"}}));
}

}  // namespace
}  // namespace kref
