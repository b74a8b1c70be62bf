// SPDX-License-Identifier: Apache-2.0
// Who talks to whom in a collective, and what each device sends.
#include <algorithm>

#include "golden/collective_run.h"
#include "golden/operation.h"
#include "golden/plan.h"
#include "sharding/collective_state.h"

namespace kref {
namespace {

// Of a device in the largest group.
template <class Op>
void add_transfer(Plan& plan, const Op& op, const std::string& text, const char* operand,
                  const CollectiveRun& run, const std::vector<Index>& shape, Index n) {
  const auto bytes = static_cast<double>(op.sent_bytes(shape, run.x_dtype, n));
  plan.steps.push_back(detail::cat(text, " of ", operand, ' ', name_of(run.x_dtype),
                                   shape_string(shape), " a device"));
  plan.transfers.push_back({text + " of " + operand, bytes});
}

// What a replicated x or a y that is handed out again costs the transpose: its pvary becomes a
// psum.
struct Boundary {
  std::vector<CastStep> in, out;
};

template <class Op>
Boundary boundary(const Op& op, const CollectiveRun& run) {
  try {
    const CollectiveState state =
        collective_state(op, input_state(run.in_spec, run.mesh), run.mesh);
    return {state.casts, output_casts(state.result, run.out_spec, run.mesh, "y")};
  } catch (const Error&) {
    return {};  // check_vma=True has no such program: a psum of groups, a gathered y replicated
  }
}

void add_sums(Plan& plan, const std::vector<CastStep>& casts, const char* operand,
              const CollectiveRun& run, const std::vector<Index>& shape) {
  for (const CastStep& cast : casts) {
    const Psum sum{AxisNames(cast.axes)};
    add_transfer(plan, sum, to_string(LinearCollective(sum)), operand, run, shape,
                 axis_size(run.mesh, cast.axes));
  }
}

template <class Op>
void add_value(Plan& plan, const Op& op, const CollectiveRun& run, Index n) {
  if constexpr (std::is_same_v<Op, Pmax>) {
    const std::string text = detail::cat(name_of(run.which), '(', to_string(op.axis_name), ')');
    add_transfer(plan, op, text, "x", run, run.x_local, n);
  } else if (!run.vjp) {
    add_transfer(plan, op, to_string(LinearCollective(op)), "x", run, run.x_local, n);
  } else {
    const Boundary edges = boundary(op, run);
    add_sums(plan, edges.out, "ct.y", run, run.y_local);
    const LinearCollective transposed = op.transpose(Typing::kChecked);
    const std::string text = to_string(transposed);
    std::visit([&](const auto& t) { add_transfer(plan, t, text, "ct.y", run, run.y_local, n); },
               transposed);
    add_sums(plan, edges.in, "ct.x", run, run.x_local);
  }
}

}  // namespace

Plan plan_collective(const Run& given) {
  const CollectiveRun run = read_collective(given);
  Plan plan;
  for (const std::vector<Index>& group :
       replica_groups(run.mesh, run.axis_name, run.given_groups)) {
    plan.groups.emplace_back();
    for (const Index device : group) plan.groups.back().push_back(run.mesh.device_name(device));
  }
  std::size_t least = plan.groups[0].size(), most = least;
  for (const auto& group : plan.groups) {
    least = std::min(least, group.size());
    most = std::max(most, group.size());
  }
  const Index devices = run.mesh.device_count();
  plan.summary =
      detail::cat(devices, devices == 1 ? " device in " : " devices in ", plan.groups.size(),
                  plan.groups.size() == 1 ? " group of " : " groups of ", least,
                  least == most ? "" : detail::cat(" to ", most));
  if (run.axis_name.empty()) {
    plan.steps.push_back("nothing: no axis is named");
    return plan;
  }
  std::visit([&](const auto& op) { add_value(plan, op, run, static_cast<Index>(most)); },
             run.value);
  return plan;
}

}  // namespace kref
