// SPDX-License-Identifier: Apache-2.0
// shard_map: a function of global arrays, made of a body that every device runs on its blocks
// (jax.shard_map).
//
//   const auto body = [](Device& device, const Array& x, const Array& w) {
//     return psum_scatter(device, product(x, w), "model", {.scatter_dimension = 1, .tiled = true});
//   };
//   const auto layer = shard_map(mesh, {.in_specs = {P{"data", "model"}, P{"model", none}},
//                                       .out_specs = P{"data", "model"}}, body);
//   const Array y = layer(x, w);
//
// What a body takes after its Device: Array, ArrayRef, Ref<const T, R>, or one std::span<const
// Array> for any number. What it returns: Array, Tensor, a pair, tuple or std::array of them,
// std::vector<Array>, void. All devices call it at the same time, each on a thread of its own.
// Bodies that are typed and can be transposed take a Tracer and Values instead: typed_shard_map.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharding/launch.h"
#include "sharding/placement.h"
#include "sharding/shard_body.h"
#include "sharding/sharded.h"

namespace kref {

// The specs of all arguments or of all results: a list, or one that counts for each of them.
struct Specs {
  std::vector<Placement> each;
  bool shared = false;  // each[0] counts for all

  Specs() = default;
  Specs(std::initializer_list<Placement> list) : each(list) {}
  Specs(std::vector<Placement> list) : each(std::move(list)) {}
  Specs(PartitionSpec one) : each{Placement(std::move(one))}, shared(true) {}
  Specs(Placement one) : each{std::move(one)}, shared(true) {}

  // Of argument or result i.
  const Placement& operator[](std::size_t i) const { return each[shared ? 0 : i]; }
};

// How shard_map cuts arguments and puts results together.
//
// An argument is cut by its spec; along axes that the spec does not name every device gets the
// same. A result is put together by its spec; along axes that it does not name it is what the first
// device has (index 0 along them). Unreduced axes are leading dimensions of the global array, in
// the order in which the spec lists them: a device has its own term.
struct ShardMapOptions {
  Specs in_specs = {};
  Specs out_specs = {};
  // Names of the arguments in messages; missing ones are "argument 0", "argument 1", ...
  std::vector<std::string> names = {};
  // Of bodies on Values (typed_shard_map.h): prove what the out_specs claim. Nothing can be proved
  // of a body on arrays: for those this does not count.
  bool check_vma = true;
  // Insert the pvary that operands of different states need; off: such operands are refused.
  bool auto_pcast = true;
  // Compare, bit for bit, what the devices have along axes that an out_spec does not name, which
  // nothing proves without check_vma: Error that names both devices, the element, both values.
  // KREF_CHECKS=full does so for every call.
  bool check_replicas = false;
  LaunchOptions launch = {};
};

// An argument of a call: a global array, which is cut; or one that lives on the mesh already
// (Sharded: weights, a cache), whose blocks the devices get as they are. What it views (Ref,
// Tensor, Sharded) must outlive the call.
class ShardArgument {
 public:
  ShardArgument(const Array& array) : view_(array.ref()), owner_(array.owner()) {}
  ShardArgument(const ArrayRef& view) : view_(view) {}
  template <ElementType T, std::size_t R>
  ShardArgument(Ref<T, R> ref) : view_(ArrayRef(Ref<const T, R>(ref))) {}
  template <ElementType T, std::size_t R>
  ShardArgument(const Tensor<T, R>& tensor) : view_(ArrayRef(tensor.ref())) {}
  ShardArgument(const Sharded& sharded)
      : view_(sharded.dtype(), sharded.shape(), nullptr), sharded_(&sharded) {}

  // Its type: element type and global shape. Data of an array only; an array that is unreduced has
  // its leading dimensions.
  const ArrayRef& view() const { return view_; }
  // None for an array.
  const Sharded* sharded() const { return sharded_; }
  // A device's block under a spec that the argument was checked against.
  Array block(const Placement& spec, const Mesh& mesh, Index device) const;
  // Type and shape of such a block; the data says nothing.
  ArrayRef block_type(const Placement& spec, const Mesh& mesh) const;

