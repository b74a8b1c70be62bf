// SPDX-License-Identifier: Apache-2.0
// How results of operations on whole arrays are sharded: elementwise, dot_general, reductions.
#include <algorithm>

#include "dsl/array.h"
#include "sharding/arithmetic_rules.h"

namespace kref {
namespace {

// The axes of a dimension, as a PartitionSpec's entry.
std::vector<std::string> entry(const PartitionSpec& spec, std::size_t d) {
  const std::span<const std::string> axes = spec[d];
  return {axes.begin(), axes.end()};
}

// "('x', None)": the entries of some dimensions.
PartitionSpec part(const PartitionSpec& spec, std::span<const std::size_t> dims) {
  PartitionSpec out;
  for (const std::size_t d : dims) out.entries.push_back(entry(spec, d));
  return out;
}

void check_operand(const GlobalType& type, const Mesh& mesh, std::string_view operand) {
  check_placement(type.placement, type.shape, mesh, operand);
}

// A type whose spec was put together: with the unreduced and reduced axes of `state`. Error for an
// axis on two dimensions.
GlobalType result_type(std::string_view operation, std::span<const GlobalType> operands,
                       std::vector<Index> shape, PartitionSpec spec, const ValueState& state,
                       const Mesh& mesh) {
  const auto* const first = std::find_if(operands.data(), operands.data() + operands.size(),
                                         [](const GlobalType& each) { return !each.literal; });
  GlobalType out{first->dtype, std::move(shape), Placement(std::move(spec))};
  std::vector<std::string> seen;
  for (const auto& axes : out.placement.spec.entries) {
    for (const std::string& axis : axes) {
      const bool twice = std::find(seen.begin(), seen.end(), axis) != seen.end();
      std::string inputs;
      for (const GlobalType& each : operands) {
        inputs += detail::cat(inputs.empty() ? "" : ", ", to_string(each, mesh));
      }
      KREF_CHECK(!twice, std::string(operation), " operation with inputs: ", inputs,
                 " produces an illegally sharded result: ", to_string(out, mesh));
      seen.push_back(axis);
    }
  }
  out.placement.unreduced = state.in(AxisState::kUnreduced, mesh);
  out.placement.reduced = state.in(AxisState::kReduced, mesh);
  out.placement.kind = state.kind;
  return out;
}

std::vector<ArithmeticOperand> states(std::span<const GlobalType> operands, const Mesh& mesh) {
  std::vector<ArithmeticOperand> out;
  for (const GlobalType& each : operands) {
    out.emplace_back(input_state(each.placement, mesh), each.literal);
  }
  return out;
}

// dims are dimensions of `type`, each once; counted in `used`.
void check_dims(const GlobalType& type, std::span<const std::size_t> dims, std::vector<bool>& used,
                std::string_view operand) {
  for (const std::size_t d : dims) {
    KREF_CHECK(d < type.shape.size() && !used[d], std::string(operand), ": dimension ", d,
               d < type.shape.size() ? " is named twice" : " does not exist", "; the shape is ",
               shape_string(type.shape));
    used[d] = true;
  }
}

}  // namespace

std::string to_string(const GlobalType& type, const Mesh& mesh) {
  return type.literal ? "a literal" : type_string(type.dtype, type.shape, type.placement, mesh);
}

GlobalType elementwise_type(Arithmetic rule, std::string_view operation,
                            std::span<const GlobalType> operands, const Mesh& mesh) {
  const std::string name(operation);
  std::vector<Index> shape;
  PartitionSpec spec;
  bool any = false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].literal) continue;
    const GlobalType& each = operands[i];
    check_operand(each, mesh, detail::cat(name, ": operand ", i));
    if (!any) shape.resize(each.shape.size(), 1), spec.entries.resize(shape.size());
    any = true;
    KREF_CHECK(each.shape.size() == shape.size(), name, ": operand ", i, " is ",
               to_string(each, mesh), ", expected rank ", shape.size());
    for (std::size_t d = 0; d < shape.size(); ++d) {
      KREF_CHECK(each.shape[d] == shape[d] || each.shape[d] == 1 || shape[d] == 1, name,
                 ": operand ", i, " is ", to_string(each, mesh), ", expected extent ", shape[d],
                 " of dimension ", d);
      if (each.shape[d] != 1) shape[d] = each.shape[d];
      std::vector<std::string>& axes = spec.entries[d];
      std::vector<std::string> own = entry(each.placement.spec, d);
      KREF_CHECK(axes.empty() || own.empty() || axes == own, name,
                 " got incompatible shardings for broadcasting: dimension ", d, " is over ",
                 axes_string(axes), " and, of operand ", i, ", over ", axes_string(own));
      if (axes.empty()) axes = std::move(own);
    }
  }
  KREF_CHECK(any, name, ": no operand is an array");
  const ValueState state = arithmetic_state(rule, operation, states(operands, mesh), mesh);
  return result_type(operation, operands, std::move(shape), std::move(spec), state, mesh);
}

