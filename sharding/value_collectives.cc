// SPDX-License-Identifier: Apache-2.0
#include "sharding/value_collectives.h"

#include <algorithm>

#include "sharding/block_view.h"
#include "sharding/collective_state.h"
#include "sharding/collective_traits.h"
#include "sharding/graph.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

class ConstantPrimitive final : public Primitive {
 public:
  explicit ConstantPrimitive(Array array) : array_(std::move(array)) {}
  std::string name() const override { return "constant"; }
  Array run(Device&, std::span<const Array>, CallSite) const override { return array_; }
  Cotangents pull_back(const Value&, std::span<const Value>, const Value&,
                       CallSite) const override {
    return {};
  }

 private:
  Array array_;
};

class AxisIndexPrimitive final : public Primitive {
 public:
  explicit AxisIndexPrimitive(AxisNames axes) : axes_(std::move(axes)) {}
  std::string name() const override { return "axis_index"; }
  std::string text() const override { return cat("axis_index(", to_string(axes_), ')'); }
  Array run(Device& device, std::span<const Array>, CallSite) const override {
    Array out = Array::unwritten(DType::kI32, {});
    out.mutable_elements<std::int32_t>()[0] = static_cast<std::int32_t>(device.axis_index(axes_));
    return out;
  }
  Cotangents pull_back(const Value&, std::span<const Value>, const Value&,
                       CallSite) const override {
    return {};
  }

 private:
  AxisNames axes_;
};

// What psum of an unreduced value transposes to: the sum's cotangent, the same on every device,
// is that of each term, and is so without anything being moved.
Value preduced(const Value& ct, const AxisNames& axes, CallSite where) {
  return ct.graph().cast(ct, std::vector{CastStep{Cast::kPreduced, axes.names}}, where);
}

// Any collective.
template <class Op>
class CollectivePrimitive final : public Primitive {
 public:
  explicit CollectivePrimitive(Op op) : op_(std::move(op)) {}

  std::string name() const override { return name_of_op(op_); }
  std::string text() const override {
    if constexpr (kLinear) return to_string(LinearCollective(op_));
    return cat(name(), '(', to_string(op_.axis_name), ')');
  }
  Array run(Device& device, std::span<const Array> inputs, CallSite where) const override {
    return op_(device, inputs[0], where);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value& result,
                       CallSite where) const override {
    if constexpr (kLinear) {
      if (unreduced(inputs[0])) return {unreduced_transpose(ct, where)};
      return {apply(op_.transpose(ct.graph().typing()), ct, where)};
    } else {
      return Primitive::pull_back(ct, inputs, result, where);
    }
  }

 private:
  static constexpr bool kLinear = std::is_constructible_v<LinearCollective, Op>;

  // collective_state has seen to it that all the axes are in one state.
  bool unreduced(const Value& x) const {
    if (!x.graph().checked() || op_.axis_name.names.empty()) return false;
    return x.state().axes[x.mesh().index(op_.axis_name.names[0])] == AxisState::kUnreduced;
  }
  Value unreduced_transpose(const Value& ct, CallSite where) const {
    if constexpr (std::is_same_v<Op, PsumScatter>) {
      return apply(AllGather{.axis_name = op_.axis_name,
                             .axis = op_.scatter_dimension,
                             .tiled = op_.tiled,
                             .to = GatherTo::kReduced},
                   ct, where);
    } else if constexpr (std::is_same_v<Op, Pmean>) {
      return divided_by(preduced(ct, op_.axis_name, where), axis_size(ct.mesh(), op_.axis_name),
                        where);
    } else {
      return preduced(ct, op_.axis_name, where);
    }
  }

  Op op_;
};

template <class Op>
Value record_unlocated(const Op& op, const Value& x, CallSite where) {
  Graph& graph = x.graph();
  const Mesh& mesh = graph.mesh();
  if (is_identity(op)) return x;
  CollectiveState state;
  if (graph.checked()) {
    state = collective_state(op, x.state(), mesh, graph.auto_pcast());
  } else {
    state.result = x.state();
  }
  const AxisIndexGroups& groups = groups_of(op);
  check_groups(mesh, op.axis_name, groups, group_sizes(op), name_of_op(op));
  // Of groups of several sizes what the smallest one cannot do is refused: all of them run it.
  Index n = axis_size(mesh, op.axis_name);
  for (const auto& group : groups) n = std::min(n, static_cast<Index>(group.size()));
  const Value operand = graph.cast(x, state.casts, where);
  ResultType type = result_type(op, x.shape(), x.dtype(), n);
  return graph.add(std::make_shared<CollectivePrimitive<Op>>(op), std::span(&operand, 1),
                   type.dtype, std::move(type.shape), state.result, where);
}

// Checks and records a collective on x.
template <class Op>
Value record(const Op& op, const Value& x, CallSite where) {
  return at_line(where, [&] { return record_unlocated(op, x, where); });
}

// Whether x is the same constant on every device, which a sum need not move.
bool is_constant(const Value& x) {
  const Node& node = x.graph().node(x.node());
  return dynamic_cast<const ConstantPrimitive*>(node.op.get()) != nullptr;
}

}  // namespace
}  // namespace detail

