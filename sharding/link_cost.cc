// SPDX-License-Identifier: Apache-2.0
#include "sharding/link_cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "dsl/check.h"

namespace kref {
namespace {

// Links by which one device of the row receives, in units of one link one way: two on a ring. Rows
// that lie in each other share them.
double incoming(const LinkAxis& axis, const LinkOptions& options) {
  const double ways = axis.wraps && !options.one_way ? 2 : 1;
  return ways / static_cast<double>(axis.stride);
}

double hops(const LinkAxis& axis, const LinkOptions& options) {
  const auto n = static_cast<double>(axis.size);
  const double far = axis.wraps && !options.one_way ? n / 2 : n - 1;
  return far * static_cast<double>(axis.stride);
}

// A gather over the axes together: every device receives all blocks but its own.
double gather_seconds(double bytes, std::span<const LinkAxis> axes, double group, double rate,
                      const LinkOptions& options) {
  double links = 0;
  bool rings = !options.one_way;
  for (const LinkAxis& axis : axes) {
    links += incoming(axis, options);
    rings = rings && axis.wraps;
  }
  const double whole = bytes / (links * rate);
  if (!rings) return whole * (group - 1) / group;
  if (!options.exact) return whole;
  if (axes.size() > 1) return whole * (group - 1) / group;
  // floor(n / 2) hops: for even n the last one needs one direction only and takes as long.
  return std::floor(group / 2) * 2 / group * whole;
}

// A quarter of the bytes crosses the middle of each axis one way; its links there are those of all
// rows along it.
double exchange_seconds(double bytes, std::span<const LinkAxis> axes, double group, double rate,
                        const LinkOptions& options) {
  double most = 0;
  for (const LinkAxis& axis : axes) {
    const auto n = static_cast<double>(axis.size);
    // One direction only: chunks go n / 2 hops on average, so half of the bytes pass each link.
    const double share = axis.wraps && options.one_way ? (n - 1) / (2 * n) : 0.25;
    most = std::max(most, share * bytes / (group / n * incoming(axis, options) * rate));
  }
  return most;
}

double group_of(std::span<const LinkAxis> axes) {
  double group = 1;
  for (const LinkAxis& axis : axes) group *= static_cast<double>(axis.size);
  return group;
}

// Between slices a device sends and receives at its share of the host's network card.
double network_seconds(Traffic traffic, double bytes, double n, const Chip& chip, bool exact) {
  if (traffic == Traffic::kAllToAll) return bytes * (n - 1) / (n * n) / chip.dcn_rate;
  return bytes * (exact ? (n - 1) / n : 1) / chip.dcn_rate;
}

// Where a rank is along each axis, the first major.
std::vector<Index> position(Index rank, std::span<const LinkAxis> axes) {
  std::vector<Index> at(axes.size());
  for (std::size_t k = axes.size(); k-- > 0;) {
    at[k] = rank % axes[k].size;
    rank /= axes[k].size;
  }
  return at;
}

// The shorter way.
bool goes_up(const LinkAxis& axis, Index from, Index to) {
  const Index forward = ((to - from) % axis.size + axis.size) % axis.size;
  return axis.wraps ? forward * 2 <= axis.size : to > from;
}

}  // namespace

LinkTime link_time(Traffic traffic, double bytes, std::span<const LinkAxis> given, const Chip& chip,
                   const LinkOptions& options) {
  std::vector<LinkAxis> links;
  double network = 1;
  for (const LinkAxis& axis : given) {
    if (axis.network) network *= static_cast<double>(axis.size);
    if (!axis.network && axis.size > 1) links.push_back(axis);
  }
  LinkTime time;
  const double group = group_of(links);
  if (!links.empty()) {
    const bool exchange = traffic == Traffic::kAllToAll;
    time.bandwidth = exchange ? exchange_seconds(bytes, links, group, chip.link_rate, options)
                              : gather_seconds(bytes, links, group, chip.link_rate, options);
    for (const LinkAxis& axis : links) time.latency += hops(axis, options);
    time.latency *= options.hop_seconds;
    time.hop_bytes = exchange ? bytes / (group * group) : bytes / group;
  }
  if (network > 1) {
    // A group within slices and between them: what is left of the array after the first part.
    time.bandwidth += network_seconds(traffic, bytes / group, network, chip, options.exact);
    if (links.empty()) time.hop_bytes = bytes / network;
  }
  if (traffic == Traffic::kAllReduce) {
    time.bandwidth *= 2;
    time.latency *= 2;
  }
  return time;
}

std::pair<bool, bool> permute_ways(std::span<const std::pair<Index, Index>> pairs,
                                   std::span<const LinkAxis> axes) {
  bool up = false, down = false;
  for (const auto& pair : pairs) {
    const std::vector<Index> at = position(pair.first, axes), to = position(pair.second, axes);
    for (std::size_t k = 0; k < axes.size(); ++k) {
      if (at[k] == to[k]) continue;
      (goes_up(axes[k], at[k], to[k]) ? up : down) = true;
    }
  }
  return {up, down};
}

LinkTime permute_time(double bytes, std::span<const std::pair<Index, Index>> pairs,
                      std::span<const LinkAxis> axes, const Chip& chip,
                      const LinkOptions& options) {
  const auto group = static_cast<Index>(group_of(axes));
  // Messages on the link that leaves the chip at `from` along an axis, up or down.
  std::map<std::pair<std::vector<Index>, std::pair<std::size_t, bool>>, Index> load;
  double most = 0, far = 0, network = 0;
  for (const auto& pair : pairs) {
    KREF_CHECK(pair.first >= 0 && pair.first < group && pair.second >= 0 && pair.second < group,
               "permutation (", pair.first, ", ", pair.second, "), expected ranks below ", group);
    std::vector<Index> at = position(pair.first, axes);
    const std::vector<Index> to = position(pair.second, axes);
    double path = 0;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      if (at[k] == to[k]) continue;
      if (axes[k].network) {
        network = bytes / chip.dcn_rate;
        at[k] = to[k];
        continue;
      }
      const Index n = axes[k].size;
      const bool up = goes_up(axes[k], at[k], to[k]);
      for (; at[k] != to[k]; at[k] = (at[k] + (up ? 1 : n - 1)) % n) {
        const Index shared = ++load[{at, {k, up}}];
        most = std::max(most, static_cast<double>(shared * axes[k].stride));
        path += static_cast<double>(axes[k].stride);
      }
    }
    far = std::max(far, path);
  }
  return {.bandwidth = std::max(most * bytes / chip.link_rate, network),
          .latency = far * options.hop_seconds,
          .hop_bytes = bytes};
}

double whole_bytes(Traffic traffic, double sent, double n) {
  if (n <= 1) return 0;
  const double once = sent * n / (n - 1);
  if (traffic == Traffic::kAllReduce) return once / 2;
  return traffic == Traffic::kAllToAll ? once * n : once;
}

double latency_bytes(const Chip& chip, const LinkOptions& options) {
  return chip.link_rate * options.hop_seconds;
}

const char* name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::kAllGather:
      return "all_gather";
    case Traffic::kReduceScatter:
      return "psum_scatter";
    case Traffic::kAllReduce:
      return "psum";
    default:
      return "all_to_all";
  }
}

const char* name_of(LinkRegime regime) {
  return regime == LinkRegime::kLatency ? "latency" : "bandwidth";
}

}  // namespace kref
