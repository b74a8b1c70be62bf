// SPDX-License-Identifier: Apache-2.0
#include "sharding/graph.h"

#include <algorithm>

#include "sharding/value_collectives.h"

namespace kref {

Value::Value(detail::Graph& graph, Index node) : graph_(graph.weak_from_this()), node_(node) {}

detail::Graph& Value::graph() const {
  const std::shared_ptr<detail::Graph> graph = graph_.lock();
  KREF_CHECK(graph != nullptr, "a Value that no operation gave, or of a call that has ended");
  return *graph;
}

Tracer::Tracer(detail::Graph& graph) : graph_(graph.weak_from_this()) {}

detail::Graph& Tracer::graph() const {
  const std::shared_ptr<detail::Graph> graph = graph_.lock();
  KREF_CHECK(graph != nullptr, "a Tracer of a call that has ended");
  return *graph;
}

DType Value::dtype() const { return graph().node(node_).dtype; }
std::span<const Index> Value::shape() const { return graph().node(node_).shape; }
Index Value::size() const {
  return detail::checked_product("Value", shape().data(), shape().size());
}
ValueState Value::state() const { return graph().node(node_).state; }
const Mesh& Value::mesh() const { return graph().mesh(); }
std::string Value::type() const { return type_string(dtype(), shape(), state(), mesh()); }

namespace detail {
namespace {

// pcast: the same numbers, read differently.
class CastPrimitive final : public Primitive {
 public:
  explicit CastPrimitive(CastStep step) : step_(std::move(step)) {}
  std::string name() const override { return to_string(step_.cast); }
  std::string text() const override {
    return cat(name(), '(', to_string(AxisNames(step_.axes)), ')');
  }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override { return inputs[0]; }
  Cotangents pull_back(const Value& ct, std::span<const Value>, const Value&,
                       CallSite where) const override;

