// SPDX-License-Identifier: Apache-2.0
// custom_vjp: a function with a derivative of its own (jax.custom_vjp), as two named functions:
//
//   fwd(arguments...)  -> {result, saved}
//   bwd(saved, ct)     -> the cotangents of the arguments
//
// On devices, fwd and bwd take a Device first and arrays, and whoever composes a backward pass
// calls f.fwd and f.bwd. On Values, vjp (vjp.h) calls bwd by itself; saved may be anything that
// holds Values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sharding/typed_shard_map.h"
#include "sharding/value_collectives.h"

namespace kref {

namespace detail {
// Ties y, which fwd made of the arguments, to their cotangents.
Value with_cotangents(const Value& y, std::span<const Value> arguments,
                      std::function<std::vector<Value>(const Value&)> bwd, CallSite where);
}  // namespace detail

// What custom_vjp makes. A result of bwd must have the element type and the shape of its argument,
// and the state of its cotangent, exactly: Error that names the argument's position with both
// types, and what would bring one to the other (JAX's hint).
template <class Fwd, class Bwd>
struct CustomVjp {
  Fwd fwd;
  Bwd bwd;

  // The result alone: f(device, arrays...) or f(values...).
  template <class... Arguments>
  auto operator()(Device& device, Arguments&&... arguments) const {
    return fwd(device, std::forward<Arguments>(arguments)...).first;
  }
  template <class... Values>
  requires(std::is_same_v<Value, std::decay_t<Values>>&&...) Value operator()(
      const Values&... arguments) const {
    auto made = fwd(arguments...);
    using Saved = std::decay_t<decltype(made.second)>;
    static_assert(std::is_invocable_v<Bwd, const Saved&, const Value&>,
                  "custom_vjp: bwd does not take what fwd saved and a Value");
    const auto cotangents = [bwd = bwd, saved = made.second](const Value& ct) {
      const auto each = bwd(saved, ct);
      std::vector<Value> out;
      detail::ValueResults<std::decay_t<decltype(each)>>::split(each, out);
      return out;
    };
    const Value all[] = {arguments...};
    return detail::with_cotangents(made.first, all, cotangents, CallSite());
  }
};

// Pairs a function with its derivative.
template <class Fwd, class Bwd>
constexpr CustomVjp<Fwd, Bwd> custom_vjp(Fwd fwd, Bwd bwd) {
  return {std::move(fwd), std::move(bwd)};
}

// A kernel of one's own in a typed body: run(device, arrays of the inputs) gives an array of this
// type on every device. The inputs are brought to one varying set, which the result has too; none
// may be unreduced. It has no derivative: see custom_vjp.
using DeviceFunction = std::function<Array(Device&, std::span<const Array>)>;
Value device_call(const std::string& name, const std::vector<Value>& inputs, DType dtype,
                  const std::vector<Index>& shape, DeviceFunction run,
                  CallSite where = CallSite::here());

namespace detail {
// The same with the inputs as they are, and a result in the state that the caller vouches for:
// `run` may exchange.
Value device_call_as(const std::string& name, const std::vector<Value>& inputs, DType dtype,
                     const std::vector<Index>& shape, ValueState state, DeviceFunction run,
                     CallSite where);
}  // namespace detail

// Megatron's f and g, which bracket a layer whose weights are split: f copies its input forward and
// sums the cotangents backward; g sums forward and copies backward. On devices:
//   f.fwd, f.bwd take and give arrays; saved is nothing.
struct MegatronF {
  AxisNames axis_name;
  Array fwd(Device& device, const Array& x) const;
  Array bwd(Device& device, const Array& ct) const;
};
struct MegatronG {
  AxisNames axis_name;
  Array fwd(Device& device, const Array& x) const;
  Array bwd(Device& device, const Array& ct) const;
};
// On Values they are pvary and psum, of which each is the other's transpose. Error with check_vma
// off: there psum transposes to psum, and the pair would count the cotangents twice.
Value megatron_f(const Value& x, const AxisNames& axis_name, CallSite where = CallSite::here());
Value megatron_g(const Value& x, const AxisNames& axis_name, CallSite where = CallSite::here());

}  // namespace kref
