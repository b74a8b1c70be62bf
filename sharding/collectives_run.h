// SPDX-License-Identifier: Apache-2.0
// What the collectives share on their way over a transport; for collectives_*.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/thread_share.h"
#include "sharding/block_view.h"
#include "sharding/collective_traits.h"
#include "sharding/run_log.h"

namespace kref::detail {

// Dimension d of an array of `rank` dimensions, from the end when negative. Error that names the
// collective and the option.
std::size_t dimension(const char* collective, const char* option, Index d, std::size_t rank);

// Product of the extents first .. last - 1; 0 of an array without elements, whose other extents may
// be anything.
Index product(std::span<const Index> shape, std::size_t first, std::size_t last);

// What must agree beside axes, shape and type, as printed: "axis=0, tiled=true".
std::string options_string(const AllGather& op);
std::string options_string(const OwnSlice& op);
std::string options_string(const PsumScatter& op);
std::string options_string(const Psum& op);
std::string options_string(const Pvary& op);
std::string options_string(const Pmean& op);
std::string options_string(const Pmax& op);
std::string options_string(const Pargmax& op);
std::string options_string(const AllToAll& op);
std::string options_string(const Ppermute& op);
std::string options_string(const Pbroadcast& op);
std::string options_string(const PsumTo& op);
// "axis_index_groups=[[0,1],[2,3]]"; nothing without groups.
std::string groups_string(const AxisIndexGroups& groups);

// Runs f; an Error of this device gets the place of the call.
template <class F>
auto at_call(CallSite where, F&& f) {
  try {
    return f();
  } catch (const Stopped&) {
    throw;
  } catch (const Error& e) {
    const std::string place = to_string(where);
    if (place.empty()) throw;
    throw Error(cat(e.what(), " (called at ", place, ")"));
  }
}

// Group of this device, shape and type of its result.
struct Prepared {
  ReplicaGroup group;
  std::vector<Index> shape;
  DType dtype = DType::kF32;
};

// Refuses what one device can see alone, of an operand of that shape and type.
template <class Op>
Prepared prepare_type(const Op& op, const Device& device, std::span<const Index> shape, DType dtype,
                      CallSite where) {
  return at_call(where, [&] {
    check_groups(device.mesh(), op.axis_name, groups_of(op), group_sizes(op), name_of_op(op));
    Prepared out;
    out.group = replica_group(device.mesh(), op.axis_name, groups_of(op), device.index());
    ResultType type = result_type(op, shape, dtype, out.group.size());
    out.shape = std::move(type.shape);
    out.dtype = type.dtype;
    return out;
  });
}
template <class Op>
Prepared prepare(const Op& op, const Device& device, const Array& x, CallSite where) {
  at_call(where, [&] { check_has_memory(x, cat(name_of_op(op), ": the operand")); });
  return prepare_type(op, device, x.shape(), x.dtype(), where);
}

// A Pending whose done() is `finish`, which may hold what cannot be copied.
template <class F>
Pending deferred(F finish) {
  struct Work final : Pending::Work {
    F f;
    explicit Work(F work) : f(std::move(work)) {}
    Array finish() override { return f(); }
  };
  return Pending(std::make_unique<Work>(std::move(finish)));
}

// What the identity gives back: nothing is posted.
inline Pending unchanged(const Array& x) {
  return deferred([x] { return x; });
}

// What the log is told of it.
template <class Op>
LoggedTransfer logged_transfer(const Op& op, const ReplicaGroup& group, const Array& x) {
  LoggedTransfer out{.axes = op.axis_name.names, .members = group.members};
  const Index n = group.size();
  out.traffic = traffic_of(op);
  if constexpr (std::is_same_v<Op, Ppermute>) {
    for (const auto& [from, to] : op.perm) {
      out.pairs.emplace_back((from % n + n) % n, (to % n + n) % n);
    }
  }
  if constexpr (requires { op.sent_bytes(x.shape(), x.dtype(), n); }) {
    out.sent_bytes = static_cast<double>(op.sent_bytes(x.shape(), x.dtype(), n));
  } else {
    out.sent_bytes = static_cast<double>(x.bytes());  // where that depends on what is in it
  }
  out.dtype = x.dtype();
  return out;
}

// Whether n members make a result that is the same on all of them in parts, one each, which all of
// them wait for. That second meeting costs more than to make everything alone while that moves
// fewer bytes of the others than 128 KiB.
inline bool worth_parts(std::size_t bytes, Index n) {
  return n > 1 && bytes >= (std::size_t{128} << 10) / static_cast<std::size_t>(n - 1);
}
inline bool made_in_parts(const Prepared& p) {
  if (shapes_only()) return false;
  const Index elements = product(p.shape, 0, p.shape.size());
  return worth_parts(static_cast<std::size_t>(elements) * size_of(p.dtype), p.group.size());
}

// Such a result in Exchange::common, once it is whole. It is nobody's own (Array::mutable_data).
inline Array common_array(const Prepared& p, std::shared_ptr<void> memory) {
  const void* const data = memory.get();
  return Array(p.dtype, p.shape, std::move(memory), data);
}

// Posts x with what else must agree, as printed. `target`: memory of this device that the others
// write, or none; it outlives the exchange. `read`: what they read in the place of an x without
// memory.
template <class Op>
std::unique_ptr<Exchange> post(const Op& op, std::string options, Device& device,
                               const ReplicaGroup& group, const Array& x, CallSite where,
                               Array* target = nullptr, const Array* read = nullptr) {
  Offer offer;
  offer.operation = name_of_op(op);
  offer.axes = op.axis_name;
  offer.group = group;
  offer.options = std::move(options);
  offer.dtype = x.dtype();
  offer.shape.assign(x.shape().begin(), x.shape().end());
  offer.where = where;
  offer.data = read == nullptr ? x : *read;
  if (target != nullptr) {
    offer.target = target->mutable_data();
    offer.target_bytes = target->bytes();
  }
  DeviceLog* const log = device.log();
  if (log == nullptr || group.size() == 1) return device.transport().post(std::move(offer));
  std::string what =
      cat(offer.operation, '(', to_string(op.axis_name), ") of ", to_string(x.ref()));
  std::unique_ptr<Exchange> exchange = device.transport().post(std::move(offer));
  return logged(std::move(exchange), *log,
                log->start(std::move(what), logged_transfer(op, group, x)));
}
template <class Op>
std::unique_ptr<Exchange> post(const Op& op, Device& device, const ReplicaGroup& group,
                               const Array& x, CallSite where, Array* target = nullptr) {
  return post(op, options_string(op), device, group, x, where, target);
}

}  // namespace kref::detail
