// SPDX-License-Identifier: Apache-2.0
// Runs a collective as its users would: a thread a device, each with its own block.
#include "golden/collective_op.h"
#include "golden/collective_run.h"
#include "golden/run_launch.h"
#include "sharding/shard_map.h"

namespace kref {
namespace {

Array forward(const CollectiveRun& run, Device& device, const Array& x) {
  // Without an axis all are the identity; sums of bool and means of integers still change the type.
  if (run.axis_name.empty()) {
    if (run.which == Collective::kPmean) return Pmean{}(device, x);
    return is_sum(run.which) ? Psum{}(device, x) : x;
  }
  return std::visit([&](const auto& value) { return value(device, x); }, run.value);
}

// The cotangent of one device's block of x, where `ct` is 0 but on the devices whose block of y
// counts: transposed device by device, and summed over those that have the same block of x.
Array backward(const CollectiveRun& run, Device& device, const Array& ct) {
  Array out = ct;
  if (!run.axis_name.empty()) {
    out = std::visit(
        [&]<class Value>(const Value& value) -> Array {
          if constexpr (std::is_same_v<Value, Pmax>) {
            return ct;  // it has no transpose, and no operation asks for it
          } else {
            return apply(value.transpose(Typing::kUnchecked), device, ct);
          }
        },
        run.value);
  }
  Psum copies;
  for (const MeshAxis& axis : run.mesh.axes()) {
    if (!run.in_spec.names(axis.name)) copies.axis_name.names.push_back(axis.name);
  }
  return copies.axis_name.names.empty() ? out : copies(device, out);
}

// Is this the device whose block of y counts, of those that hold the same one?
bool representative(const CollectiveRun& run, const Device& device) {
  const std::vector<Index> at = run.mesh.coordinates(device.index());
  for (std::size_t a = 0; a < at.size(); ++a) {
    if (at[a] != 0 && !run.out_spec.names(run.mesh.axes()[a].name)) return false;
  }
  return true;
}

}  // namespace

std::map<std::string, Array> compute_collective(const Run& given) {
  const CollectiveRun run = read_collective(given);
  const auto body = [&](Device& device, const Array& block) {
    if (!run.vjp) return forward(run, device, block);
    const bool counts = representative(run, device);
    return backward(run, device, counts ? block : Array(run.y_dtype, run.y_local));
  };
  const PartitionSpec &from = run.vjp ? run.out_spec : run.in_spec,
                      &to = run.vjp ? run.in_spec : run.out_spec;
  const char *in = run.vjp ? "ct.y" : "x", *out = run.vjp ? "ct.x" : "y";
  const auto program = shard_map(run.mesh,
                                 {.in_specs = {from},
                                  .out_specs = {to},
                                  .names = {in},
                                  .check_vma = false,
                                  .launch = run_launch()},
                                 body);
  std::map<std::string, Array> outputs;
  outputs.emplace(out, program(given.in.at(in)));
  return outputs;
}

}  // namespace kref
