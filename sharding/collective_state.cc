// SPDX-License-Identifier: Apache-2.0
#include "sharding/collective_state.h"

namespace kref {
namespace {

// Which operands a collective takes along the axes it names, and what they become.
struct Rule {
  AxisState from;       // of the operand
  AxisState to;         // of the result
  bool takes_sum;       // an unreduced sum too
  bool one_state;       // the axes are checked to be in one state before all else
  bool grouped;         // may have axis_index_groups
  const char* lacking;  // said where an invarying operand is not lifted
};

Rule rule_of(CollectiveEffect effect) {
  constexpr AxisState kI = AxisState::kInvarying, kV = AxisState::kVarying;
  constexpr const char* kReduces = "is a variant->invariant collective";
  constexpr const char* kMoves = "must be applied to a device-varying type";
  switch (effect) {
    case CollectiveEffect::kSum:
      return {kV, kI, true, true, false, kReduces};
    case CollectiveEffect::kExtremum:
      return {kV, kI, false, true, false, kReduces};
    case CollectiveEffect::kScatterSum:
      return {kV, kV, true, true, true, kMoves};
    case CollectiveEffect::kExchange:
      return {kV, kV, false, false, true, kMoves};
    case CollectiveEffect::kGatherInvarying:
      return {kV, kI, false, false, false, kReduces};
    case CollectiveEffect::kGatherReduced:
      return {kV, AxisState::kReduced, false, false, false, kMoves};
    case CollectiveEffect::kSlice:
    case CollectiveEffect::kPvary:
      return {kI, kV, false, false, true, ""};
  }
  return {kV, kV, false, false, true, kMoves};
}

}  // namespace

CollectiveEffect effect_of(const AllGather& op) {
  switch (op.to) {
    case GatherTo::kInvarying:
      return CollectiveEffect::kGatherInvarying;
    case GatherTo::kReduced:
      return CollectiveEffect::kGatherReduced;
    case GatherTo::kVarying:
      break;
  }
  return CollectiveEffect::kExchange;
}

CollectiveState collective_state(CollectiveEffect effect, std::string_view operation,
                                 const AxisNames& axes, bool grouped, const ValueState& x,
                                 const Mesh& mesh, bool auto_pcast) {
  CollectiveState out{{}, x};
  if (axes.names.empty()) return out;
  const std::string name(operation);
  const auto got = [&] {
    return detail::cat("; got ", set_string(axes.names), " of an input whose state is ",
                       to_string(x, mesh));
  };
  const Rule rule = rule_of(effect);
  if (rule.one_state) common_state(x, axes, mesh, operation);

  // Along the axes it names.
  CastStep lift{Cast::kPvary, {}};
  bool sum = false;
  for (const std::string& axis : axes.names) {
    const AxisState state = common_state(x, axis, mesh, operation);
    sum = sum || state == AxisState::kUnreduced;
    KREF_CHECK(state != AxisState::kUnreduced || rule.takes_sum, name,
               " cannot accept args which are unreduced", got());
    KREF_CHECK(state != AxisState::kReduced, name, " cannot accept args which are reduced", got());
    if (state == AxisState::kInvarying && rule.from == AxisState::kVarying) {
      lift.axes.push_back(axis);
    }
    KREF_CHECK(state != AxisState::kVarying || rule.from != AxisState::kInvarying, name,
               " is a invariant->variant collective: the axes named must not vary", got());
    out.result.axes[mesh.index(axis)] = rule.to;
  }
  KREF_CHECK(lift.axes.empty() || auto_pcast, name, ' ', rule.lacking, ": the axes named must vary",
             got());

  // Along the others: an extremum of sums is not the sum of extrema.
  const bool linear = effect != CollectiveEffect::kExtremum;
  const bool sums = effect == CollectiveEffect::kSum || effect == CollectiveEffect::kScatterSum;
  KREF_CHECK(!sums || x.kind == UnreducedKind::kSum, name,
             ": unreduced_psum cannot accept args with unreduced_kind ", to_string(x.kind), got());
  KREF_CHECK(linear || !x.any(AxisState::kUnreduced), name,
             " cannot accept args which are unreduced, along any axis", got());
  KREF_CHECK(!grouped || (rule.grouped && !sum), name,
             ": axis_index_groups are not implemented for this in checked mode", got());
  if (!lift.axes.empty()) out.casts.push_back(std::move(lift));
  return out;
}

ValueState axis_index_state(const AxisNames& axes, const Mesh& mesh) {
  ValueState state(mesh);
  for (const std::string& axis : axes.names) {
    common_state(state, axis, mesh, "axis_index");
    state.axes[mesh.index(axis)] = AxisState::kVarying;
  }
  return state;
}

}  // namespace kref
