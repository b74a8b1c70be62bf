// SPDX-License-Identifier: Apache-2.0
// shard_map of typed bodies (value.h): what the out_specs claim is proved before a device starts
// (jax.shard_map with check_vma=True), and the whole can be transposed (vjp.h).
//
//   const auto body = [](Tracer&, const Value& x, const Value& w) {
//     return psum(dot(x, w), "model");
//   };
//   const auto layer = shard_map(mesh, {.in_specs = {P{none, "model"}, P{"model"}},
//                                       .out_specs = P()}, body);
//
// A body takes Values, or one std::span<const Value> for any number; it returns a Value, a pair,
// tuple or std::array of them, or std::vector<Value>.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sharding/shard_map.h"
#include "sharding/value.h"

namespace kref {

namespace detail {

using TypedBody = std::function<std::vector<Value>(Tracer&, std::span<const Value>)>;

// A body that was called once for arguments of some types.
struct Traced {
  std::shared_ptr<Graph> graph;
  std::vector<Value> arguments;
  std::vector<Value> results;  // after the casts at the boundary
};

// As that of shard_map.h, for value i as name + i: before a device starts.
void check_assembled(std::span<const Value> values, const Specs& specs, const char* name);

// The part of a typed shard_map that does not depend on the body's type.
class TypedCore {
 public:
  TypedCore(const Mesh& mesh, ShardMapOptions options, Index arity, Index results, TypedBody body,
            CallSite where);

  const ShardMapOptions& options() const { return core_.options(); }
  const Mesh& mesh() const { return core_.mesh(); }
  CallSite where() const { return where_; }
  std::size_t result_count() const { return core_.result_count(); }
  void check_argument_count(std::size_t given, const char* call) const {
    core_.check_argument_count(given, call);
  }

  // Calls the body on values of a graph that is being recorded, and casts what it returns as the
  // out_specs say.
  std::vector<Value> record(Graph& graph, std::span<const Value> arguments) const;
  // The same in a graph of its own, for arguments that are checked first.
  Traced trace(std::span<const ShardArgument> arguments) const;
  std::vector<Array> run(std::span<const ShardArgument> arguments) const;
  std::vector<Sharded> run_sharded(std::span<const ShardArgument> arguments) const;

  // What the devices would run, a line an operation; and how many are of this name.
  std::string text(std::span<const ShardArgument> arguments) const;
  Index count(std::string_view name, std::span<const ShardArgument> arguments) const;

 private:
  // What a device runs of it.
  static ShardBody body_of(const Traced& traced);

  ShardMapCore core_;
  TypedBody body_;
  CallSite where_;
};

// How Values become what the caller gets.
template <class T>
struct ValueResults;
template <>
struct ValueResults<Value> {
  using Arrays = Array;
  static void split(const Value& v, std::vector<Value>& out) { out.push_back(v); }
};
template <>
struct ValueResults<std::vector<Value>> {
  using Arrays = std::vector<Array>;
  static void split(const std::vector<Value>& v, std::vector<Value>& out) { out = v; }
};
template <std::size_t N>
struct ValueResults<std::array<Value, N>> {
  using Arrays = std::array<Array, N>;
  static void split(const std::array<Value, N>& v, std::vector<Value>& out) {
    out.assign(v.begin(), v.end());
  }
};
template <class... T>
struct ValueResults<std::tuple<T...>> {
  using Arrays = std::tuple<typename ValueResults<T>::Arrays...>;
  static void split(const std::tuple<T...>& v, std::vector<Value>& out) {
    std::apply([&](const T&... one) { (out.push_back(one), ...); }, v);
  }
};
template <>
struct ValueResults<std::pair<Value, Value>> {
  using Arrays = std::pair<Array, Array>;
  static void split(const std::pair<Value, Value>& v, std::vector<Value>& out) {
    out = {v.first, v.second};
  }
};

// How many Values a body takes, and the call.
template <class Arguments>
struct ValueSignature;
template <class... A>
struct ValueSignature<std::tuple<A...>> {
  static_assert((std::is_same_v<A, Value> && ...), "a typed body takes a Tracer and Values");
  static constexpr Index kFixed = static_cast<Index>(sizeof...(A));
  template <class F>
  static auto call(const F& body, Tracer& tracer, std::span<const Value> all) {
    return call(body, tracer, all, std::index_sequence_for<A...>());
  }
  template <class F, std::size_t... I>
  static auto call(const F& body, Tracer& tracer, [[maybe_unused]] std::span<const Value> all,
                   std::index_sequence<I...>) {
    return body(tracer, all[I]...);
  }
};
template <>
struct ValueSignature<std::tuple<std::span<const Value>>> {
  static constexpr Index kFixed = kAnyCount;
  template <class F>
  static auto call(const F& body, Tracer& tracer, std::span<const Value> all) {
    return body(tracer, all);
  }
};

}  // namespace detail

// A typed body with its mesh and specs. Global_: what a call gives.
template <class Global_>
class TypedShardMap {
 public:
  using Global = Global_;

  explicit TypedShardMap(detail::TypedCore core) : core_(std::move(core)) {}

  // The global results. Errors before a device starts: as ShardMap; all that the operations refuse;
  // an out_spec that does not name an axis along which the result varies ("statically inferred",
  // "require replication"), unless check_vma is off, where it is what the first device has.
  template <class... Arguments>
  Global operator()(const Arguments&... arguments) const {
    const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
    return detail::Results<Global>::join(core_.run(all));
  }

  // The same, but the results stay on the mesh: nothing is copied.
  template <class... Arguments>
  std::vector<Sharded> sharded(const Arguments&... arguments) const {
    const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
    return core_.run_sharded(all);
  }

  // What the devices run for such arguments, a line an operation, as JAX prints a jaxpr.
  template <class... Arguments>
  std::string text(const Arguments&... arguments) const {
    const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
    return core_.text(all);
  }
  // How many operations of a name ("psum") that is.
  template <class... Arguments>
  Index count(std::string_view name, const Arguments&... arguments) const {
    const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
    return core_.count(name, all);
  }

  const detail::TypedCore& core() const { return core_; }

 private:
  detail::TypedCore core_;
};

// A shard_map of a typed body; Error as that of a body on arrays.
template <class Body>
requires std::is_same_v<typename detail::BodyTraits<Body>::First, Tracer>
auto shard_map(const Mesh& mesh, ShardMapOptions options, Body body,
               CallSite where = CallSite::here()) {
  using Traits = detail::BodyTraits<Body>;
  using Signature = detail::ValueSignature<typename Traits::Arguments>;
  using Split = detail::ValueResults<typename Traits::Result>;
  using Global = typename Split::Arrays;
  KREF_CHECK(!detail::missing(body), "shard_map: there is no body");
  const auto erased = [body = std::move(body)](Tracer& tracer, std::span<const Value> all) {
    std::vector<Value> out;
    Split::split(Signature::call(body, tracer, all), out);
    return out;
  };
  return TypedShardMap<Global>(detail::TypedCore(mesh, std::move(options), Signature::kFixed,
                                                 detail::Results<Global>::kCount, erased, where));
}

}  // namespace kref
