// SPDX-License-Identifier: Apache-2.0
#include "sharding/vjp.h"

#include <algorithm>

#include "sharding/block_view.h"
#include "sharding/graph.h"
#include "sharding/value_collectives.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

Specs cotangent_specs(const Specs& specs, std::size_t count) {
  std::vector<Placement> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(cotangent(specs[i]));
  return out;
}

// Records the cotangents of `arguments`, with the rules of the boundary.
std::vector<Value> record_transpose(const TypedCore& core, Graph& graph,
                                    std::span<const Value> arguments,
                                    std::span<const Value> results, std::span<const Value> cts) {
  std::vector<std::optional<Value>> scaled_cts(cts.begin(), cts.end());
  if (!graph.checked()) {
    for (std::size_t i = 0; i < cts.size(); ++i) {
      const std::vector<std::string> axes =
          replicated_axes(core.options().out_specs[i], graph.mesh());
      const Index copies = block_count(axes, graph.mesh());
      if (copies > 1) {
        scaled_cts[i] = divided_by(cts[i], copies, core.where());
      }
    }
  }
  std::vector<Value> out = pull_back(graph, results, scaled_cts, arguments);
  if (!graph.checked()) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::vector<std::string> axes =
          replicated_axes(core.options().in_specs[i], graph.mesh());
      if (!axes.empty()) out[i] = psum(out[i], axes, {}, core.where());
    }
  }
  return out;
}

// A block of a cotangent must be like the block of its result.
void check_like(DType dtype, std::span<const Index> shape, const Value& result, std::size_t i) {
  KREF_CHECK(dtype == result.dtype() && std::ranges::equal(shape, result.shape()), "cotangent ", i,
             ": ", name_of(dtype), shape_string(shape), " on each device, but result ", i, " is ",
             name_of(result.dtype()), shape_string(result.shape()), " there");
}

std::vector<std::string> cotangent_names(std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(cat("cotangent ", i));
  return out;
}

}  // namespace

// The graph of a function with its derivative, and the values of the forward run that the
// derivative reads.
struct VjpState {
  Traced traced;
  std::vector<Value> cts, grads;
  std::vector<bool> backward;             // nodes that the derivative runs
  std::vector<Index> residuals;           // nodes of the forward run that it reads
  std::vector<std::vector<Array>> saved;  // their arrays, by device
  std::optional<ShardMapCore> core;       // of the derivative
};

std::pair<std::vector<Array>, Pullback> vjp(const TypedCore& core,
                                            std::span<const ShardArgument> arguments) {
  auto state = std::make_shared<VjpState>();
  state->traced = core.trace(arguments);
  Graph& graph = *state->traced.graph;
  const std::vector<Value>& results = state->traced.results;
  const Index forward_size = graph.size();
  for (std::size_t i = 0; i < results.size(); ++i) {
    state->cts.push_back(
        graph.argument(results[i].dtype(), {results[i].shape().begin(), results[i].shape().end()},
                       graph.checked() ? cotangent(results[i].state()) : ValueState(graph.mesh())));
  }
  state->grads = record_transpose(core, graph, state->traced.arguments, results, state->cts);
  const Specs grad_specs = cotangent_specs(core.options().in_specs, arguments.size());
  check_assembled(results, core.options().out_specs, "result ");
  check_assembled(state->grads, grad_specs, "the cotangent of argument ");

  // What the derivative runs, and what it reads of the forward run.
  std::vector<bool> needed = graph.needed(nodes_of(state->grads));
  std::vector<bool> residual(needed.size(), false);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (static_cast<Index>(i) < forward_size || !needed[i]) continue;
    for (const Index input : graph.node(static_cast<Index>(i)).inputs) {
      if (input < forward_size) residual[static_cast<std::size_t>(input)] = true;
    }
  }
  for (const Value& grad : state->grads) {
    if (grad.node() < forward_size) residual[static_cast<std::size_t>(grad.node())] = true;
  }
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (residual[i]) state->residuals.push_back(static_cast<Index>(i));
    if (static_cast<Index>(i) < forward_size) needed[i] = false;
  }
  state->backward = needed;

  std::vector<Index> wanted = nodes_of(results);
  wanted.insert(wanted.end(), state->residuals.begin(), state->residuals.end());
  const std::vector<bool> which = graph.needed(wanted);
  std::vector<bool> keep(which.size(), false);
  for (const Index node : wanted) keep[static_cast<std::size_t>(node)] = true;
  state->saved.resize(static_cast<std::size_t>(graph.mesh().device_count()));

  const ShardMapCore forward(graph.mesh(), core.options(), kAnyCount,
                             static_cast<Index>(results.size()), {}, core.where());
  std::vector<Array> out = forward.run(
      arguments, [&](Device& device, std::span<const Array> locals, std::vector<Array>& blocks) {
        std::vector<std::optional<Array>> values(which.size());
        for (std::size_t i = 0; i < locals.size(); ++i) values[i] = locals[i];
        run_graph(graph, which, keep, device, values);
        for (const Value& result : results) {
          blocks.push_back(*values[static_cast<std::size_t>(result.node())]);
        }
        auto& saved = state->saved[static_cast<std::size_t>(device.index())];
        for (const Index node : state->residuals) {
          saved.push_back(kept_alive(*values[static_cast<std::size_t>(node)]));
        }
      });
  ShardMapOptions options = core.options();
  options.in_specs = cotangent_specs(core.options().out_specs, results.size());
  options.out_specs = grad_specs;
  options.names = cotangent_names(results.size());
  state->core.emplace(graph.mesh(), std::move(options), static_cast<Index>(results.size()),
                      static_cast<Index>(arguments.size()), std::vector<ParameterRule>(),
                      core.where());
  return {std::move(out), Pullback(state)};
}

