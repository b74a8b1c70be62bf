// SPDX-License-Identifier: Apache-2.0
// Exchanges without a collective, for tests of what lies below them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "sharding/device.h"

namespace kref {

inline Offer offer_of(Device& device, const char* operation, const AxisNames& axes,
                      std::vector<Index> shape = {}, CallSite where = CallSite::here()) {
  Offer offer;
  offer.operation = operation;
  offer.axes = axes;
  offer.group = replica_group(device.mesh(), axes, {}, device.index());
  offer.dtype = DType::kI32;
  offer.shape = std::move(shape);
  offer.where = where;
  return offer;
}

// The values of all members by rank: a small all_gather, which only reads.
inline std::vector<std::int32_t> gathered(Device& device, const AxisNames& axes, std::int32_t value,
                                          const char* operation = "all_gather",
                                          CallSite where = CallSite::here()) {
  Offer offer = offer_of(device, operation, axes, {1}, where);
  Array data = Array::unwritten(DType::kI32, offer.shape);
  data.mutable_elements<std::int32_t>()[0] = value;
  offer.data = std::move(data);
  const Index n = offer.group.size();
  const std::unique_ptr<Exchange> exchange = device.transport().post(std::move(offer));
  exchange->match();
  std::vector<std::int32_t> out;
  for (Index rank = 0; rank < n; ++rank) {
    std::int32_t scratch, at;
    std::memcpy(&at, exchange->view(rank, 0, 4, reinterpret_cast<std::byte*>(&scratch)), 4);
    out.push_back(at);
  }
  exchange->wait(Exchange::End::kOwn);
  return out;
}

inline std::int32_t summed(Device& device, const AxisNames& axes, std::int32_t value,
                           CallSite where = CallSite::here()) {
  std::int32_t sum = 0;
  for (const std::int32_t each : gathered(device, axes, value, "psum", where)) sum += each;
  return sum;
}

// Member `rank` puts to_each[k] where member k finds it as element `rank`: a small all_to_all,
// which writes to the others.
inline std::vector<std::int32_t> exchanged(Device& device, const AxisNames& axes,
                                           const std::vector<std::int32_t>& to_each,
                                           CallSite where = CallSite::here()) {
  std::vector<std::int32_t> out(to_each.size(), -1);
  Offer offer = offer_of(device, "all_to_all", axes, {static_cast<Index>(out.size())}, where);
  offer.target = out.data();
  offer.target_bytes = 4 * out.size();
  const Index rank = offer.group.rank;
  const std::unique_ptr<Exchange> exchange = device.transport().post(std::move(offer));
  exchange->match();
  for (std::size_t k = 0; k < to_each.size(); ++k) {
    exchange->put(static_cast<Index>(k), 4 * static_cast<std::size_t>(rank), 4,
                  reinterpret_cast<const std::byte*>(&to_each[k]));
  }
  exchange->wait(Exchange::End::kAll);
  return out;
}

}  // namespace kref
