// SPDX-License-Identifier: Apache-2.0
// What a timed run comes to.
#include <algorithm>

#include "sharding/virtual_clock.h"

namespace kref {
namespace {

double most(const std::map<Index, double>& by_device) {
  double out = 0;
  for (const auto& entry : by_device) out = std::max(out, entry.second);
  return out;
}

// For each axis, of the device that has most of it.
template <class F>
std::map<std::string, double> by_axis(const TimedRun& run, const F& of) {
  std::map<std::string, std::map<Index, double>> sums;
  for (const TimedTransfer& transfer : run.transfers) {
    for (const std::string& axis : transfer.axes) {
      for (const Index member : transfer.members) sums[axis][member] += of(transfer);
    }
  }
  std::map<std::string, double> out;
  for (const auto& [axis, devices] : sums) out[axis] = most(devices);
  return out;
}

}  // namespace

double TimedRun::seconds() const {
  double last = 0;
  for (const double one : device_seconds) last = std::max(last, one);
  return last;
}

std::map<std::string, double> TimedRun::bound() const {
  std::map<std::string, double> out;
  for (const CriticalStep& step : critical) out[step.bound_by] += step.end - step.begin;
  return out;
}

std::string TimedRun::bound_by() const {
  std::string out = "nothing";
  double longest = 0;
  for (const auto& [name, seconds] : bound()) {
    if (seconds > longest) out = name, longest = seconds;
  }
  return out;
}

double TimedRun::compute_seconds() const {
  std::map<Index, double> sums;
  for (const TimedWork& one : work) sums[one.device] += one.end - one.begin;
  return most(sums);
}

std::map<std::string, double> TimedRun::axis_seconds() const {
  // Each way is a link of its own.
  auto out = by_axis(*this, [](const TimedTransfer& t) { return t.up ? t.end - t.begin : 0; });
  const auto down = by_axis(*this, [](const auto& t) { return t.down ? t.end - t.begin : 0; });
  for (const auto& [axis, seconds] : down) out[axis] = std::max(out[axis], seconds);
  return out;
}

std::map<std::string, double> TimedRun::axis_bytes() const {
  return by_axis(*this, [](const TimedTransfer& t) { return t.sent_bytes; });
}

}  // namespace kref
