// SPDX-License-Identifier: Apache-2.0
// Who talks to whom in a collective, and what each device sends.
#include <algorithm>

#include "golden/collective_backward.h"
#include "golden/collective_run.h"
#include "golden/operation.h"
#include "golden/plan.h"
#include "sharding/collective_traits.h"

namespace kref {
namespace {

// Of a device in the largest group.
template <class Op>
void add_transfer(Plan& plan, const Op& op, const std::string& text, const char* operand,
                  const CollectiveRun& run, const std::vector<Index>& shape, Index n) {
  const auto bytes = static_cast<double>(op.sent_bytes(shape, run.x_dtype, n));
  plan.steps.push_back(detail::cat(text, " of ", operand, ' ', name_of(run.x_dtype),
                                   shape_string(shape), " a device"));
  plan.transfers.push_back({text + " of " + operand, bytes, detail::traffic_of(op),
                            op.axis_name.names, detail::groups_of(op)});
}

void add_sums(Plan& plan, const std::vector<Psum>& sums, const char* operand,
              const CollectiveRun& run, const std::vector<Index>& shape) {
  for (const Psum& sum : sums) {
    add_transfer(plan, sum, to_string(LinearCollective(sum)), operand, run, shape,
                 axis_size(run.mesh, sum.axis_name));
  }
}

void add_backward(Plan& plan, const CollectiveRun& run, Index n) {
  const CollectiveBackward steps = backward_of(run);
  if (!steps.checked) {
    plan.steps.push_back("of the devices with the same block of y, that with index 0 has ct.y");
  }
  add_sums(plan, steps.of_y, "ct.y", run, run.y_local);
  if (steps.transpose) {
    const std::string text = to_string(*steps.transpose);
    std::visit([&](const auto& op) { add_transfer(plan, op, text, "ct.y", run, run.y_local, n); },
               *steps.transpose);
  }
  add_sums(plan, steps.of_x, "ct.x", run, run.x_local);
}

template <class Op>
void add_forward(Plan& plan, const Op& op, const CollectiveRun& run, Index n) {
  if constexpr (std::is_same_v<Op, Pmax>) {
    const std::string text = detail::cat(name_of(run.which), '(', to_string(op.axis_name), ')');
    add_transfer(plan, op, text, "x", run, run.x_local, n);
  } else {
    add_transfer(plan, op, to_string(LinearCollective(op)), "x", run, run.x_local, n);
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
  const auto n = static_cast<Index>(most);
  if (run.vjp) {
    add_backward(plan, run, n);
  } else if (!run.axis_name.empty()) {
    std::visit([&](const auto& op) { add_forward(plan, op, run, n); }, run.value);
  }
  if (plan.steps.empty()) plan.steps.push_back("nothing: no axis is named");
  return plan;
}

}  // namespace kref
