// SPDX-License-Identifier: Apache-2.0
// The collectives that move elements: each result is copied straight from the others' arrays, each
// byte once.
#include <cstring>

#include "sharding/block_view.h"
#include "sharding/collectives_copy.h"
#include "sharding/collectives_run.h"

namespace kref {
namespace {

using detail::Box;
using detail::Prepared;
using detail::product;

std::byte* bytes_of(Array& out) { return static_cast<std::byte*>(out.mutable_data()); }

// One exchange in which members read only: copy(exchange, out) fills the result from the others.
// What `op` does is started here and ends in done().
template <class Op, class Copy>
Pending start_move(const Op& op, Device& device, const Array& x, Prepared p, CallSite where,
                   Copy copy) {
  auto exchange = detail::post(op, device, p.group, x, where);
  return detail::deferred([exchange = std::move(exchange), p = std::move(p), copy] {
    exchange->match();
    Array out = Array::unwritten(p.dtype, p.shape);
    copy(*exchange, p.group, out);
    exchange->wait(Exchange::End::kOwn);
    return out;
  });
}

// Calls f with every rank, the own one first, so that members do not all read the same array.
template <class F>
void for_each_member(const ReplicaGroup& group, const F& f) {
  for (Index k = 0; k < group.size(); ++k) f((group.rank + k) % group.size());
}

// All of an array.
void copy_all(Exchange& exchange, Index from, Array& out) {
  Box box;
  box.add(out.size(), 1, 1);
  copy_box(exchange, from, bytes_of(out), box, size_of(out.dtype()));
}

// What member `rank` sends to member j of n is this box with from_begin for that rank; it lands at
// to_begin for j.
struct Exchanged {
  Box box;
  Index from_step = 0;  // of the receiver's rank
  Index to_step = 0;    // of the sender's rank
};

Exchanged exchanged_box(const AllToAll& op, std::span<const Index> in, std::span<const Index> out,
                        Index n) {
  const std::size_t split = detail::dimension(op.kName, "split_axis", op.split_axis, in.size()),
                    concat = detail::dimension(op.kName, "concat_axis", op.concat_axis, in.size());
  const std::vector<Index> from = dense_strides_of(in), to = dense_strides_of(out);
  Exchanged e;
  if (op.tiled) {
    std::vector<Index> extents(in.begin(), in.end());
    extents[split] /= n;
    for (std::size_t d = 0; d < in.size(); ++d) e.box.add(extents[d], from[d], to[d]);
    e.from_step = extents[split] * from[split];
    e.to_step = extents[concat] * to[concat];
    return e;
  }
  // The dimensions that stay, in order: those of `in` without split, of `out` without concat.
  for (std::size_t s = 0, t = 0; s < in.size(); ++s) {
    if (s == split) continue;
    if (t == concat) ++t;
    e.box.add(in[s], from[s], to[t++]);
  }
  e.from_step = from[split];
  e.to_step = to[concat];
  return e;
}

}  // namespace

Pending AllGather::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  Prepared p = detail::prepare(*this, device, x, where);
  const std::size_t a =
      detail::dimension(kName, "axis", axis, x.rank() + static_cast<std::size_t>(!tiled));
  Box box;
  const Index run = product(x.shape(), a, x.rank());
  box.add(product(x.shape(), 0, a), run, run * p.group.size());
  box.add(run, 1, 1);
  if (device.transport().has_common() && detail::made_in_parts(p)) {
    auto exchange = detail::post(*this, device, p.group, x, where);
    return detail::deferred([exchange = std::move(exchange), p = std::move(p), box, run] {
      exchange->match();
      const Index rank = p.group.rank;
      const auto element = size_of(p.dtype);
      const auto bytes = static_cast<std::size_t>(product(p.shape, 0, p.shape.size())) * element;
      std::shared_ptr<void> memory = exchange->common(bytes);
      Box own = box;
      own.to_begin = rank * run;
      copy_box(*exchange, rank, static_cast<std::byte*>(memory.get()), own, element);
      exchange->wait(Exchange::End::kAll);
      return detail::common_array(p, std::move(memory));
    });
  }
  return start_move(*this, device, x, std::move(p), where,
                    [box, run](Exchange& exchange, const ReplicaGroup& group, Array& out) {
                      for_each_member(group, [&](Index j) {
                        Box one = box;
                        one.to_begin = j * run;
                        copy_box(exchange, j, bytes_of(out), one, size_of(out.dtype()));
                      });
                    });
}

Pending AllToAll::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  Prepared p = detail::prepare(*this, device, x, where);
  const Exchanged e = exchanged_box(*this, x.shape(), p.shape, p.group.size());
  return start_move(*this, device, x, std::move(p), where,
                    [e](Exchange& exchange, const ReplicaGroup& group, Array& out) {
                      for_each_member(group, [&](Index j) {
                        Box one = e.box;
                        one.from_begin = group.rank * e.from_step;
                        one.to_begin = j * e.to_step;
                        copy_box(exchange, j, bytes_of(out), one, size_of(out.dtype()));
                      });
                    });
}

Pending Ppermute::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  Prepared p = detail::prepare(*this, device, x, where);
  const Index n = p.group.size();
  Index source = -1;
  for (const auto& [from, to] : perm) {
    if ((to % n + n) % n == p.group.rank) source = (from % n + n) % n;
  }
  return start_move(*this, device, x, std::move(p), where,
                    [source](Exchange& exchange, const ReplicaGroup&, Array& out) {
                      if (source >= 0) return copy_all(exchange, source, out);
                      if (out.bytes() > 0 && out.data() != nullptr)
                        std::memset(bytes_of(out), 0, out.bytes());
                    });
}

Pending Pbroadcast::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  return start_move(*this, device, x, detail::prepare(*this, device, x, where), where,
                    [from = source](Exchange& exchange, const ReplicaGroup&, Array& out) {
                      copy_all(exchange, from, out);
                    });
}

Pending OwnSlice::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  const Prepared p = detail::prepare(*this, device, x, where);
  const std::size_t a = detail::dimension(kName, "axis", axis, x.rank());
  const Index n = p.group.size();
  const Index run = x.extent(a) / n * product(x.shape(), a + 1, x.rank());
  Box box;
  box.add(product(x.shape(), 0, a), run * n, run);
  box.add(run, 1, 1);
  box.from_begin = p.group.rank * run;
  Array out = Array::unwritten(p.dtype, p.shape);
  copy_box(static_cast<const std::byte*>(x.data()), bytes_of(out), box, size_of(p.dtype));
  return detail::deferred([out] { return out; });
}

Array AllGather::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array AllToAll::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array Ppermute::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array Pbroadcast::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array OwnSlice::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}

}  // namespace kref
