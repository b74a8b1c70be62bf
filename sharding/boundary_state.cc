// SPDX-License-Identifier: Apache-2.0
// What states a shard_map's specs give to arguments and ask of results.
#include "sharding/axis_state.h"

namespace kref {
ValueState input_state(const Placement& in_spec, const Mesh& mesh) {
  StateSets sets{.unreduced = in_spec.unreduced, .reduced = in_spec.reduced, .kind = in_spec.kind};
  for (const MeshAxis& axis : mesh.axes()) {
    if (in_spec.spec.names(axis.name)) sets.varying.push_back(axis.name);
  }
  return ValueState(mesh, sets);
}

std::vector<CastStep> output_casts(const ValueState& value, const Placement& out_spec,
                                   const Mesh& mesh, std::string_view operand) {
  const ValueState wanted = input_state(out_spec, mesh);
  const std::vector<std::string> varying = value.in(AxisState::kVarying, mesh);
  const std::vector<std::string> named = wanted.in(AxisState::kVarying, mesh);
  std::vector<std::string> missing;
  for (const std::string& axis : varying) {
    if (wanted.axes[mesh.index(axis)] == AxisState::kInvarying) missing.push_back(axis);
  }
  KREF_CHECK(missing.empty(), std::string(operand), " is ", to_string(out_spec),
             ", so that the output may vary over ", set_string(named), " and must not over ",
             set_string(missing), ", but it may vary over ", set_string(varying),
             ": out_specs require replication which can't be statically inferred (psum or "
             "all_gather to invarying prove it; check_vma=false skips the proof)");

  CastStep fan_out{Cast::kPvary, {}};
  for (std::size_t k = 0; k < mesh.axes().size(); ++k) {
    const std::string& axis = mesh.axes()[k].name;
    const AxisState has = value.axes[k], wants = wanted.axes[k];
    if (has == AxisState::kInvarying && wants == AxisState::kVarying) {
      fan_out.axes.push_back(axis);
      continue;
    }
    KREF_CHECK(has == wants, std::string(operand), " is ", to_string(out_spec), ", but along '",
               axis, "' the output is ", to_string(has), ", expected ", to_string(wants),
               ": unreduced and reduced axes must match exactly");
  }
  KREF_CHECK(value.kind == wanted.kind, std::string(operand), " is ", to_string(out_spec),
             ", but the output has unreduced_kind ", to_string(value.kind));
  if (fan_out.axes.empty()) return {};
  return {std::move(fan_out)};
}

}  // namespace kref
