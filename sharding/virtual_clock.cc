// SPDX-License-Identifier: Apache-2.0
// The log, played in the order of virtual time.
#include "sharding/virtual_clock.h"

#include <algorithm>
#include <limits>

#include "dsl/check.h"
#include "sharding/log_prices.h"

namespace kref {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// A part of a device's time: it computed, or waited for a transfer. They follow without gaps.
struct Segment {
  double begin, end;
  std::size_t work, transfer;  // one of them is kNone
};

// A device's links along an axis, one way.
struct Wire {
  double free = 0;
  std::size_t last = kNone;  // transfer that used them last
};

struct Open {
  std::size_t transfer;
  std::size_t came = 0;       // members
  std::size_t first = kNone;  // event of the member with rank 0, for the order among equals
  double ready = 0;
  std::size_t last_member = 0;  // rank that came last; of those at the same time the lowest
};

class Player {
 public:
  Player(const RunLog& log, const MeshLinks& links, const ClockOptions& options)
      : log_(log), mesh_(log.mesh), prices_(links, options), devices_(log.devices.size()) {
    for (Device& device : devices_) device.wires.resize(2 * mesh_.axes().size());
  }

  TimedRun play() {
    out_.mesh = mesh_;
    for (std::size_t d = 0; d < devices_.size(); ++d) advance(d);
    while (!ready_.empty()) send_next();
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      KREF_CHECK(devices_[d].next == log_.devices[d].events().size() && open_.empty(),
                 "log of a run that did not come to its end: device ",
                 mesh_.device_name(static_cast<Index>(d)), " waits for ", waits_for(d));
      out_.device_seconds.push_back(devices_[d].clock);
    }
    find_critical_path();
    order();
    return std::move(out_);
  }

 private:
  struct Device {
    double clock = 0;
    std::size_t next = 0;                               // event
    std::map<std::size_t, std::size_t> transfers = {};  // by the event that started it
    std::vector<Segment> segments = {};
    std::vector<Wire> wires = {};  // 2 a mesh axis: up, down
  };
  // What a transfer needs beside what is told of it.
  struct Extra {
    bool sent = false;
    std::size_t last_member = 0;  // rank whose coming made it ready
    std::size_t blocker = kNone;  // transfer that had the links, where it began later than ready
    double ready = 0;
  };

  std::string waits_for(std::size_t d) const {
    const auto& events = log_.devices[d].events();
    return devices_[d].next < events.size() ? events[devices_[d].next].what : "nothing";
  }

  // As far as a device gets without a transfer that is not yet sent.
  void advance(std::size_t d) {
    Device& device = devices_[d];
    const std::vector<LogEvent>& events = log_.devices[d].events();
    for (; device.next < events.size(); ++device.next) {
      const LogEvent& event = events[device.next];
      if (event.work) {
        compute(d, event);
      } else if (event.started) {
        start(d, device.next, *event.started, event.what);
      } else {
        const std::size_t id = device.transfers.at(event.awaited);
        if (!extra_[id].sent) {
          waiting_[id].push_back(d);
          return;
        }
        take(d, id);
      }
    }
  }

  void compute(std::size_t d, const LogEvent& event) {
    Device& device = devices_[d];
    TimedWork work{static_cast<Index>(d), event.what, device.clock, 0, prices_.price(*event.work)};
    work.end = work.begin + work.unit.lower();
    device.clock = work.end;
    device.segments.push_back({work.begin, work.end, out_.work.size(), kNone});
    out_.work.push_back(std::move(work));
  }

  void start(std::size_t d, std::size_t at, const LoggedTransfer& given, const std::string& what) {
    const auto key = std::pair(given.members, given.number);
    auto found = open_.find(key);
    if (found == open_.end()) {
      found = open_.emplace(key, Open{out_.transfers.size()}).first;
      add_transfer(given, what);
    }
    Open& open = found->second;
    TimedTransfer& transfer = out_.transfers[open.transfer];
    const auto rank = static_cast<std::size_t>(
        std::ranges::find(given.members, static_cast<Index>(d)) - given.members.begin());
    const double now = devices_[d].clock;
    devices_[d].transfers[at] = open.transfer;
    transfer.started[rank] = now;
    if (rank == 0) open.first = at;
    if (open.came == 0 || now > open.ready || (now == open.ready && rank < open.last_member)) {
      open.last_member = rank;
    }
    open.ready = std::max(open.ready, now);
    if (++open.came < given.members.size()) return;
    extra_[open.transfer].last_member = open.last_member;
    extra_[open.transfer].ready = open.ready;
    ready_[{open.ready, open.first, given.members}] = open.transfer;
    open_.erase(found);
  }

  void add_transfer(const LoggedTransfer& given, const std::string& what) {
    TimedTransfer transfer{.what = what, .axes = given.axes, .members = given.members};
    transfer.started.resize(given.members.size());
    transfer.awaited.resize(given.members.size());
    transfer.taken.resize(given.members.size());
    const std::vector<LinkAxis> axes = prices_.links_of(given);
    transfer.link = prices_.price(given, axes);
    transfer.sent_bytes = prices_.bytes(given.sent_bytes, given.dtype);
    if (!given.traffic) {
      std::tie(transfer.up, transfer.down) = permute_ways(given.pairs, axes);
      for (const auto& [from, to] : given.pairs) {
        transfer.pairs.emplace_back(given.members[static_cast<std::size_t>(from)],
                                    given.members[static_cast<std::size_t>(to)]);
      }
    }
    out_.transfers.push_back(std::move(transfer));
    extra_.emplace_back();
    waiting_.emplace_back();
  }

