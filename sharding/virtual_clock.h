// SPDX-License-Identifier: Apache-2.0
// The virtual clock of every device: when chips with links would have done what the devices of a
// run did (run_log.h). Nothing of it depends on when their threads were scheduled.
//
//   RunLog log;
//   const Array z = collective_matmul(mesh, specs, x, y, {.axis_name = "Y", .launch = {.log =
//   &log}}); const TimedRun run = time_run(log, lay_out(find_chip("v5e"), mesh)); run.seconds(),
//   run.critical, write_trace(...)
//
// Local work advances a device's clock by the roofline of the chip: by the unit that takes longest.
// A collective begins when the last member has started it and the links are free, and takes what
// the links take (link_cost.h); done() takes a device to its end, or leaves it where it is when it
// got there later. So what is computed between start and done() hides the transfer. A device's
// links along an axis of the mesh serve one transfer at a time, in the order in which they are
// ready; a permutation that goes one way leaves the other to others. Arithmetic that is no product
// is done while blocks come and go, and takes no time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharding/run_log.h"

namespace kref {

// How a log is priced, beside chip and links.
struct ClockOptions {
  LinkOptions links = {};
  // Set: all floats count as of this type, on the wire, in HBM and in the products: kref keeps
  // partial sums and cotangents in f32 where a TPU's program would send and multiply bf16.
  std::optional<DType> floats = {};
};

// What one device computed.
struct TimedWork {
  Index device = 0;
  std::string what;
  double begin = 0, end = 0;
  Roofline unit;
};

// One exchange of one group.
struct TimedTransfer {
  std::string what;
  std::vector<std::string> axes;
  std::vector<Index> members;                       // devices, by rank
  std::vector<std::pair<Index, Index>> pairs = {};  // devices, of a permutation; else none
  // By rank: when it started it, when it came to done(), when it went on.
  std::vector<double> started = {}, awaited = {}, taken = {};
  double begin = 0, end = 0;    // on the links
  bool up = true, down = true;  // the ways along its axes that it goes
  LinkTime link = {};
  double sent_bytes = 0;  // by one member
};

// A part of the longest chain of what had to follow each other, without gaps from 0 to the end.
struct CriticalStep {
  std::string what;
  Index device = 0;  // that computed, or waited
  double begin = 0, end = 0;
  // "compute", "hbm", "vmem", "scalar", "link bandwidth", "link latency".
  std::string bound_by;
};

// A run on virtual clocks; all times in seconds from its beginning.
struct TimedRun {
  Mesh mesh;
  std::vector<TimedWork> work;           // by device, then by time
  std::vector<TimedTransfer> transfers;  // by beginning
  std::vector<double> device_seconds;    // when each device was through
  std::vector<CriticalStep> critical;

  // The last device's.
  double seconds() const;
  // Seconds of the critical path by what they are bound by; and by what most are ("nothing" of a
  // run that takes no time).
  std::map<std::string, double> bound() const;
  std::string bound_by() const;
  // What the busiest device computes; how long the busiest links of each axis are in use, and the
  // bytes that the device sends along it which sends most.
  double compute_seconds() const;
  std::map<std::string, double> axis_seconds() const;
  std::map<std::string, double> axis_bytes() const;
};

// Error: links of another mesh than the log's; a log of a launch that was ended by an Error; a type
// that the chip does not multiply; a group that group_links refuses.
TimedRun time_run(const RunLog& log, const MeshLinks& links, const ClockOptions& options = {});

}  // namespace kref
