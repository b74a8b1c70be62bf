// SPDX-License-Identifier: Apache-2.0
// Bytes that one member of a group of n sends, by the ring algorithms of sharding_semantics 2.6:
// a reduce-scatter or an all-gather sends (n - 1) / n of the whole, an all-reduce is one of each.
#include <algorithm>

#include "sharding/collectives_reduce.h"
#include "sharding/collectives_run.h"

namespace kref {
namespace {

using detail::Fold;
using detail::Folding;

std::size_t elements_of(std::span<const Index> in) {
  return static_cast<std::size_t>(detail::product(in, 0, in.size()));
}

// times * (n - 1) / n of `elements`, in whole elements per part where n does not divide them.
std::size_t ring(std::size_t times, std::size_t elements, std::size_t element, Index n) {
  const auto members = static_cast<std::size_t>(n);
  return times * (members - 1) * ((elements + members - 1) / members) * element;
}

// Of one term of a sum as it travels.
std::size_t term_size(const Folding& r) { return size_of(r.wire.value_or(r.term)); }

}  // namespace

std::size_t AllGather::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return static_cast<std::size_t>(n - 1) * elements_of(in) * size_of(dtype);
}
std::size_t OwnSlice::sent_bytes(std::span<const Index>, DType, Index) const { return 0; }
std::size_t Pvary::sent_bytes(std::span<const Index>, DType, Index) const { return 0; }
std::size_t PsumScatter::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  const Folding r = sum_folding(kName, Fold::kSum, dtype, sum);
  return ring(1, elements_of(in), term_size(r), n);
}
std::size_t Psum::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return ring(2, elements_of(in), term_size(sum_folding(kName, Fold::kSum, dtype, sum)), n);
}
std::size_t Pmean::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return ring(2, elements_of(in), term_size(sum_folding(kName, Fold::kMean, dtype, sum)), n);
}
std::size_t Pmax::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return ring(2, elements_of(in), size_of(dtype), n);
}
// The extremum, then the lowest rank that has it.
std::size_t Pargmax::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return ring(2, elements_of(in), size_of(dtype) + size_of(DType::kI32), n);
}
std::size_t AllToAll::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return ring(1, elements_of(in), size_of(dtype), n);
}
// A member that is a source of another one.
std::size_t Ppermute::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  const bool moves = std::any_of(perm.begin(), perm.end(), [n](const auto& pair) {
    return (pair.first - pair.second) % n != 0;
  });
  return moves ? elements_of(in) * size_of(dtype) : 0;
}
// Each member passes the whole on, the last one nothing.
std::size_t Pbroadcast::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  return n > 1 ? elements_of(in) * size_of(dtype) : 0;
}
std::size_t PsumTo::sent_bytes(std::span<const Index> in, DType dtype, Index n) const {
  const Folding r = sum_folding(kName, Fold::kSum, dtype, sum);
  return n > 1 ? elements_of(in) * term_size(r) : 0;
}

}  // namespace kref
