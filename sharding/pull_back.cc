// SPDX-License-Identifier: Apache-2.0
// Reverse mode on a Graph: the cotangent of each node is the sum of what its users pull back.
#include <algorithm>

#include "sharding/graph.h"

namespace kref::detail {
namespace {

// A cotangent has the element type, the shape and the dual state of its value, whatever rule made
// it.
void check_cotangent(const Value& ct, const Value& primal, const std::string& rule,
                     CallSite where) {
  const bool fits = ct.dtype() == primal.dtype() &&
                    std::ranges::equal(ct.shape(), primal.shape()) &&
                    (!ct.graph().checked() || ct.state() == cotangent(primal.state()));
  at_line(where, [&] {
    KREF_CHECK(
        fits, rule, ": the cotangent of an operand ", primal.type(), " is ", ct.type(),
        ", expected ",
        type_string(primal.dtype(), primal.shape(), cotangent(primal.state()), primal.mesh()));
    return 0;
  });
}

// Zero, in the state that the cotangent of `primal` has.
Value zero_cotangent(const Value& primal, CallSite where) {
  Graph& graph = primal.graph();
  const Value zero =
      Tracer(graph).zeros(primal.dtype(), {primal.shape().begin(), primal.shape().end()}, where);
  if (!graph.checked()) return zero;
  const ValueState state = cotangent(primal.state());
  std::vector<CastStep> casts;
  std::vector<std::string> varying = state.in(AxisState::kVarying, graph.mesh());
  const std::vector<std::string> terms = state.in(AxisState::kUnreduced, graph.mesh());
  const std::vector<std::string> reduced = state.in(AxisState::kReduced, graph.mesh());
  // In mesh order, as CastStep wants them.
  std::vector<std::string> apart;
  for (const MeshAxis& axis : graph.mesh().axes()) {
    if (std::ranges::count(varying, axis.name) + std::ranges::count(terms, axis.name) > 0) {
      apart.push_back(axis.name);
    }
  }
  if (!apart.empty()) casts.push_back({Cast::kPvary, apart});
  if (!terms.empty()) casts.push_back({Cast::kVaryUnreducedCast, terms});
  if (!reduced.empty()) casts.push_back({Cast::kPreduced, reduced});
  return graph.cast(zero, casts, where);
}

// Which nodes depend on one of the arguments: no other has a cotangent that anybody asks for.
std::vector<bool> dependents(const Graph& graph, std::span<const Value> arguments) {
  std::vector<bool> depends(static_cast<std::size_t>(graph.size()), false);
  for (const Value& argument : arguments) depends[static_cast<std::size_t>(argument.node())] = true;
  for (std::size_t i = 0; i < depends.size(); ++i) {
    for (const Index input : graph.node(static_cast<Index>(i)).inputs) {
      if (depends[static_cast<std::size_t>(input)]) depends[i] = true;
    }
  }
  return depends;
}

}  // namespace

std::vector<Value> pull_back(Graph& graph, std::span<const Value> results,
                             std::span<const std::optional<Value>> cts,
                             std::span<const Value> arguments) {
  const std::vector<bool> depends = dependents(graph, arguments);
  std::vector<std::optional<Value>> sums(depends.size());
  const auto accumulate = [&](Index node, const Value& ct, const std::string& rule,
                              CallSite where) {
    const auto i = static_cast<std::size_t>(node);
    if (!depends[i]) return;
    check_cotangent(ct, Value(graph, node), rule, where);
    sums[i] = sums[i] ? add(*sums[i], ct, where) : ct;
  };
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (cts[i]) accumulate(results[i].node(), *cts[i], cat("result ", i), CallSite());
  }
  for (std::size_t i = sums.size(); i-- > 0;) {
    // A copy: the rules below record nodes, which moves them.
    const Node node = graph.node(static_cast<Index>(i));
    if (!sums[i] || !node.op) continue;
    std::vector<Value> inputs;
    for (const Index input : node.inputs) inputs.emplace_back(graph, input);
    const Primitive::Cotangents each =
        node.op->pull_back(*sums[i], inputs, Value(graph, static_cast<Index>(i)), node.where);
    for (std::size_t k = 0; k < each.size(); ++k) {
      if (each[k]) accumulate(node.inputs[k], *each[k], node.op->name(), node.where);
    }
  }
  std::vector<Value> out;
  for (const Value& argument : arguments) {
    const std::optional<Value>& sum = sums[static_cast<std::size_t>(argument.node())];
    out.push_back(sum ? *sum : zero_cotangent(argument, CallSite()));
  }
  return out;
}

}  // namespace kref::detail
