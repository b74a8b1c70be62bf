// SPDX-License-Identifier: Apache-2.0
// The collectives that reduce. A large result is shared out: member i reduces chunk i of all
// members' arrays, so that each element is read once, and writes it to the result that all have in
// common, or else to that of every member. A small one is reduced by every member on its own: one
// meeting instead of two.
#include <algorithm>
#include <cstring>

#include "kernels/tile_ops.h"
#include "sharding/collectives_reduce.h"
#include "sharding/collectives_run.h"

namespace kref {
namespace {

using detail::Fold;
using detail::Folding;
using detail::Part;
using detail::Prepared;
using detail::Sink;

std::byte* bytes_of(Array& out) { return static_cast<std::byte*>(out.mutable_data()); }

// Chunk c of n of the flattened array.
Part chunk_of(Index elements, Index n, Index c) {
  const Index each = cdiv(elements, n);
  Part part;
  part.begin = std::min(elements, c * each);
  part.columns = std::min(elements - part.begin, each);
  part.stride = std::max<Index>(part.columns, 1);
  return part;
}

// A result in the making, as done() needs it.
struct AllReduce {
  Prepared result;
  Folding reduction;
  Array out;                           // none where there will be a common one
  std::unique_ptr<Exchange> exchange;  // goes before `out`, to which the others may write
  Index elements = 0;
  Index only = -1;  // the one member that gets the result; -1: all do
  bool common = false, shared = false;

  Array finish() {
    exchange->match();
    if (common) return reduce_in_common();
    shared ? reduce_own_chunk() : reduce_everything();
    exchange->wait(shared ? Exchange::End::kAll : Exchange::End::kOwn);
    return std::move(out);
  }

 private:
  const ReplicaGroup& group() const { return result.group; }

  // What every member gets, a chunk by each.
  Array reduce_in_common() {
    const auto element = static_cast<Index>(size_of(result.dtype));
    std::shared_ptr<void> memory = exchange->common(static_cast<std::size_t>(elements * element));
    const Part part = chunk_of(elements, group().size(), group().rank);
    Sink sink;
    sink.out = static_cast<std::byte*>(memory.get()) + part.begin * element;
    reduce(*exchange, group().size(), group().rank, reduction, part, sink);
    exchange->wait(Exchange::End::kAll);
    return detail::common_array(result, std::move(memory));
  }

  Sink sink_at(Index begin) {
    Sink sink;
    sink.out = bytes_of(out) + static_cast<std::size_t>(begin) * size_of(out.dtype());
    return sink;
  }

  void reduce_everything() {
    if (only >= 0 && only != group().rank) return;
    const Index n = group().size();
    const Index chunks = reduction.order == SumOrder::kRing ? n : 1;
    for (Index c = 0; c < chunks; ++c) {
      const Part part = chunk_of(elements, chunks, c);
      reduce(*exchange, n, c, reduction, part, sink_at(part.begin));
    }
  }

  void reduce_own_chunk() {
    const Index n = group().size();
    const Part part = chunk_of(elements, n, group().rank);
    const std::size_t begin = static_cast<std::size_t>(part.begin) * size_of(out.dtype());
    const bool own = only < 0 || only == group().rank;
    Sink sink;
    if (own) sink = sink_at(part.begin);
    std::vector<std::pair<Index, std::byte*>> others;  // their memory, or none that can be reached
    for (Index k = 1; k < n; ++k) {
      const Index other = (group().rank + k) % n;
      if (only < 0 || only == other) others.emplace_back(other, exchange->target(other));
    }
    sink.published = [&](std::size_t at, std::size_t bytes, const std::byte* data) {
      for (const auto& [other, memory] : others) {
        if (memory != nullptr) {
          std::memcpy(memory + begin + at, data, bytes);
        } else {
          exchange->put(other, begin + at, bytes, data);
        }
      }
    };
    reduce(*exchange, n, group().rank, reduction, part, sink);
  }
};

template <class Op>
Pending start_all_reduce(const Op& op, Device& device, const Array& x, const Folding& reduction,
                         CallSite where, Index only = -1) {
  Prepared p = detail::prepare(op, device, x, where);
  AllReduce work;
  work.reduction = reduction;
  work.elements = x.size();
  work.only = only;
  const bool gets = only < 0 || only == p.group.rank;
  work.common = only < 0 && device.transport().has_common() && detail::made_in_parts(p);
  if (!work.common) {
    work.out = gets ? Array::unwritten(p.dtype, p.shape) : Array(p.dtype, p.shape);
    work.shared = detail::made_in_parts(p);
  }
  work.exchange =
      detail::post(op, device, p.group, x, where, work.shared && gets ? &work.out : nullptr);
  work.result = std::move(p);
  return detail::deferred([work = std::move(work)]() mutable { return work.finish(); });
}

}  // namespace

Pending Psum::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  const Folding r =
      detail::at_call(where, [&] { return sum_folding(kName, Fold::kSum, x.dtype(), sum); });
  return start_all_reduce(*this, device, x, r, where);
}

