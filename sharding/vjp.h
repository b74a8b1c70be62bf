// SPDX-License-Identifier: Apache-2.0
// Reverse mode of shard_maps of typed bodies (sharding_semantics 2.2, 2.3), in the words of JAX:
//
//   const auto [y, pullback] = vjp(layer, x, w);   // layer = shard_map(mesh, ..., typed body)
//   const std::vector<Array> grads = pullback(dy); // one a argument
//
// With check_vma nothing happens at the boundary: pvary and psum inside the body, which transpose
// to each other, carry all of it. Without, psum transposes to psum; the cotangent of a result is
// divided by the number of devices along the axes that its spec does not name, and the cotangent of
// an argument is summed over those that its spec does not name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/typed_shard_map.h"

namespace kref {

namespace detail {
struct VjpState;
}  // namespace detail

// The function of the results' cotangents that vjp returns. Holds what the forward run left for it
// on every device; can be called any number of times.
class Pullback {
 public:
  explicit Pullback(std::shared_ptr<const detail::VjpState> state) : state_(std::move(state)) {}

  // The cotangents of the arguments, one each, for those of the results, one each: global arrays of
  // the results' types, cut by the out_specs (unreduced and reduced change places). Zero where an
  // argument has no influence. Error for cotangents that do not fit, by number; of the launch.
  template <class... Cotangents>
  std::vector<Array> operator()(const Cotangents&... cts) const {
    const std::array<ShardArgument, sizeof...(Cotangents)> all{ShardArgument(cts)...};
    return call(all);
  }
  std::vector<Array> call(std::span<const ShardArgument> cts) const;

  // What the devices run, a line an operation; how many operations of a name ("psum") that is. What
  // the forward run left is not run again and not counted.
  std::string text() const;
  Index count(std::string_view name) const;

 private:
  std::shared_ptr<const detail::VjpState> state_;
};

namespace detail {

// The forward run of vjp.
std::pair<std::vector<Array>, Pullback> vjp(const TypedCore& core,
                                            std::span<const ShardArgument> arguments);
// The shard_map of (arguments..., cotangents...) that gives the cotangents of the arguments.
TypedCore transposed(const TypedCore& core, std::size_t arguments);

}  // namespace detail

// Runs f and keeps what its derivative needs. Error: as f; an operation that has no derivative
// (pmax, ...) on the way from an argument to a result; a custom_vjp rule whose cotangents do not
// fit (custom_vjp.h).
template <class Global, class... Arguments>
std::pair<Global, Pullback> vjp(const TypedShardMap<Global>& f, const Arguments&... arguments) {
  const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
  auto [results, pullback] = detail::vjp(f.core(), all);
  return {detail::Results<Global>::join(std::move(results)), std::move(pullback)};
}

// The derivative as a shard_map of its own, of the arguments of f (`arguments` of them) and then
// the cotangents of its results: gives the cotangents of the arguments. Can be transposed again.
template <class Global>
TypedShardMap<std::vector<Array>> vjp_of(const TypedShardMap<Global>& f, std::size_t arguments) {
  return TypedShardMap<std::vector<Array>>(detail::transposed(f.core(), arguments));
}

}  // namespace kref
