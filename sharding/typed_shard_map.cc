// SPDX-License-Identifier: Apache-2.0
#include "sharding/typed_shard_map.h"

#include "sharding/graph.h"

namespace kref::detail {
TypedCore::TypedCore(const Mesh& mesh, ShardMapOptions options, Index arity, Index results,
                     TypedBody body, CallSite where)
    : core_(mesh, std::move(options), arity, results, {}, where),
      body_(std::move(body)),
      where_(where) {}

std::vector<Value> TypedCore::record(Graph& graph, std::span<const Value> arguments) const {
  Tracer tracer(graph);
  std::vector<Value> results = body_(tracer, arguments);
  const Specs& specs = options().out_specs;
  KREF_CHECK(specs.shared || results.size() == specs.each.size(), "shard_map: the body returned ",
             results.size(), " results, but out_specs has ", specs.each.size(), " entries");
  for (std::size_t i = 0; i < results.size(); ++i) {
    Value& value = results[i];
    const Placement& spec = specs[i];
    KREF_CHECK(value.belongs_to(graph), "result ", i, ": a value that belongs to no or to another ",
               "call of a body");
    KREF_CHECK(spec.spec.entries.size() <= value.rank(), "result ", i, ": out_specs ",
               to_string(spec), " which has length ", spec.spec.entries.size(),
               ", but the body's result is ", value.type(), ", which has rank ", value.rank(),
               value.rank() == 0 ? "; a scalar takes P()" : "");
    if (!graph.checked()) continue;
    value = graph.cast(value, output_casts(value.state(), spec, mesh(), cat("out_specs[", i, ']')),
                       where_);
  }
  return results;
}

Traced TypedCore::trace(std::span<const ShardArgument> arguments) const {
  core_.check_arguments(arguments);
  Traced out;
  out.graph = std::make_shared<Graph>(
      mesh(), options().check_vma ? Typing::kChecked : Typing::kUnchecked, options().auto_pcast);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Placement& spec = options().in_specs[i];
    const ArrayRef local = arguments[i].block_type(spec, mesh());
    out.arguments.push_back(
        out.graph->argument(local.dtype, {local.shape().begin(), local.shape().end()},
                            out.graph->checked() ? input_state(spec, mesh()) : ValueState(mesh())));
  }
  out.results = record(*out.graph, out.arguments);
  return out;
}

void check_assembled(std::span<const Value> values, const Specs& specs, const char* name) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    check_assembled(ArrayRef(values[i].dtype(), values[i].shape(), nullptr), specs[i],
                    cat(name, i));
  }
}

ShardBody TypedCore::body_of(const Traced& traced) {
  const std::vector<Index> results = nodes_of(traced.results);
  std::vector<bool> which = traced.graph->needed(results);
  std::vector<bool> keep(which.size(), false);
  for (const Index node : results) keep[static_cast<std::size_t>(node)] = true;
  return [graph = traced.graph, results, which = std::move(which), keep = std::move(keep)](
             Device& device, std::span<const Array> locals, std::vector<Array>& out) {
    std::vector<std::optional<Array>> values(which.size());
    for (std::size_t i = 0; i < locals.size(); ++i) values[i] = locals[i];
    run_graph(*graph, which, keep, device, values);
    for (const Index node : results) out.push_back(*values[static_cast<std::size_t>(node)]);
  };
}

std::vector<Array> TypedCore::run(std::span<const ShardArgument> arguments) const {
  const Traced traced = trace(arguments);
  check_assembled(traced.results, options().out_specs, "result ");
  return core_.run(arguments, body_of(traced));
}

std::vector<Sharded> TypedCore::run_sharded(std::span<const ShardArgument> arguments) const {
  return core_.run_sharded(arguments, body_of(trace(arguments)));
}

std::string TypedCore::text(std::span<const ShardArgument> arguments) const {
  const Traced traced = trace(arguments);
  return traced.graph->text(traced.graph->needed(nodes_of(traced.results)));
}

Index TypedCore::count(std::string_view name, std::span<const ShardArgument> arguments) const {
  const Traced traced = trace(arguments);
  return traced.graph->count(traced.graph->needed(nodes_of(traced.results)), name);
}

}  // namespace kref::detail
