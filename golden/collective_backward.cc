// SPDX-License-Identifier: Apache-2.0
#include "golden/collective_backward.h"

#include "sharding/collective_state.h"

namespace kref {
namespace {

// A pvary transposes to a psum.
std::vector<Psum> sums_of(const std::vector<CastStep>& casts) {
  std::vector<Psum> out;
  for (const CastStep& cast : casts) out.push_back(Psum{AxisNames(cast.axes)});
  return out;
}

// Device by device, then over those that have the same block of x.
CollectiveBackward unchecked(const CollectiveRun& run) {
  CollectiveBackward out;
  Psum copies;
  for (const MeshAxis& axis : run.mesh.axes()) {
    if (!run.in_spec.names(axis.name)) copies.axis_name.names.push_back(axis.name);
  }
  if (!copies.axis_name.names.empty()) out.of_x.push_back(std::move(copies));
  return out;
}

}  // namespace

CollectiveBackward backward_of(const CollectiveRun& run) {
  return std::visit(
      [&]<class Op>(const Op& op) -> CollectiveBackward {
        if constexpr (std::is_same_v<Op, Pmax>) {
          KREF_DCHECK(false);  // it has no transpose, and no operation asks for it
          return {};
        } else {
          CollectiveBackward out;
          try {
            const CollectiveState state =
                collective_state(op, input_state(run.in_spec, run.mesh), run.mesh);
            out.of_y = sums_of(output_casts(state.result, run.out_spec, run.mesh, "y"));
            out.of_x = sums_of(state.casts);
            out.checked = true;
          } catch (const Error&) {
            out = unchecked(run);
          }
          if (!run.axis_name.empty()) {
            out.transpose = op.transpose(out.checked ? Typing::kChecked : Typing::kUnchecked);
          }
          return out;
        }
      },
      run.value);
}

}  // namespace kref
