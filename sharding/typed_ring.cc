// SPDX-License-Identifier: Apache-2.0
#include "sharding/typed_ring.h"

#include <algorithm>

#include "kernels/dot.h"
#include "sharding/custom_vjp.h"
#include "sharding/graph.h"
#include "sharding/matmul_program.h"
#include "sharding/value_collectives.h"

namespace kref {
namespace {

// The extent of a whole array, of which a block has `local`.
Index whole(Index local, std::span<const std::string> axes, const Mesh& mesh) {
  return local * block_count(axes, mesh);
}

MatmulShape global_shape(const Value& x, const Value& y, const MatmulSpecs& specs) {
  const Mesh& mesh = x.mesh();
  MatmulShape s;
  s.m = whole(x.shape()[0], specs.x[0], mesh);
  s.k = whole(x.shape()[1], specs.x[1], mesh);
  s.n = whole(y.shape()[1], specs.y[1], mesh);
  const Index k = whole(y.shape()[0], specs.y[0], mesh);
  KREF_CHECK(k == s.k, "collective_matmul: x ", x.type(), " as ", to_string(specs.x),
             " has K = ", s.k, ", but y ", y.type(), " as ", to_string(specs.y), " has ", k);
  return s;
}

// Axes along which a value varies though no spec names them; Error where another spec does.
std::vector<std::string> other_axes(const char* name, const Value& x, const PartitionSpec& own,
                                    const MatmulSpecs& specs) {
  const ValueState& state = x.state();
  KREF_CHECK(!state.any(AxisState::kUnreduced) && !state.any(AxisState::kReduced),
             "collective_matmul: ", name, " is ", x.type(),
             ", expected neither unreduced nor reduced axes");
  std::vector<std::string> out;
  for (const std::string& axis : state.in(AxisState::kVarying, x.mesh())) {
    if (own.names(axis)) continue;
    const bool named = specs.x.names(axis) || specs.y.names(axis) || specs.z.spec.names(axis);
    KREF_CHECK(!named, "collective_matmul: ", name, " is ", x.type(), ", which varies along '",
               axis, "', but its spec ", to_string(own), " is whole there and other specs are not");
    out.push_back(axis);
  }
  return out;
}

// The state of blocks of a spec, in groups along other axes.
ValueState state_of(const PartitionSpec& spec, const std::vector<std::string>& others,
                    const Mesh& mesh) {
  ValueState out(mesh);
  for (std::size_t k = 0; k < mesh.axes().size(); ++k) {
    const std::string& axis = mesh.axes()[k].name;
    const bool varies = spec.names(axis) || std::ranges::count(others, axis) > 0;
    if (varies) out.axes[k] = AxisState::kVarying;
  }
  return out;
}

// x varying along all axes along which `wanted` does.
Value varying(const Value& x, const ValueState& wanted, CallSite where) {
  std::vector<std::string> missing;
  for (const std::string& axis : wanted.in(AxisState::kVarying, x.mesh())) {
    if (x.state().axes[x.mesh().index(axis)] == AxisState::kInvarying) missing.push_back(axis);
  }
  return missing.empty() ? x : pvary(x, AxisNames(missing), where);
}

// One product: its sizes, where its blocks are, how they are stored.
struct Product {
  MatmulShape shape;
  MatmulSpecs specs;
  CollectiveMatmulOptions options;
};

Value ring(const Product& p, const Value& x, const Value& y, DType dtype, const ValueState& state,
           CallSite where) {
  const Mesh& mesh = x.mesh();
  const MatmulPlacement placement = place_matmul(mesh, p.shape, p.specs.x, p.specs.y, p.specs.z);
  const RingPlan plan =
      plan_ring(placement, p.options.axis_name, p.options.form, p.options.direction);
  CollectiveMatmulOptions options = p.options;
  options.out_dtype = dtype;
  return detail::device_call_as(
      "collective_matmul", {x, y}, dtype, local_shape(p.specs.z.spec, p.shape.z(), mesh), state,
      [plan, options, where](Device& device, std::span<const Array> in) {
        return collective_matmul_block(device, plan, in[0], in[1], options, where);
      },
      where);
}

void check(const Value& x, const Value& y, const MatmulSpecs& specs,
           const CollectiveMatmulOptions& options) {
  KREF_CHECK(x.graph().checked(),
             "collective_matmul of Values needs check_vma, which proves what the specs claim");
  KREF_CHECK(x.shape().size() == 2 && y.shape().size() == 2 && x.dtype() == y.dtype() &&
                 is_float(x.dtype()) && has_product(x.dtype()),
             "collective_matmul: x is ", x.type(), " and y is ", y.type(),
             ", expected x [M, K] and y [K, N] of one float type");
  KREF_CHECK(specs.z.unreduced.empty(), "collective_matmul: out_specs.z ", to_string(specs.z),
             " keeps partial sums, expected a z that is summed");
  KREF_CHECK(!options.trans_x && !options.trans_y,
             "collective_matmul: expected x and y stored [M, K] and [K, N]");
}

}  // namespace

Value collective_matmul(const Value& given_x, const Value& given_y, const MatmulSpecs& specs,
                        const CollectiveMatmulOptions& options, CallSite where) {
  check(given_x, given_y, specs, options);
  const Mesh mesh = given_x.mesh();
  std::vector<std::string> others = other_axes("x", given_x, specs.x, specs);
  for (const std::string& axis : other_axes("y", given_y, specs.y, specs)) others.push_back(axis);
  const ValueState of_x = state_of(specs.x, others, mesh), of_y = state_of(specs.y, others, mesh),
                   of_z = state_of(specs.z.spec, others, mesh);
  const MatmulShape shape = global_shape(given_x, given_y, specs);
  const DType in = given_x.dtype(), out = detail::matmul_result_type(in, options.out_dtype);
  const auto fwd = [=](const Value& x, const Value& y) {
    return std::pair(ring({shape, specs, options}, x, y, out, of_z, where), std::pair(x, y));
  };
  const auto bwd = [=](const std::pair<Value, Value>& saved, const Value& z_ct) {
    const auto& [x, y] = saved;
    // The type of the operands, as the kernels want it.
    const Value ct = z_ct.dtype() == in ? z_ct : convert(z_ct, in, where);
    // ct.x [M, K] = ct y^T and ct.y [K, N] = x^T ct: the operands stay as they are stored.
    Product back_x{{.m = shape.m, .n = shape.k, .k = shape.n, .trans_y = true},
                   {specs.z.spec, specs.y, {specs.x, {}}},
                   options};
    Product back_y{{.m = shape.k, .n = shape.n, .k = shape.m, .trans_x = true},
                   {specs.x, specs.z.spec, {specs.y, {}}},
                   options};
    back_x.options.form = back_y.options.form = std::nullopt;
    back_x.options.trans_y = back_y.options.trans_x = true;
    return std::pair(ring(back_x, ct, y, in, of_x, where), ring(back_y, x, ct, in, of_y, where));
  };
  return custom_vjp(fwd, bwd)(varying(given_x, of_x, where), varying(given_y, of_y, where));
}

}  // namespace kref