GlobalType dot_general_type(const GlobalType& lhs, const GlobalType& rhs, const DotDims& dims,
                            const Mesh& mesh, const std::optional<Placement>& out_sharding) {
  check_operand(lhs, mesh, "dot_general: lhs");
  check_operand(rhs, mesh, "dot_general: rhs");
  std::vector<bool> of_lhs(lhs.shape.size()), of_rhs(rhs.shape.size());
  check_dims(lhs, dims.lhs_batch, of_lhs, "dot_general: lhs");
  check_dims(lhs, dims.lhs_contracting, of_lhs, "dot_general: lhs");
  check_dims(rhs, dims.rhs_batch, of_rhs, "dot_general: rhs");
  check_dims(rhs, dims.rhs_contracting, of_rhs, "dot_general: rhs");
  const auto check_equal = [&](const std::vector<std::size_t>& l, const std::vector<std::size_t>& r,
                               const char* what) {
    bool equal = l.size() == r.size();
    for (std::size_t i = 0; equal && i < l.size(); ++i) equal = lhs.shape[l[i]] == rhs.shape[r[i]];
    KREF_CHECK(equal, "dot_general: the ", what, " dimensions of ", to_string(lhs, mesh), " and ",
               to_string(rhs, mesh), " do not have the same extents");
  };
  check_equal(dims.lhs_batch, dims.rhs_batch, "batch");
  check_equal(dims.lhs_contracting, dims.rhs_contracting, "contracting");

  const GlobalType operands[] = {lhs, rhs};
  const ValueState state =
      arithmetic_state(Arithmetic::kDot, "dot_general", states(operands, mesh), mesh);
  const PartitionSpec lhs_batch = part(lhs.placement.spec, dims.lhs_batch);
  const PartitionSpec rhs_batch = part(rhs.placement.spec, dims.rhs_batch);
  KREF_CHECK(lhs_batch == rhs_batch,
             "dot_general requires lhs batch dimensions and rhs batch dimensions to have the "
             "consistent sharding, got ",
             to_string(lhs_batch), " and ", to_string(rhs_batch));
  const PartitionSpec lhs_contracting = part(lhs.placement.spec, dims.lhs_contracting);
  const PartitionSpec rhs_contracting = part(rhs.placement.spec, dims.rhs_contracting);

  std::vector<Index> shape;
  PartitionSpec spec;
  const auto add = [&](const GlobalType& type, std::size_t d) {
    shape.push_back(type.shape[d]);
    spec.entries.push_back(entry(type.placement.spec, d));
  };
  for (const std::size_t d : dims.lhs_batch) add(lhs, d);
  for (std::size_t d = 0; d < of_lhs.size(); ++d) {
    if (!of_lhs[d]) add(lhs, d);
  }
  for (std::size_t d = 0; d < of_rhs.size(); ++d) {
    if (!of_rhs[d]) add(rhs, d);
  }

  if (out_sharding) {
    check_placement(*out_sharding, shape, mesh, "dot_general: out_sharding");
    if (!out_sharding->unreduced.empty()) {
      KREF_CHECK(lhs_contracting == rhs_contracting,
                 "dot_general: lhs and rhs contracting dims should be sharded identically when "
                 "out_sharding mentions unreduced axes; got lhs ",
                 to_string(lhs_contracting), " and rhs ", to_string(rhs_contracting));
      std::vector<std::string> contracted;
      for (const auto& axes : lhs_contracting.entries) {
        contracted.insert(contracted.end(), axes.begin(), axes.end());
      }
      const ValueState found(mesh, {.unreduced = out_sharding->unreduced});
      KREF_CHECK(found == ValueState(mesh, {.unreduced = contracted}),
                 "dot_general: out_sharding's unreduced axes should be equal to the contracting "
                 "specs; got unreduced axes ",
                 set_string(out_sharding->unreduced), " and contracting spec ",
                 to_string(lhs_contracting));
      KREF_CHECK(out_sharding->kind == UnreducedKind::kSum,
                 "dot_general: out_sharding has unreduced_kind ", to_string(out_sharding->kind),
                 ", expected sum");
    }
    return {lhs.dtype, std::move(shape), *out_sharding};
  }

  for (std::size_t i = 0; i < dims.lhs_contracting.size(); ++i) {
    KREF_CHECK(lhs_contracting[i].empty() || rhs_contracting[i].empty(),
               "dot_general: Contracting dimensions are sharded and it is ambiguous how the output "
               "should be sharded; give out_sharding. Got lhs ",
               to_string(lhs_contracting), " and rhs ", to_string(rhs_contracting));
  }
  return result_type("dot_general", operands, std::move(shape), std::move(spec), state, mesh);
}

