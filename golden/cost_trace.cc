// SPDX-License-Identifier: Apache-2.0
// A timed run in the Trace Event format, which Perfetto and chrome://tracing open: a process a
// device, a row for what it computes and waits for, a row for its links, or more where transfers
// run side by side; arrows from whom a transfer comes.
#include <algorithm>
#include <cmath>

#include "golden/cost.h"

namespace kref {
namespace {

using Json = nlohmann::ordered_json;

constexpr Index kComputeRow = 0;

// Whole nanoseconds: what follows without a gap does so in the file, too.
long long nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double microseconds(long long ns) { return static_cast<double>(ns) / 1000; }

Json slice(const std::string& name, const char* category, Index device, Index row, double begin,
           double end, Json args) {
  const long long from = nanoseconds(begin), to = nanoseconds(end);
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", microseconds(from)},
          {"dur", microseconds(to - from)},
          {"pid", device},
          {"tid", row},
          {"args", std::move(args)}};
}

bool visible(double begin, double end) { return nanoseconds(end) > nanoseconds(begin); }

class Tracer {
 public:
  explicit Tracer(const TimedRun& run)
      : run_(run), rows_(static_cast<std::size_t>(run.mesh.device_count())) {}

  std::vector<Json> events() {
    for (const TimedWork& work : run_.work) add(work);
    for (const TimedTransfer& transfer : run_.transfers) add(transfer);
    std::stable_sort(events_.begin(), events_.end(), [](const Json& a, const Json& b) {
      return a["ts"].get<double>() < b["ts"].get<double>();
    });
    std::vector<Json> out = names();
    std::move(events_.begin(), events_.end(), std::back_inserter(out));
    return out;
  }

 private:
  void add(const TimedWork& work) {
    if (!visible(work.begin, work.end)) return;
    events_.push_back(slice(work.what, "compute", work.device, kComputeRow, work.begin, work.end,
                            {{"bound_by", work.unit.bound_by()},
                             {"flops", work.unit.flops},
                             {"hbm_bytes", work.unit.hbm_bytes}}));
  }

  void add(const TimedTransfer& transfer) {
    for (std::size_t rank = 0; rank < transfer.members.size(); ++rank) {
      if (!visible(transfer.awaited[rank], transfer.taken[rank])) continue;
      events_.push_back(slice("wait for " + transfer.what, "wait", transfer.members[rank],
                              kComputeRow, transfer.awaited[rank], transfer.taken[rank],
                              Json::object()));
    }
    if (!visible(transfer.begin, transfer.end)) return;
    std::map<Index, Index> rows;
    for (const Index member : transfer.members) {
      rows[member] = free_row(member, transfer);
      events_.push_back(slice(transfer.what, "link", member, rows[member], transfer.begin,
                              transfer.end,
                              {{"axes", transfer.axes},
                               {"sent_bytes", transfer.sent_bytes},
                               {"bound_by", std::string("link ") + name_of(transfer.link.regime())},
                               {"hop_bytes", transfer.link.hop_bytes}}));
    }
    if (!transfer.pairs.empty()) {
      for (const auto& pair : transfer.pairs) arrow(transfer, pair.first, pair.second, rows);
      return;
    }
    // From whom all others waited for.
    const auto last = std::max_element(transfer.started.begin(), transfer.started.end()) -
                      transfer.started.begin();
    const Index from = transfer.members[static_cast<std::size_t>(last)];
    for (const Index member : transfer.members) arrow(transfer, from, member, rows);
  }

  // The first row of a device's links that nothing else has until then.
  Index free_row(Index device, const TimedTransfer& transfer) {
    std::vector<long long>& ends = rows_[static_cast<std::size_t>(device)];
    std::size_t row = 0;
    while (row < ends.size() && ends[row] > nanoseconds(transfer.begin)) ++row;
    if (row == ends.size()) ends.push_back(0);
    ends[row] = nanoseconds(transfer.end);
    return static_cast<Index>(row) + 1;
  }

  // Its ends lie within the slices that it joins.
  void arrow(const TimedTransfer& transfer, Index from, Index to,
             const std::map<Index, Index>& rows) {
    if (from == to) return;
    const long long begin = nanoseconds(transfer.begin), end = nanoseconds(transfer.end);
    const auto point = [&](const char* phase, Index device, long long at) {
      return Json{{"name", transfer.what}, {"cat", "transfer"},      {"ph", phase},
                  {"id", arrows_},         {"ts", microseconds(at)}, {"pid", device},
                  {"tid", rows.at(device)}};
    };
    events_.push_back(point("s", from, begin));
    Json finish = point("f", to, end - 1);
    finish["bp"] = "e";
    events_.push_back(std::move(finish));
    ++arrows_;
  }

  std::vector<Json> names() const {
    std::vector<Json> out;
    const auto name = [&](const char* what, Index device, Index row, Json args) {
      out.push_back({{"name", what},
                     {"ph", "M"},
                     {"ts", 0},
                     {"pid", device},
                     {"tid", row},
                     {"args", std::move(args)}});
    };
    for (Index d = 0; d < run_.mesh.device_count(); ++d) {
      name("process_name", d, 0, {{"name", "device " + run_.mesh.device_name(d)}});
      name("process_sort_index", d, 0, {{"sort_index", d}});
      name("thread_name", d, kComputeRow, {{"name", "compute"}});
      const std::size_t rows = std::max<std::size_t>(1, rows_[static_cast<std::size_t>(d)].size());
      for (std::size_t row = 1; row <= rows; ++row) {
        name("thread_name", d, static_cast<Index>(row),
             {{"name", row == 1 ? std::string("links") : detail::cat("links ", row)}});
      }
    }
    return out;
  }

  const TimedRun& run_;
  std::vector<std::vector<long long>> rows_;  // of each device's links: until when each is taken
  std::vector<Json> events_;
  Index arrows_ = 1;
};

}  // namespace

Json trace_json(const TimedRun& run, const MeshLinks& links) {
  Json out;
  out["traceEvents"] = Tracer(run).events();
  out["displayTimeUnit"] = "ns";
  out["otherData"] = {{"chip", links.slice.chip.name},
                      {"slice", to_string(links.slice)},
                      {"mesh", to_string(links)},
                      {"seconds", run.seconds()},
                      {"bound_by", run.bound_by()}};
  return out;
}

}  // namespace kref
