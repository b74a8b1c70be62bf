// SPDX-License-Identifier: Apache-2.0
// A second transport, which reaches the others' memory in no way but by copying: what collectives
// see of devices in other processes. Lies over the one of a launch.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "sharding/launch.h"

namespace kref {

// What went over it: views copied to scratch, views that could not be had in place, writes.
struct FarTraffic {
  std::atomic<Index> fetched{0}, refused{0}, put{0};
};

class FarExchange : public Exchange {
 public:
  FarExchange(std::unique_ptr<Exchange> near, FarTraffic& traffic)
      : near_(std::move(near)), traffic_(traffic) {}

  void match() override { near_->match(); }

  const std::byte* view(Index rank, std::size_t begin, std::size_t bytes,
                        std::byte* scratch) override {
    ++(scratch == nullptr ? traffic_.refused : traffic_.fetched);
    if (scratch == nullptr) return nullptr;
    const std::byte* from = near_->view(rank, begin, bytes, nullptr);
    if (bytes > 0) std::memcpy(scratch, from, bytes);
    return scratch;
  }

  void put(Index rank, std::size_t begin, std::size_t bytes, const std::byte* from) override {
    ++traffic_.put;
    near_->put(rank, begin, bytes, from);
  }

  std::byte* target(Index) override { return nullptr; }
  std::shared_ptr<void> common(std::size_t) override { return nullptr; }
  void wait(End end) override { near_->wait(end); }

 private:
  const std::unique_ptr<Exchange> near_;
  FarTraffic& traffic_;
};

class FarTransport : public Transport {
 public:
  FarTransport(Transport& near, FarTraffic& traffic) : near_(near), traffic_(traffic) {}
  std::unique_ptr<Exchange> post(Offer offer) override {
    return std::make_unique<FarExchange>(near_.post(std::move(offer)), traffic_);
  }
  bool has_common() const override { return false; }

 private:
  Transport& near_;
  FarTraffic& traffic_;
};

// As launch, with devices that are far from each other; adds up what went between them.
inline void launch_far(const Mesh& mesh, const std::function<void(Device&)>& body,
                       FarTraffic& traffic) {
  launch(mesh, [&](Device& device) {
    FarTransport transport(device.transport(), traffic);
    Device far(device.mesh(), device.index(), transport, device.threads());
    body(far);
  });
}

}  // namespace kref
