// SPDX-License-Identifier: Apache-2.0
#include "sharding/sharded_matmul.h"

#include <algorithm>

#include "sharding/block_view.h"
#include "sharding/local_math.h"
#include "sharding/matmul_program.h"

namespace kref {
namespace detail {
namespace {

// The part of a device's partial sum that `device` wants once everything is cut.
ArrayRef part_of(const ArrayRef& partial, const ScatterParts& parts, const MatmulShape& shape,
                 const Mesh& mesh, Index device) {
  ArrayRef part = partial;
  for (const MatmulStep& step : parts.cuts) {
    const std::size_t d = stored_dimension(shape, step);
    part.extents[d] /= block_count(step.axes, mesh);
    if (part.data == nullptr) continue;
    const Index begin = block_index(step.axes, mesh, device) * part.extents[d] * part.strides[d];
    part.data =
        static_cast<const char*>(part.data) + begin * static_cast<Index>(size_of(part.dtype));
  }
  return part;
}

// [n, elements]: the parts that the members of this device's group want, by rank.
Array parts_by_rank(const Array& partial, const ScatterParts& parts, const MatmulShape& shape,
                    const Device& device) {
  const ReplicaGroup group = replica_group(device.mesh(), parts.sum.axis_name, {}, device.index());
  const ArrayRef own = part_of(partial, parts, shape, device.mesh(), device.index());
  Array out = Array::unwritten(partial.dtype(), std::array{group.size(), own.size()});
  MutableArrayRef place(partial.dtype(), own.shape(), out.mutable_data());
  const Index bytes = own.size() * static_cast<Index>(size_of(partial.dtype()));
  for (const Index member : group.members) {
    copy_elements(part_of(partial, parts, shape, device.mesh(), member), place);
    if (place.data != nullptr) place.data = static_cast<char*>(place.data) + bytes;
  }
  return out;
}

// Scatters them, and gives this device's part its shape again.
Array scatter_parts(Device& device, const MatmulPlacement& placement, const ScatterParts& parts,
                    const Array& partial, CallSite where) {
  const ArrayRef own = part_of(partial, parts, placement.shape, device.mesh(), device.index());
  const Array sum =
      parts.sum(device, parts_by_rank(partial, parts, placement.shape, device), where);
  return Array(sum.dtype(), own.shape(), sum.owner(), sum.data());
}

Array local_product(const MatmulPlacement& placement, const Array& x, const Array& y,
                    const ShardedMatmulOptions& options) {
  // What is still to be added is kept as it was summed.
  const DType type = placement.contraction.empty()
                         ? matmul_result_type(x.dtype(), options.out_dtype)
                         : accumulator_of(x.dtype());
  return matmul(x, y, {options.trans_x, options.trans_y, options.precision, options.tile}, type);
}

}  // namespace

DType matmul_result_type(DType in, const std::optional<DType>& asked) {
  return asked.value_or(is_float(in) ? in : DType::kI32);
}

MatmulShape matmul_shape(const ArrayRef& x, const ArrayRef& y, bool trans_x, bool trans_y,
                         const char* context) {
  MatmulShape shape;
  const MatmulSizes sizes = matmul_sizes(x, y, trans_x, trans_y, context);
  KREF_CHECK(x.dtype == y.dtype && has_product(x.dtype), context, "x is ", to_string(x), " and y ",
             to_string(y), ", expected one element type that has a product");
  shape.batch.assign(x.shape().begin(), x.shape().end() - 2);
  shape.m = sizes.m, shape.n = sizes.n, shape.k = sizes.k;
  shape.shared_y = sizes.shared_y;
  shape.trans_x = trans_x, shape.trans_y = trans_y;
  return shape;
}

void run_action(Device& device, const MatmulPlacement& placement, const MatmulAction& action,
                Array (&operands)[3], const ShardedMatmulOptions& options, CallSite where) {
  Array& operand = operands[action.operand - 'x'];
  if (std::holds_alternative<LocalProduct>(action.what)) {
    operand = local_product(placement, operands[0], operands[1], options);
    operands[0] = operands[1] = Array();
  } else if (const auto* parts = std::get_if<ScatterParts>(&action.what)) {
    operand = scatter_parts(device, placement, *parts, operand, where);
  } else if (const auto* gather = std::get_if<AllGather>(&action.what)) {
    operand = (*gather)(device, operand, where);
  } else if (const auto* slice = std::get_if<OwnSlice>(&action.what)) {
    operand = (*slice)(device, operand, where);
  } else if (const auto* sum = std::get_if<Psum>(&action.what)) {
    operand = (*sum)(device, operand, where);
  } else {
    operand = std::get<PsumScatter>(action.what)(device, operand, where);
  }
}

}  // namespace detail

Array matmul_block(Device& device, const MatmulPlacement& placement, const Array& x, const Array& y,
                   const ShardedMatmulOptions& options, CallSite where) {
  Array operands[] = {x, y, Array()};
  for (const detail::MatmulAction& action : detail::matmul_actions(placement)) {
    detail::run_action(device, placement, action, operands, options, where);
  }
  const DType type = detail::matmul_result_type(x.dtype(), options.out_dtype);
  return operands[2].dtype() == type ? operands[2] : converted(operands[2], type);
}

namespace {

// What matmul refuses of a device's product, before there is one: where sums are still to be added,
// it would not see the type.
void check_options(DType in, const ShardedMatmulOptions& options) {
  const DType z = detail::matmul_result_type(in, options.out_dtype);
  KREF_CHECK(stores_product(in, z), "sharded_matmul: out_dtype is ", name_of(z), ", expected ",
             product_types(in), " for operands of ", name_of(in));
  check_tile(options.tile, "sharded_matmul: ");
}

// The shard_map of one product.
auto product_map(const Mesh& mesh, const MatmulSpecs& specs, const Placement& z,
                 const ShardArgument& x, const ShardArgument& y,
                 const ShardedMatmulOptions& options, CallSite where) {
  const MatmulShape shape = detail::matmul_shape(x.view(), y.view(), options.trans_x,
                                                 options.trans_y, "sharded_matmul: ");
  check_options(x.view().dtype, options);
  const auto body = [placement =
                         place_matmul(mesh, shape, specs.x, specs.y, specs.z, options.one_sided),
                     options, where](Device& device, const Array& a, const Array& b) {
    return matmul_block(device, placement, a, b, options, where);
  };
  return shard_map(mesh,
                   {.in_specs = {specs.x, specs.y},
                    .out_specs = {z},
                    .names = {"x", "y"},
                    .launch = options.launch},
                   body, where);
}

// The spec of an operand that lives on a mesh; reduced is replicated here.
const PartitionSpec& operand_spec(const Sharded& operand, const char* name) {
  KREF_CHECK(operand.placement().unreduced.empty(), "sharded_matmul: ", name, " is ",
             operand.type(), ", which is unreduced; sum or scatter it first (reshard)");
  KREF_CHECK(operand.placement().reduced.empty(), "sharded_matmul: ", name, " is ", operand.type(),
             ", which is reduced; expected a plain sharding");
  return operand.placement().spec;
}

}  // namespace

Array sharded_matmul(const Mesh& mesh, const MatmulSpecs& specs, const ShardArgument& x,
                     const ShardArgument& y, const ShardedMatmulOptions& options, CallSite where) {
  const Placement z(specs.z.spec, {.unreduced = specs.z.unreduced});
  return product_map(mesh, specs, z, x, y, options, where)(x, y);
}

Sharded sharded_matmul(const Sharded& x, const Sharded& y, const Placement& z,
                       const ShardedMatmulOptions& options, CallSite where) {
  KREF_CHECK(x.mesh() == y.mesh(), "sharded_matmul: x lives on the mesh ", to_string(x.mesh()),
             " and y on ", to_string(y.mesh()));
  KREF_CHECK(z.reduced.empty() && z.kind == UnreducedKind::kSum, "sharded_matmul: z as ",
             to_string(z), ", expected a plain sharding or the terms of a sum");
  const MatmulSpecs specs{operand_spec(x, "x"), operand_spec(y, "y"), {z.spec, z.unreduced}};
  return product_map(x.mesh(), specs, z, x, y, options, where).sharded(x, y)[0];
}

}  // namespace kref