 private:
  CastStep step_;
};

Primitive::Cotangents CastPrimitive::pull_back(const Value& ct, std::span<const Value>,
                                               const Value&, CallSite where) const {
  switch (step_.cast) {
    case Cast::kPvary:
    case Cast::kPreduced:
      return {psum(ct, step_.axes, {}, where)};
    case Cast::kVaryUnreducedCast:
      return {
          ct.graph().cast(ct, std::vector{CastStep{Cast::kReducedVaryCast, step_.axes}}, where)};
    case Cast::kReducedVaryCast:
      break;
  }
  return {ct.graph().cast(ct, std::vector{CastStep{Cast::kVaryUnreducedCast, step_.axes}}, where)};
}

std::string id(Index node) { return cat('%', node); }

// A state for messages and listings: nothing to say in unchecked mode.
std::string type_of(const Graph& graph, const Node& node) {
  return type_string(node.dtype, node.shape,
                     graph.checked() ? node.state : ValueState(graph.mesh()), graph.mesh());
}

}  // namespace

Primitive::Cotangents Primitive::pull_back(const Value&, std::span<const Value>, const Value&,
                                           CallSite where) const {
  return at_line(where, [this]() -> Cotangents { throw Error(cat(name(), " has no derivative")); });
}

Value Graph::argument(DType dtype, const std::vector<Index>& shape, ValueState state) {
  nodes_.push_back({nullptr, {}, dtype, shape, std::move(state), {}});
  return Value(*this, size() - 1);
}

Value Graph::add(std::shared_ptr<const Primitive> op, std::span<const Value> inputs, DType dtype,
                 std::vector<Index> shape, ValueState state, CallSite where) {
  KREF_CHECK(shape.size() <= kMaxRank, op->name(), ": the result ", shape_string(shape),
             " has rank ", shape.size(), ", expected at most ", kMaxRank);
  checked_product(op->name().c_str(), shape.data(), shape.size());
  Node node{std::move(op), {}, dtype, std::move(shape), std::move(state), where};
  for (const Value& input : inputs) {
    KREF_CHECK(input.belongs_to(*this), node.op->name(),
               ": an operand that belongs to another call of a body");
    node.inputs.push_back(input.node());
  }
  nodes_.push_back(std::move(node));
  return Value(*this, size() - 1);
}

Value Graph::cast(const Value& x, std::span<const CastStep> steps, CallSite where) {
  Value out = x;
  if (!checked()) return out;
  for (const CastStep& step : steps) {
    const ValueState state = apply(step, out.state(), mesh_);
    const std::vector<Index> shape(out.shape().begin(), out.shape().end());
    out = add(std::make_shared<CastPrimitive>(step), std::span(&out, 1), out.dtype(), shape, state,
              where);
  }
  return out;
}

std::vector<Index> nodes_of(std::span<const Value> values) {
  std::vector<Index> out;
  for (const Value& value : values) out.push_back(value.node());
  return out;
}

std::vector<bool> Graph::needed(std::span<const Index> results) const {
  std::vector<bool> which(nodes_.size(), false);
  for (const Index i : results) which[static_cast<std::size_t>(i)] = true;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    if (!which[i]) continue;
    for (const Index input : nodes_[i].inputs) which[static_cast<std::size_t>(input)] = true;
  }
  return which;
}

std::string Graph::text(const std::vector<bool>& which) const {
  std::string out;
  for (Index i = 0; i < size(); ++i) {
    if (!which[static_cast<std::size_t>(i)]) continue;
    const Node& n = node(i);
    out += cat(out.empty() ? "" : "\n", id(i), ": ", type_of(*this, n), " = ",
               n.op ? n.op->text() : "argument");
    for (const Index input : n.inputs) out += ' ' + id(input);
  }
  return out;
}

Index Graph::count(const std::vector<bool>& which, std::string_view name) const {
  Index found = 0;
  for (Index i = 0; i < size(); ++i) {
    if (which[static_cast<std::size_t>(i)] && node(i).op && node(i).op->name() == name) ++found;
  }
  return found;
}

void run_graph(const Graph& graph, const std::vector<bool>& which, const std::vector<bool>& keep,
               Device& device, std::vector<std::optional<Array>>& values) {
  const auto runs = [&](std::size_t i) { return which[i] && !values[i]; };
  // The last node that reads each value.
  std::vector<Index> last(which.size(), -1);
  std::vector<bool> made(which.size(), false);
  for (std::size_t i = 0; i < which.size(); ++i) {
    made[i] = runs(i);
    if (!made[i]) continue;
    for (const Index input : graph.node(static_cast<Index>(i)).inputs) {
      last[static_cast<std::size_t>(input)] = static_cast<Index>(i);
    }
  }
  std::vector<Array> inputs;
  for (std::size_t i = 0; i < which.size(); ++i) {
    if (!made[i]) continue;
    const Node& node = graph.node(static_cast<Index>(i));
    KREF_DCHECK(node.op != nullptr);
    inputs.clear();
    for (const Index input : node.inputs)
      inputs.push_back(*values[static_cast<std::size_t>(input)]);
    values[i] = node.op->run(device, inputs, node.where);
    KREF_DCHECK(values[i]->dtype() == node.dtype &&
                std::ranges::equal(values[i]->shape(), node.shape));
    for (const Index input : node.inputs) {
      const auto k = static_cast<std::size_t>(input);
      if (made[k] && last[k] == static_cast<Index>(i) && !keep[k]) values[k].reset();
    }
  }
}

Promoted promoted(std::string_view operation, std::span<const Value> operands, CallSite where) {
  Promoted out;
  Graph& graph = operands[0].graph();
  out.operands.assign(operands.begin(), operands.end());
  for (const Value& operand : operands) out.states.push_back(operand.state());
  if (!graph.checked()) return out;
  const Promotion promotion = promote(operation, out.states, graph.mesh(), graph.auto_pcast());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    out.operands[i] = graph.cast(operands[i], promotion.casts[i], where);
  }
  out.states = promotion.operands;
  return out;
}

}  // namespace detail
}  // namespace kref