  // Every other transfer that will ever be ready is so later, or as late: who is to start it waits
  // for one that begins now or later.
  void send_next() {
    const std::size_t id = ready_.begin()->second;
    ready_.erase(ready_.begin());
    TimedTransfer& transfer = out_.transfers[id];
    Extra& extra = extra_[id];
    transfer.begin = extra.ready;
    const auto each_wire = [&](const auto& f) {
      for (const Index member : transfer.members) {
        std::vector<Wire>& wires = devices_[static_cast<std::size_t>(member)].wires;
        for (const std::string& axis : transfer.axes) {
          const std::size_t at = 2 * mesh_.index(axis);
          if (transfer.up) f(wires[at]);
          if (transfer.down) f(wires[at + 1]);
        }
      }
    };
    each_wire([&](const Wire& wire) {
      if (wire.free <= transfer.begin) return;
      transfer.begin = wire.free;
      extra.blocker = wire.last;
    });
    transfer.end = transfer.begin + transfer.link.seconds();
    each_wire([&](Wire& wire) { wire = {transfer.end, id}; });
    extra.sent = true;
    const std::vector<std::size_t> waiting = std::move(waiting_[id]);
    for (const std::size_t d : waiting) advance(d);
  }

  void take(std::size_t d, std::size_t id) {
    Device& device = devices_[d];
    TimedTransfer& transfer = out_.transfers[id];
    const double before = device.clock;
    device.clock = std::max(device.clock, transfer.end);
    const auto rank =
        std::ranges::find(transfer.members, static_cast<Index>(d)) - transfer.members.begin();
    transfer.awaited[static_cast<std::size_t>(rank)] = before;
    transfer.taken[static_cast<std::size_t>(rank)] = device.clock;
    if (device.clock > before) {
      device.segments.push_back({before, device.clock, kNone, id});
    }
  }

  // Back from the end: what a device did last before, or whom a transfer waited for.
  void find_critical_path() {
    std::size_t d = 0;
    for (std::size_t k = 0; k < devices_.size(); ++k) {
      if (devices_[k].clock > devices_[d].clock) d = k;
    }
    double now = devices_.empty() ? 0 : devices_[d].clock;
    while (now > 0) {
      // The one with that end; those without length lead nowhere.
      const std::vector<Segment>& all = devices_[d].segments;
      auto at = std::upper_bound(all.begin(), all.end(), now,
                                 [](double t, const Segment& s) { return t < s.end; });
      while (at != all.begin() && std::prev(at)->begin == std::prev(at)->end) --at;
      KREF_DCHECK(at != all.begin());
      const Segment& segment = *std::prev(at);
      if (segment.work != kNone) {
        const TimedWork& work = out_.work[segment.work];
        out_.critical.push_back(
            {work.what, work.device, work.begin, work.end, work.unit.bound_by()});
        now = work.begin;
        continue;
      }
      for (std::size_t id = segment.transfer; id != kNone; id = extra_[id].blocker) {
        const TimedTransfer& transfer = out_.transfers[id];
        if (transfer.end > transfer.begin) {
          out_.critical.push_back({transfer.what, static_cast<Index>(d), transfer.begin,
                                   transfer.end,
                                   std::string("link ") + name_of(transfer.link.regime())});
        }
        d = static_cast<std::size_t>(transfer.members[extra_[id].last_member]);
        now = transfer.begin;
      }
    }
    std::reverse(out_.critical.begin(), out_.critical.end());
  }

  void order() {
    std::stable_sort(out_.work.begin(), out_.work.end(),
                     [](const TimedWork& a, const TimedWork& b) { return a.device < b.device; });
    std::stable_sort(out_.transfers.begin(), out_.transfers.end(),
                     [](const TimedTransfer& a, const TimedTransfer& b) {
                       return std::tie(a.begin, a.members) < std::tie(b.begin, b.members);
                     });
  }

  using Ready = std::tuple<double, std::size_t, std::vector<Index>>;

  const RunLog& log_;
  const Mesh& mesh_;
  const detail::LogPrices prices_;
  std::vector<Device> devices_;
  std::vector<Extra> extra_;                       // of each transfer
  std::vector<std::vector<std::size_t>> waiting_;  // devices, for each transfer
  std::map<std::pair<std::vector<Index>, std::uint64_t>, Open> open_;
  std::map<Ready, std::size_t> ready_;  // all members came, not yet sent
  TimedRun out_;
};

}  // namespace

TimedRun time_run(const RunLog& log, const MeshLinks& links, const ClockOptions& options) {
  KREF_CHECK(log.devices.empty() || log.mesh == links.mesh, "log of a run on the mesh ",
             to_string(log.mesh), ", but the links are those of ", to_string(links.mesh));
  KREF_CHECK(log.complete, "log of a launch on the mesh ", to_string(log.mesh),
             " that ended with an Error: it did not come to its end");
  return Player(log, links, options).play();
}

}  // namespace kref