TypedCore transposed(const TypedCore& core, std::size_t arguments) {
  const Specs &in = core.options().in_specs, &out = core.options().out_specs;
  const std::size_t results = core.result_count();
  core.check_argument_count(arguments, "vjp_of: called");
  ShardMapOptions options = core.options();
  std::vector<Placement> all;
  for (std::size_t i = 0; i < arguments; ++i) all.push_back(in[i]);
  for (std::size_t i = 0; i < results; ++i) all.push_back(cotangent(out[i]));
  options.in_specs = all;
  options.out_specs = cotangent_specs(in, arguments);
  options.names.resize(arguments);
  for (const std::string& name : cotangent_names(results)) options.names.push_back(name);
  const auto body = [core, arguments](Tracer& tracer, std::span<const Value> values) {
    Graph& graph = tracer.graph();
    const std::span<const Value> primals = values.first(arguments);
    const std::span<const Value> cts = values.subspan(arguments);
    const std::vector<Value> made = core.record(graph, primals);
    KREF_CHECK(made.size() == cts.size(), "vjp_of: ", cts.size(), " cotangents, but ", made.size(),
               " results");
    for (std::size_t i = 0; i < cts.size(); ++i)
      check_like(cts[i].dtype(), cts[i].shape(), made[i], i);
    return record_transpose(core, graph, primals, made, cts);
  };
  return TypedCore(core.mesh(), std::move(options), static_cast<Index>(arguments + results),
                   static_cast<Index>(arguments), body, core.where());
}

}  // namespace detail

std::vector<Array> Pullback::call(std::span<const ShardArgument> cts) const {
  const detail::VjpState& state = *state_;
  const detail::Graph& graph = *state.traced.graph;
  KREF_CHECK(cts.size() == state.cts.size(), "pullback: called with ", cts.size(),
             " cotangents, but the function has ", state.cts.size(), " results");
  state.core->check_arguments(cts);
  for (std::size_t i = 0; i < cts.size(); ++i) {
    const ArrayRef local = cts[i].block_type(state.core->options().in_specs[i], graph.mesh());
    detail::check_like(local.dtype, local.shape(), state.cts[i], i);
  }
  std::vector<bool> keep(state.backward.size(), false);
  for (const Value& grad : state.grads) keep[static_cast<std::size_t>(grad.node())] = true;
  return state.core->run(
      cts, [&](Device& device, std::span<const Array> locals, std::vector<Array>& blocks) {
        std::vector<std::optional<Array>> values(state.backward.size());
        const auto& saved = state.saved[static_cast<std::size_t>(device.index())];
        for (std::size_t r = 0; r < saved.size(); ++r) {
          values[static_cast<std::size_t>(state.residuals[r])] = saved[r];
        }
        for (std::size_t i = 0; i < locals.size(); ++i) {
          values[static_cast<std::size_t>(state.cts[i].node())] = locals[i];
        }
        run_graph(graph, state.backward, keep, device, values);
        for (const Value& grad : state.grads) {
          blocks.push_back(*values[static_cast<std::size_t>(grad.node())]);
        }
      });
}

std::string Pullback::text() const { return state_->traced.graph->text(state_->backward); }
Index Pullback::count(std::string_view name) const {
  return state_->traced.graph->count(state_->backward, name);
}

}  // namespace kref