 private:
  ArrayRef view_;
  std::shared_ptr<const void> owner_;
  const Sharded* sharded_ = nullptr;
};

namespace detail {

// What a device runs: its blocks of the arguments in, its blocks of the results out.
using ShardBody = std::function<void(Device&, std::span<const Array>, std::vector<Array>&)>;

// Refuses, by `name`, blocks that no global array is made of: the unreduced axes, which are leading
// dimensions of it, make more than kMaxRank of them.
void check_assembled(const ArrayRef& block, const Placement& spec, const std::string& name);

// The part of a shard_map that does not depend on the body's type. `arity` and `results` may be
// kAnyCount.
class ShardMapCore {
 public:
  // Error: counts of specs that do not fit, a spec that does not fit the mesh.
  ShardMapCore(const Mesh& mesh, ShardMapOptions options, Index arity, Index results,
               std::vector<ParameterRule> rules, CallSite where);

  const Mesh& mesh() const { return mesh_; }
  const ShardMapOptions& options() const { return options_; }
  // "argument 1", or its name.
  std::string argument_name(std::size_t i) const;
  // One a result; of a body that returns any number, as many as there are out_specs.
  std::size_t result_count() const;
  // Refuses a number of arguments that the body or in_specs do not have; `call` begins the message.
  void check_argument_count(std::size_t given, const char* call) const;
  // Refuses arguments that do not fit in_specs or the parameters.
  void check_arguments(std::span<const ShardArgument> arguments) const;
  // A call: checks, launches, gives the global results; or leaves them on the mesh.
  std::vector<Array> run(std::span<const ShardArgument> arguments, const ShardBody& body) const;
  std::vector<Sharded> run_sharded(std::span<const ShardArgument> arguments,
                                   const ShardBody& body) const;

 private:
  // What becomes of result i of a device.
  using Deliver = std::function<void(Device&, std::size_t, Array)>;
  void launch_all(std::span<const ShardArgument> arguments, const ShardBody& body,
                  const Deliver& deliver) const;

  Mesh mesh_;
  ShardMapOptions options_;
  Index arity_, results_;
  std::vector<ParameterRule> rules_;
  CallSite where_;
};

}  // namespace detail

// A body with its mesh and specs: call it on global arrays.
template <class Body>
class ShardMap {
  using Traits = detail::BodyTraits<Body>;
  using Signature = detail::Signature<typename Traits::Arguments>;
  using Results = detail::Results<typename Traits::Result>;

 public:
  ShardMap(const Mesh& mesh, ShardMapOptions options, Body body, CallSite where)
      : core_(mesh, std::move(options), Signature::kFixed, Results::kCount, Signature::rules(),
              where),
        body_(std::move(body)) {
    KREF_CHECK(!detail::missing(body_), "shard_map: there is no body");
  }

  // The global results. Error, before a device starts, for arguments that do not fit (each by its
  // name): their number, a spec with more entries than dimensions, a dimension that the devices do
  // not divide, an element type or rank that the body does not take; a Sharded on another mesh or
  // of another placement than its spec. Error of the launch
  // (launch.h); for results, by device: their number, a shape that out_specs do not fit, shapes or
  // element types that differ between devices.
  template <class... Arguments>
  typename Results::Global operator()(const Arguments&... arguments) const {
    const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
    return call(all);
  }
  typename Results::Global call(std::span<const ShardArgument> arguments) const {
    return Results::join(core_.run(arguments, erased()));
  }
  // The same, but the results stay on the mesh, where they are: nothing is copied but blocks of a
  // Ref or a Tensor that the body gives back. Replicas must then be equal, which debug builds
  // check.
  template <class... Arguments>
  std::vector<Sharded> sharded(const Arguments&... arguments) const {
    const std::array<ShardArgument, sizeof...(Arguments)> all{ShardArgument(arguments)...};
    return call_sharded(all);
  }
  std::vector<Sharded> call_sharded(std::span<const ShardArgument> arguments) const {
    return core_.run_sharded(arguments, erased());
  }

 private:
  auto erased() const {
    return [this](Device& device, std::span<const Array> locals,
                  [[maybe_unused]] std::vector<Array>& results) {
      if constexpr (std::is_void_v<typename Traits::Result>) {
        Signature::call(body_, device, locals);
      } else {
        Results::split(Signature::call(body_, device, locals), results);
      }
    };
  }

  detail::ShardMapCore core_;
  Body body_;
};

// A shard_map of `body`. Error when the number of specs is not that of the body's arguments or
// results, and for specs that name an axis which the mesh lacks or name one twice.
template <class Body>
requires std::is_same_v<typename detail::BodyTraits<Body>::First, Device> ShardMap<Body> shard_map(
    const Mesh& mesh, ShardMapOptions options, Body body, CallSite where = CallSite::here()) {
  return ShardMap<Body>(mesh, std::move(options), std::move(body), where);
}

}  // namespace kref