Pending Pmean::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  const Folding r =
      detail::at_call(where, [&] { return sum_folding(kName, Fold::kMean, x.dtype(), sum); });
  return start_all_reduce(*this, device, x, r, where);
}

Pending Pmax::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  const Folding r = detail::extremum_folding(min ? Fold::kMin : Fold::kMax, x.dtype());
  return start_all_reduce(*this, device, x, r, where);
}

Pending Pargmax::start(Device& device, const Array& x, CallSite where) const {
  const Folding r = detail::extremum_folding(min ? Fold::kArgMin : Fold::kArgMax, x.dtype());
  return start_all_reduce(*this, device, x, r, where);
}

Pending PsumTo::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  const Folding r =
      detail::at_call(where, [&] { return sum_folding(kName, Fold::kSum, x.dtype(), sum); });
  return start_all_reduce(*this, device, x, r, where, target);
}

Pending PsumScatter::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  Prepared p = detail::prepare(*this, device, x, where);
  const Folding r =
      detail::at_call(where, [&] { return sum_folding(kName, Fold::kSum, x.dtype(), sum); });
  const std::size_t d = detail::dimension(kName, "scatter_dimension", scatter_dimension, x.rank());
  Part part;
  part.rows = detail::product(x.shape(), 0, d);
  part.stride = detail::product(x.shape(), d, x.rank());
  part.columns = part.stride / p.group.size();
  part.begin = p.group.rank * part.columns;
  auto exchange = detail::post(*this, device, p.group, x, where);
  return detail::deferred([exchange = std::move(exchange), p = std::move(p), r, part] {
    exchange->match();
    Array out = Array::unwritten(p.dtype, p.shape);
    Sink sink;
    sink.out = bytes_of(out);
    reduce(*exchange, p.group.size(), p.group.rank, r, part, sink);
    exchange->wait(Exchange::End::kOwn);
    return out;
  });
}

// Nothing moves.
Pending Pvary::start(Device& device, const Array& x, CallSite where) const {
  if (detail::is_identity(*this)) return detail::unchanged(x);
  const Prepared p = detail::prepare(*this, device, x, where);
  if (!mean) return detail::unchanged(x);
  // Divided in f32, f64 in f64, and rounded once.
  if (detail::shapes_only()) {
    return detail::deferred([p] { return Array::unwritten(p.dtype, p.shape); });
  }
  const bool wide = p.dtype == DType::kF64;
  Array quotient = Array::unwritten(wide ? DType::kF64 : DType::kF32, p.shape);
  const auto n = static_cast<double>(p.group.size());
  const auto n_f32 = static_cast<float>(n);
  const ArrayRef divisor(quotient.dtype(), {}, wide ? static_cast<const void*>(&n) : &n_f32);
  detail::cast(x, quotient.mutable_ref(), Overflow::kDefault);
  detail::binary(detail::Binary::kDiv, quotient, divisor, quotient.mutable_ref());
  Array out = quotient;
  if (p.dtype != quotient.dtype()) {
    out = Array::unwritten(p.dtype, p.shape);
    detail::cast(quotient, out.mutable_ref(), Overflow::kDefault);
  }
  return detail::deferred([out] { return out; });
}

Array Psum::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array Pmean::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array Pmax::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array Pargmax::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array PsumTo::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array PsumScatter::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}
Array Pvary::operator()(Device& device, const Array& x, CallSite where) const {
  return start(device, x, where).done();
}

DType Psum::result_dtype(DType in) const { return sum_folding(kName, Fold::kSum, in, sum).result; }
DType Pmean::result_dtype(DType in) const {
  return sum_folding(kName, Fold::kMean, in, sum).result;
}
DType PsumScatter::result_dtype(DType in) const {
  return sum_folding(kName, Fold::kSum, in, sum).result;
}
DType PsumTo::result_dtype(DType in) const {
  return sum_folding(kName, Fold::kSum, in, sum).result;
}

}  // namespace kref