const Mesh& Tracer::mesh() const { return graph().mesh(); }

Value Tracer::constant(const Array& array, CallSite where) const {
  check_has_memory(array, "constant: the array");
  return graph().add(std::make_shared<detail::ConstantPrimitive>(array), {}, array.dtype(),
                     {array.shape().begin(), array.shape().end()}, ValueState(mesh()), where);
}

Value Tracer::zeros(DType dtype, const std::vector<Index>& shape, CallSite where) const {
  return constant(Array(dtype, shape), where);
}

Value Tracer::axis_index(const AxisNames& axes, CallSite where) const {
  check_groups(mesh(), axes, {}, GroupSizes::kAny, "axis_index");
  const ValueState state = graph().checked() ? axis_index_state(axes, mesh()) : ValueState(mesh());
  return graph().add(std::make_shared<detail::AxisIndexPrimitive>(axes), {}, DType::kI32, {}, state,
                     where);
}

Value apply(const LinearCollective& op, const Value& x, CallSite where) {
  if (const Pvary* cast = std::get_if<Pvary>(&op); cast != nullptr && !cast->mean) {
    return pvary(x, cast->axis_name, where);
  }
  return std::visit([&](const auto& each) { return detail::record(each, x, where); }, op);
}

Value psum(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups,
           CallSite where) {
  const Psum op{axis_name, groups};
  const bool even = std::ranges::all_of(
      groups, [&](const auto& group) { return group.size() == groups[0].size(); });
  if (even && detail::is_constant(x) && !detail::is_identity(op)) {
    detail::at_line(where, [&] {
      check_groups(x.mesh(), axis_name, groups, detail::group_sizes(op), "psum");
      return 0;
    });
    const Index n =
        groups.empty() ? axis_size(x.mesh(), axis_name) : static_cast<Index>(groups[0].size());
    return scale(convert(x, op.result_dtype(x.dtype()), where), static_cast<double>(n), where);
  }
  return detail::record(op, x, where);
}

Value pmean(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups,
            CallSite where) {
  return detail::record(Pmean{axis_name, groups}, x, where);
}

Value all_gather(const Value& x, const AxisNames& axis_name, const AllGatherOptions& options,
                 CallSite where) {
  return detail::record(
      AllGather{axis_name, options.axis, options.tiled, options.axis_index_groups, options.to}, x,
      where);
}

Value psum_scatter(const Value& x, const AxisNames& axis_name, const PsumScatterOptions& options,
                   CallSite where) {
  return detail::record(PsumScatter{axis_name, options.scatter_dimension, options.tiled,
                                    options.axis_index_groups, options.sum},
                        x, where);
}

Value all_to_all(const Value& x, const AxisNames& axis_name, Index split_axis, Index concat_axis,
                 const AllToAllOptions& options, CallSite where) {
  return detail::record(
      AllToAll{axis_name, split_axis, concat_axis, options.tiled, options.axis_index_groups}, x,
      where);
}

Value pswapaxes(const Value& x, const AxisNames& axis_name, Index axis,
                const AxisIndexGroups& groups, CallSite where) {
  return detail::record(pswapaxes_op(axis_name, axis, groups), x, where);
}

Value ppermute(const Value& x, const AxisNames& axis_name,
               const std::vector<std::pair<Index, Index>>& perm, CallSite where) {
  return detail::record(Ppermute{axis_name, perm}, x, where);
}

Value pshuffle(const Value& x, const AxisNames& axis_name, const std::vector<Index>& perm,
               CallSite where) {
  return detail::record(pshuffle_op(axis_name, perm), x, where);
}

Value pbroadcast(const Value& x, const AxisNames& axis_name, Index source,
                 const AxisIndexGroups& groups, CallSite where) {
  return detail::record(Pbroadcast{axis_name, source, groups}, x, where);
}

Value pmax(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups,
           CallSite where) {
  return detail::record(Pmax{axis_name, groups}, x, where);
}
Value pmin(const Value& x, const AxisNames& axis_name, const AxisIndexGroups& groups,
           CallSite where) {
  return detail::record(Pmax{axis_name, groups, true}, x, where);
}
Value pargmax(const Value& x, const AxisNames& axis_name, CallSite where) {
  return detail::record(Pargmax{axis_name}, x, where);
}
Value pargmin(const Value& x, const AxisNames& axis_name, CallSite where) {
  return detail::record(Pargmax{axis_name, true}, x, where);
}

Value pcast(const Value& x, const AxisNames& axis_name, AxisState to, CallSite where) {
  detail::Graph& graph = x.graph();
  if (!graph.checked()) return x;
  return detail::at_line(where, [&] {
    const std::optional<CastStep> step = pcast(x.state(), axis_name, to, graph.mesh());
    return step ? graph.cast(x, std::span(&*step, 1), where) : x;
  });
}

Value pvary(const Value& x, const AxisNames& axis_name, CallSite where) {
  return pcast(x, axis_name, AxisState::kVarying, where);
}

}  // namespace kref
