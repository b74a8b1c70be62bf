// SPDX-License-Identifier: Apache-2.0
// Runs a collective as its users would: a thread a device, each with its own block.
#include "golden/collective_backward.h"
#include "golden/collective_op.h"
#include "golden/collective_run.h"
#include "golden/run_launch.h"
#include "sharding/block_view.h"
#include "sharding/shard_map.h"

namespace kref {
namespace {

Array forward(const CollectiveRun& run, Device& device, const Array& x) {
  return std::visit([&](const auto& value) { return value(device, x); }, run.value);
}

// The cotangent of one device's block of x.
Array backward(const CollectiveBackward& steps, Device& device, const Array& ct) {
  Array out = ct;
  for (const Psum& sum : steps.of_y) out = sum(device, out);
  if (steps.transpose) out = apply(*steps.transpose, device, out);
  for (const Psum& sum : steps.of_x) out = sum(device, out);
  return out;
}

}  // namespace

std::map<std::string, Array> compute_collective(const Run& given) {
  const CollectiveRun run = read_collective(given);
  const CollectiveBackward steps = run.vjp ? backward_of(run) : CollectiveBackward{};
  const auto body = [&](Device& device, const Array& block) {
    if (!run.vjp) return forward(run, device, block);
    const bool counts =
        steps.checked || first_replica(run.out_spec, run.mesh, device.index()) == device.index();
    return backward(steps, device, counts ? block : Array(run.y_dtype, run.y_local));
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
