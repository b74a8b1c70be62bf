// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sharding/layer_run.h"

namespace kref {
namespace {

// The arguments of a call, in one order, with their names.
struct Arguments {
  std::vector<ShardArgument> arrays;
  std::vector<std::string> names;

  Arguments(const LayerOperands& operands, const ShardArgument* ct_y) {
    add("x", operands.x);
    add("w_in", operands.w_in);
    add("w_out", operands.w_out);
    if (operands.w_gate) add("w_gate", *operands.w_gate);
    if (ct_y != nullptr) add("ct.y", *ct_y);
  }
  void add(const char* name, const ShardArgument& array) {
    names.emplace_back(name);
    arrays.push_back(array);
  }
};

const char* dims_of(const std::string& name) {
  if (name == "w_out") return "[F, D]";
  return name == "x" || name == "ct.y" ? "[B, D]" : "[D, F]";
}

// Refuses what does not fit, by name.
void check_arguments(const Arguments& given, const Mesh& mesh, const LayerPlan& plan, bool gate) {
  KREF_CHECK(gate == plan.gate, "mlp: the plan ", plan.gate ? "has a" : "has no",
             " gate, but w_gate is ", gate ? "given" : "missing");
  const ArrayRef &x = given.arrays[0].view(), &w = given.arrays[1].view();
  for (std::size_t i = 0; i < given.names.size(); ++i) {
    const ArrayRef& array = given.arrays[i].view();
    KREF_CHECK(array.rank == 2, "mlp: ", given.names[i], " is ", to_string(array), ", expected ",
               dims_of(given.names[i]));
    KREF_CHECK(array.dtype == x.dtype, "mlp: ", given.names[i], " is ", to_string(array),
               ", expected the element type of x, ", name_of(x.dtype));
  }
  KREF_CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBF16 || x.dtype == DType::kF16,
             "mlp: x is ", to_string(x), ", expected F32, BF16 or F16");
  const Index b = x.extents[0], d = x.extents[1], f = w.extents[1];
  for (std::size_t i = 0; i < given.names.size(); ++i) {
    const ArrayRef& array = given.arrays[i].view();
    const std::string dims = dims_of(given.names[i]);
    const auto size = [&](char letter) { return letter == 'B' ? b : letter == 'D' ? d : f; };
    const std::vector<Index> expected{size(dims[1]), size(dims[4])};
    KREF_CHECK(array.extents[0] == expected[0] && array.extents[1] == expected[1],
               "mlp: ", given.names[i], " is ", to_string(array), ", expected ", dims, " = ",
               shape_string(expected));
  }
  check_layer(plan, mesh, b, d, f);
}
// A shard_map of the layer that gives the arrays of these names.
auto layer_map(const Mesh& mesh, const Arguments& given, const LayerOptions& options,
               std::vector<std::string> results, bool backward, std::vector<LayerMeter>* meters,
               CallSite where) {
  const LayerSpecs specs = layer_specs(options.plan);
  const auto primal = [](const std::string& name) {
    return name.starts_with("ct.") ? name.substr(3) : name;
  };
  std::vector<Placement> in, out;
  for (const std::string& name : given.names) in.emplace_back(spec_of(specs, primal(name)));
  for (const std::string& name : results) out.emplace_back(spec_of(specs, primal(name)));
  if (meters != nullptr) meters->assign(static_cast<std::size_t>(mesh.device_count()), {});
  const auto body = [options, backward, meters, where, names = given.names,
                     results = std::move(results)](Device& device, std::span<const Array> blocks) {
    LayerArrays arrays;
    for (std::size_t i = 0; i < names.size(); ++i) arrays[names[i]] = blocks[i];
    LayerMeter* meter =
        meters == nullptr ? nullptr : &(*meters)[static_cast<std::size_t>(device.index())];
    if (backward && options.microbatches > 1) {
      detail::layer_accumulate(device, options, arrays, meter, where);
    } else {
      detail::layer_pass(device, options, forward_steps(options.plan), arrays,
                         backward ? nullptr : meter, where);
      if (backward) {
        arrays.erase("y");
        detail::layer_pass(device, options, backward_steps(options.plan), arrays, meter, where);
      }
    }
    std::vector<Array> made;
    for (const std::string& name : results) made.push_back(arrays.at(name));
    return made;
  };
  return shard_map(mesh,
                   {.in_specs = Specs(in),
                    .out_specs = Specs(out),
                    .names = given.names,
                    .launch = options.launch},
                   body, where);
}

// The map of mlp_vjp: ct.x, ct.w_in, ct.w_out, and ct.w_gate where there is a gate.
auto vjp_map(const Mesh& mesh, const Arguments& given, const LayerOptions& options,
             std::vector<LayerMeter>* meters, CallSite where) {
  const bool gate = std::ranges::find(given.names, "w_gate") != given.names.end();
  check_arguments(given, mesh, options.plan, gate);
  const Index rows =
      given.arrays[0].view().extents[0] / block_count(layer_specs(options.plan).x[0], mesh);
  KREF_CHECK(options.microbatches >= 1 && rows % options.microbatches == 0,
             "mlp: ", options.microbatches, " microbatches of the ", rows,
             " rows that a device has, expected a divisor");
  std::vector<std::string> results{"ct.x", "ct.w_in", "ct.w_out"};
  if (gate) results.emplace_back("ct.w_gate");
  return layer_map(mesh, given, options, results, true, meters, where);
}

}  // namespace

Array mlp(const Mesh& mesh, const LayerOperands& operands, const LayerOptions& options,
          std::vector<LayerMeter>* meters, CallSite where) {
  const Arguments given(operands, nullptr);
  check_arguments(given, mesh, options.plan, operands.w_gate.has_value());
  return layer_map(mesh, given, options, {"y"}, false, meters, where).call(given.arrays)[0];
}

Sharded mlp_sharded(const Mesh& mesh, const LayerOperands& operands, const LayerOptions& options,
                    CallSite where) {
  const Arguments given(operands, nullptr);
  check_arguments(given, mesh, options.plan, operands.w_gate.has_value());
  return layer_map(mesh, given, options, {"y"}, false, nullptr, where)
      .call_sharded(given.arrays)[0];
}

LayerCotangents mlp_vjp(const Mesh& mesh, const LayerOperands& operands, const ShardArgument& ct_y,
                        const LayerOptions& options, std::vector<LayerMeter>* meters,
                        CallSite where) {
  const Arguments given(operands, &ct_y);
  std::vector<Array> made = vjp_map(mesh, given, options, meters, where).call(given.arrays);
  return {made[0], made[1], made[2], made.size() > 3 ? made[3] : Array()};
}

LayerShardedCotangents mlp_vjp_sharded(const Mesh& mesh, const LayerOperands& operands,
                                       const ShardArgument& ct_y, const LayerOptions& options,
                                       CallSite where) {
  const Arguments given(operands, &ct_y);
  std::vector<Sharded> made =
      vjp_map(mesh, given, options, nullptr, where).call_sharded(given.arrays);
  LayerShardedCotangents out{made[0], made[1], made[2]};
  if (made.size() > 3) out.w_gate = made[3];
  return out;
}

}  // namespace kref