GlobalType reduce_type(Arithmetic rule, const GlobalType& operand,
                       std::span<const std::size_t> dims, const Mesh& mesh,
                       const std::optional<Placement>& out_sharding) {
  UnreducedKind kind = UnreducedKind::kSum;
  const char* name = "reduce_sum";
  if (rule == Arithmetic::kReduceMax) kind = UnreducedKind::kMax, name = "reduce_max";
  if (rule == Arithmetic::kReduceMin) kind = UnreducedKind::kMin, name = "reduce_min";
  KREF_DCHECK(rule == Arithmetic::kReduceSum || kind != UnreducedKind::kSum);
  check_operand(operand, mesh, name);
  std::vector<bool> gone(operand.shape.size());
  check_dims(operand, dims, gone, name);

  const std::span<const GlobalType> operands(&operand, 1);
  const ValueState state = arithmetic_state(rule, name, states(operands, mesh), mesh);
  std::vector<Index> shape;
  PartitionSpec spec;
  std::vector<std::string> summed = operand.placement.unreduced;
  for (std::size_t d = 0; d < gone.size(); ++d) {
    const std::vector<std::string> axes = entry(operand.placement.spec, d);
    if (gone[d]) {
      summed.insert(summed.end(), axes.begin(), axes.end());
    } else {
      shape.push_back(operand.shape[d]);
      spec.entries.push_back(axes);
    }
  }
  if (out_sharding) {
    check_placement(*out_sharding, shape, mesh, detail::cat(name, ": out_sharding"));
    for (const std::string& axis : out_sharding->unreduced) {
      KREF_CHECK(std::find(summed.begin(), summed.end(), axis) != summed.end(), name,
                 ": out_sharding's unreduced axes should be in operand's specs that were summed "
                 "over; got '",
                 axis, "' of ", to_string(*out_sharding), " for ", to_string(operand, mesh));
    }
    KREF_CHECK(out_sharding->unreduced.empty() || out_sharding->kind == kind, name,
               ": out_sharding has unreduced_kind ", to_string(out_sharding->kind), ", expected ",
               to_string(kind));
    return {operand.dtype, std::move(shape), *out_sharding};
  }
  return result_type(name, operands, std::move(shape), std::move(spec), state, mesh);
}

}  // namespace kref
