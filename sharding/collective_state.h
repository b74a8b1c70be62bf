// SPDX-License-Identifier: Apache-2.0
// What each collective does to the per-axis state of its operand in checked mode, and which
// operands it refuses (sharding_semantics 2.1 last column, 2.0, 2.5).
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sharding/axis_state.h"
#include "sharding/collectives.h"

namespace kref {

// Collectives that type alike, along the axes they name.
enum class CollectiveEffect {
  kSum,              // psum, pmean: varying or unreduced (a sum) -> invarying
  kExtremum,         // pmax, pargmax: varying -> invarying
  kScatterSum,       // psum_scatter: varying or unreduced (a sum) -> varying
  kExchange,         // all_gather, all_to_all, ppermute, pbroadcast, psum_to: varying -> varying
  kGatherInvarying,  // all_gather to invarying: varying -> invarying
  kGatherReduced,    // all_gather to reduced: varying -> reduced
  kSlice,            // own_slice: invarying -> varying
  kPvary,            // pvary: invarying -> varying
};

// Of each collective.
CollectiveEffect effect_of(const AllGather& op);
inline CollectiveEffect effect_of(const OwnSlice&) { return CollectiveEffect::kSlice; }
inline CollectiveEffect effect_of(const PsumScatter&) { return CollectiveEffect::kScatterSum; }
inline CollectiveEffect effect_of(const Psum&) { return CollectiveEffect::kSum; }
inline CollectiveEffect effect_of(const Pvary&) { return CollectiveEffect::kPvary; }
inline CollectiveEffect effect_of(const Pmean&) { return CollectiveEffect::kSum; }
inline CollectiveEffect effect_of(const Pmax&) { return CollectiveEffect::kExtremum; }
inline CollectiveEffect effect_of(const Pargmax&) { return CollectiveEffect::kExtremum; }
inline CollectiveEffect effect_of(const AllToAll&) { return CollectiveEffect::kExchange; }
inline CollectiveEffect effect_of(const Ppermute&) { return CollectiveEffect::kExchange; }
inline CollectiveEffect effect_of(const Pbroadcast&) { return CollectiveEffect::kExchange; }
inline CollectiveEffect effect_of(const PsumTo&) { return CollectiveEffect::kExchange; }

// What a collective makes of its operand's state.
struct CollectiveState {
  std::vector<CastStep> casts;  // of the operand, before: at most one pvary
  ValueState result;
  bool operator==(const CollectiveState&) const = default;
};

// The rule of one effect. `operation` is named in messages; `grouped`: axis_index_groups are given.
// No axis at all: the identity. Error:
// - a name that the mesh lacks: "unbound axis name";
// - kSum, kExtremum, kScatterSum: axes in different states ("can only accept axis_name ...");
// - an invarying operand without auto_pcast: "psum is a variant->invariant collective";
// - kPvary of what varies: "pvary is a invariant->variant collective";
// - named axes that are unreduced, but for a sum: "cannot accept args which are unreduced"; reduced
//   ones: "... which are reduced";
// - an unreduced operand of kind max or min, summed over any axis: "cannot accept args with
//   unreduced_kind"; an unreduced sum whose extremum is asked for along another axis;
// - groups with a psum, with all_gather to invarying or reduced, with an unreduced operand.
CollectiveState collective_state(CollectiveEffect effect, std::string_view operation,
                                 const AxisNames& axes, bool grouped, const ValueState& x,
                                 const Mesh& mesh, bool auto_pcast = true);

// The same for a collective of collectives.h.
template <class Op>
CollectiveState collective_state(const Op& op, const ValueState& x, const Mesh& mesh,
                                 bool auto_pcast = true) {
  bool grouped = false;
  if constexpr (requires { op.axis_index_groups; }) grouped = !op.axis_index_groups.empty();
  return collective_state(effect_of(op), Op::kName, op.axis_name, grouped, x, mesh, auto_pcast);
}
inline CollectiveState collective_state(const LinearCollective& op, const ValueState& x,
                                        const Mesh& mesh, bool auto_pcast = true) {
  return std::visit([&](const auto& each) { return collective_state(each, x, mesh, auto_pcast); },
                    op);
}

// The state of axis_index along these axes: varying. Error as above for an unbound name.
ValueState axis_index_state(const AxisNames& axes, const Mesh& mesh);

}  // namespace kref
