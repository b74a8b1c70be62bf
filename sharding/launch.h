// SPDX-License-Identifier: Apache-2.0
// launch: runs a body on every device of a mesh, a thread each, and ends with one Error that lists
// what every device was doing when they cannot go on together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "sharding/call_site.h"
#include "sharding/device.h"

namespace kref {

struct RunLog;

// How devices are run; no result depends on it.
struct LaunchOptions {
  // How long a device may wait for others; from the moment it began to wait.
  std::chrono::milliseconds time_limit{10'000};
  // Cores that all devices share between them; 0: as many as threads() says. Each device's kernels
  // use its share, at least one thread.
  int threads = 0;
  // Set: every device sleeps a little, drawn from this seed, before each exchange: tries other
  // schedules, which change no bit of a result.
  std::optional<std::uint64_t> delay_seed = {};
  // Set: what each device computes and exchanges is added to it (run_log.h), to be priced
  // (virtual_clock.h). It outlives the launch; launches with one log come one after the other.
  RunLog* log = nullptr;
};

// Calls body(device) for every device of the mesh, each on a thread of its own, and returns when
// all have returned. One device runs on the calling thread.
//
// Error, one line first and then a line a device (what it waits for, with operation, axes, shape,
// element type, options and call site; or that it returned, or what it threw), when
// - devices that should meet bring different things: operation, axes, shape, type or options;
// - a device returned that others wait for, or some wait for one another: at once;
// - a device returned, or went on, without taking the result of what it had started;
// - a device did not come within the time limit;
// - a body threw: the Error of the lowest device is first, prefixed by the device; anything else
//   thrown by the lowest device is rethrown as it is when no Error explains the end.
// All other devices end at their next exchange or grid step, where they find a Stopped
// (dsl/thread_share.h) thrown, which a body lets pass. A device that computes on without calling
// kref cannot be ended: launch prints the message to standard error half a second later and returns
// once that device does. The mesh can be used again afterwards. A body may launch in turn; what a
// device offers is called on its own thread only. Error also when the mesh has more than
// kMaxRunDevices devices and when the system does not give a thread for each.
void launch(const Mesh& mesh, const std::function<void(Device&)>& body,
            const LaunchOptions& options = {}, CallSite where = CallSite::here());

}  // namespace kref
