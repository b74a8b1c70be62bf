// SPDX-License-Identifier: Apache-2.0
// What a collective takes on the links of a slice (sharding_semantics 6.2): its bytes over the
// bandwidth of the links, or its hops, whichever is more.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharding/slice.h"

namespace kref {

// What travels. A reduce-scatter takes what an all-gather takes, an all-reduce is one of each.
enum class Traffic { kAllGather, kReduceScatter, kAllReduce, kAllToAll };

// How links are used and counted.
struct LinkOptions {
  double hop_seconds = 1e-6;  // of a message without bytes to a neighbour: the book's T_min
  bool one_way = false;       // rings use one direction only
  // The book leaves out the factor (n - 1) / n of full rings. Exact: with it, and with whole hops.
  bool exact = false;
};

// What the time of a collective is made of: its bytes, or its hops.
enum class LinkRegime { kBandwidth, kLatency };

// The time of one collective, and what it is made of.
struct LinkTime {
  double bandwidth = 0;  // seconds that its bytes take
  double latency = 0;    // seconds that its hops take
  double hop_bytes = 0;  // of one message, each way

  double seconds() const { return bandwidth > latency ? bandwidth : latency; }
  LinkRegime regime() const {
    return latency > bandwidth ? LinkRegime::kLatency : LinkRegime::kBandwidth;
  }
};

// `bytes` are those of the whole array over the group, V: what each device has once it is gathered,
// what each has before it is reduced; of an all-to-all the sum of all devices' blocks. Sharded over
// other axes too, it is divided by them first. No axes: nothing moves.
//   all_gather, reduce_scatter  V / W on a ring, V / (k W) on k of them; (n - 1)/n V / W_uni on a
//                               line, whose end has one link; lines and rings add their links
//   all_to_all                  V / (4 W) on a ring, V / (4 W_uni) on a line; on several axes that
//                               of the longest, whose links in the middle are fewest
//   latency                     half a ring, the whole of a line, the axes one after the other
LinkTime link_time(Traffic traffic, double bytes, std::span<const LinkAxis> axes, const Chip& chip,
                   const LinkOptions& options = {});

// A permutation of `bytes` each, pairs (source, destination) of ranks along the axes, the first
// major: each takes the shortest way, along the first axis first; the link that most of them share
// gives the time. Error for a rank outside.
LinkTime permute_time(double bytes, std::span<const std::pair<Index, Index>> pairs,
                      std::span<const LinkAxis> axes, const Chip& chip,
                      const LinkOptions& options = {});

// Which ways it uses along the axes, up and down: what a permutation the other way does not share.
std::pair<bool, bool> permute_ways(std::span<const std::pair<Index, Index>> pairs,
                                   std::span<const LinkAxis> axes);

// V of link_time from what one device of n sends by the ring algorithms (sent_bytes of a
// collective). 0 of a group of one.
double whole_bytes(Traffic traffic, double sent, double n);

// Bytes of a message to a neighbour below which its hop counts and not its bytes: 45 kB on v5e. It
// is what one device sends each way (a shard), not the array.
double latency_bytes(const Chip& chip, const LinkOptions& options = {});

// "all_gather", ...; "bandwidth" or "latency".
const char* name_of(Traffic traffic);
const char* name_of(LinkRegime regime);

}  // namespace kref
