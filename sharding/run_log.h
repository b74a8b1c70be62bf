// SPDX-License-Identifier: Apache-2.0
// RunLog: what every device of a launch computed and exchanged, in its own order, without times.
// virtual_clock.h reads it and says when a TPU would have done what; one run is priced on any chip.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dsl/grid_cost.h"
#include "dsl/work_meter.h"
#include "sharding/link_cost.h"
#include "sharding/replica_groups.h"
#include "sharding/roofline.h"
#include "sharding/transport.h"

namespace kref {

class Device;

// A collective that one device started.
struct LoggedTransfer {
  std::vector<std::string> axes;
  std::vector<Index> members = {};  // of its group, by rank
  std::uint64_t number = 0;         // it is so many-th of this group, from 0
  // None: each member sends to those it has in `pairs`, (source rank, destination rank).
  std::optional<Traffic> traffic = {};
  std::vector<std::pair<Index, Index>> pairs = {};
  double sent_bytes = 0;  // by one member, by the ring algorithms
  DType dtype = DType::kF32;
};

// A grid of a body's own, multiplying in `compute`.
struct GridWork {
  GridCost cost;
  DType compute = DType::kBF16;
};

// One thing that a device did: it computed, it started a collective, it took the result.
struct LogEvent {
  using Work = std::variant<ProductWork, AttentionWork, GridWork, Roofline>;

  std::string what;  // "f32[512,2048] x f32[2048,2048]", "all_gather(Y) of f32[512,512]"
  std::optional<Work> work = {};
  std::optional<LoggedTransfer> started = {};
  std::size_t awaited = 0;  // neither: the event that started it
};

// Of one device; written by its own thread.
class DeviceLog : public WorkMeter {
 public:
  void product(const ProductWork& work) override;
  void attention(const AttentionWork& work) override;
  // Work of which the caller knows what it comes to, or what it takes.
  void charge(std::string what, LogEvent::Work work);
  // Sets transfer.number. Gives what await() is told.
  std::size_t start(std::string what, LoggedTransfer transfer);
  void await(std::size_t start);

  const std::vector<LogEvent>& events() const { return events_; }

 private:
  std::vector<LogEvent> events_;
  std::map<std::vector<Index>, std::uint64_t> numbers_;  // of the next one of each group
};

// Given to a launch (LaunchOptions::log), which adds what its devices do: launches on one mesh
// follow each other. A launch that ends with an Error leaves a part, which nobody takes.
struct RunLog {
  Mesh mesh = {};
  std::vector<DeviceLog> devices = {};  // by number; none yet: any mesh
  bool complete = true;                 // no launch has ended with an Error

  // For a launch on `on`, which sets `complete` again when it has ended. Error when there are
  // devices of another mesh, and when it is not complete.
  void open(const Mesh& on);
};

// Work of a body's own: a grid, GridWork{grid.cost(body)}; or of which it knows what it takes on
// the chip that the run is to be priced on. matmul, dot, attention and collectives tell by
// themselves. Without a log nothing happens.
void charge(Device& device, std::string what, LogEvent::Work work);

namespace detail {
// The exchange, and its end in the log.
std::unique_ptr<Exchange> logged(std::unique_ptr<Exchange> exchange, DeviceLog& log,
                                 std::size_t start);
}  // namespace detail

}  // namespace kref
