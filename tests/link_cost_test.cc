// SPDX-License-Identifier: Apache-2.0
// Collectives on links, against loops that send every chunk hop by hop.
#include "sharding/link_cost.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "tests/refusal.h"

namespace kref {
namespace {

constexpr double kNoHop = 0;

// The most that any link of a row carries, one way, when every member sends a chunk of `chunk` to
// every other one the shortest way; a chunk that has two such ways is halved.
double most_carried(Index n, bool ring, double chunk) {
  std::map<std::pair<Index, int>, double> load;  // link that leaves a member, up or down
  const auto send = [&](Index from, Index hops, int way, double bytes) {
    for (Index h = 0; h < hops; ++h) {
      load[{from, way}] += bytes;
      from = (from + (way > 0 ? 1 : n - 1)) % n;
    }
  };
  for (Index s = 0; s < n; ++s) {
    for (Index d = 0; d < n; ++d) {
      if (s == d) continue;
      const Index up = (d - s + n) % n, down = n - up;
      if (!ring) {
        send(s, std::abs(d - s), d > s ? 1 : -1, chunk);
      } else if (up == down) {
        send(s, up, 1, chunk / 2);
        send(s, down, -1, chunk / 2);
      } else {
        send(s, std::min(up, down), up < down ? 1 : -1, chunk);
      }
    }
  }
  double most = 0;
  for (const auto& link : load) most = std::max(most, link.second);
  return most;
}

double seconds(Traffic traffic, double bytes, const std::vector<LinkAxis>& axes,
               const LinkOptions& options = {.hop_seconds = kNoHop}) {
  return link_time(traffic, bytes, axes, find_chip("v5e"), options).seconds();
}

TEST_CASE("all_to_all takes what its busiest link carries") {
  const double rate = find_chip("v5e").link_rate, bytes = 1e9;
  for (const Index n : {2, 4, 6, 8, 16}) {
    CAPTURE(n);
    const auto size = static_cast<double>(n);
    const double chunk = bytes / (size * size);
    CHECK(seconds(Traffic::kAllToAll, bytes, {{n, true}}) ==
          doctest::Approx(most_carried(n, true, chunk) / rate));
    CHECK(seconds(Traffic::kAllToAll, bytes, {{n, false}}) ==
          doctest::Approx(most_carried(n, false, chunk) / rate));
  }
}

TEST_CASE("all_gather takes what a member receives over its links") {
  const Chip v5e = find_chip("v5e");
  const double w = v5e.link_rate, bytes = 1e9;
  // A ring: both links of a member bring half of the others' blocks each.
  CHECK(seconds(Traffic::kAllGather, bytes, {{8, true}}) == doctest::Approx(bytes / (2 * w)));
  // A line: the last member has one link, which brings them all.
  CHECK(seconds(Traffic::kAllGather, bytes, {{8, false}}) == doctest::Approx(bytes * 7 / 8 / w));
  // A corner of a mesh of lines has two links; rings have four.
  CHECK(seconds(Traffic::kAllGather, bytes, {{4, false}, {4, false}}) ==
        doctest::Approx(bytes * 15 / 16 / (2 * w)));
  CHECK(seconds(Traffic::kAllGather, bytes, {{4, true}, {4, true}}) ==
        doctest::Approx(bytes / (4 * w)));
  CHECK(seconds(Traffic::kAllGather, bytes, {{4, true}, {4, false}}) ==
        doctest::Approx(bytes * 15 / 16 / (3 * w)));
  // Every second chip of a ring: two rows share its links.
  CHECK(seconds(Traffic::kAllGather, bytes, {{4, true, 2}}) == doctest::Approx(bytes / w));
  CHECK(seconds(Traffic::kReduceScatter, bytes, {{8, true}}) ==
        seconds(Traffic::kAllGather, bytes, {{8, true}}));
  CHECK(seconds(Traffic::kAllReduce, bytes, {{8, true}}) ==
        2 * seconds(Traffic::kAllGather, bytes, {{8, true}}));
  CHECK(seconds(Traffic::kAllGather, bytes, {}) == 0);
  CHECK(seconds(Traffic::kAllGather, bytes, {{1, false}}) == 0);
}

TEST_CASE("exact rings count hops and leave one's own block out") {
  const double w = find_chip("v5e").link_rate, bytes = 1e9;
  const LinkOptions exact{.hop_seconds = kNoHop, .exact = true};
  for (const Index n : {2, 3, 4, 5, 8}) {
    CAPTURE(n);
    // floor(n / 2) hops, in each of which a link carries a block.
    CHECK(seconds(Traffic::kAllGather, bytes, {{n, true}}, exact) ==
          doctest::Approx(static_cast<double>(n / 2) * bytes / static_cast<double>(n) / w));
  }
  const LinkOptions one_way{.hop_seconds = kNoHop, .one_way = true};
  CHECK(seconds(Traffic::kAllGather, bytes, {{8, true}}, one_way) ==
        doctest::Approx(bytes * 7 / 8 / w));
  CHECK(seconds(Traffic::kAllToAll, bytes, {{8, true}}, one_way) ==
        doctest::Approx(bytes * 7 / 16 / w));
}

TEST_CASE("on a mesh the longest axis bounds an all_to_all") {
  const double w = find_chip("v5e").axis_rate(), bytes = 1e9;
  CHECK(seconds(Traffic::kAllToAll, bytes, {{4, true}, {4, true}}) ==
        doctest::Approx(bytes * 4 / (4 * 16 * w)));
  CHECK(seconds(Traffic::kAllToAll, bytes, {{8, true}, {4, true}}) ==
        doctest::Approx(bytes * 8 / (4 * 32 * w)));
  // 2D of as many devices is sqrt(N) cheaper than 1D.
  CHECK(seconds(Traffic::kAllToAll, bytes, {{16, true}}) ==
        doctest::Approx(4 * seconds(Traffic::kAllToAll, bytes, {{4, true}, {4, true}})));
}

TEST_CASE("small messages take their hops: the shard counts, not the array") {
  const Chip v5e = find_chip("v5e");
  CHECK(latency_bytes(v5e) == 45000);
  const std::vector<LinkAxis> ring = {{16, true}};
  // 16 shards of 45 kB: 720 kB of array.
  const auto at = [&](double array) { return link_time(Traffic::kAllGather, array, ring, v5e); };
  CHECK(at(719e3).regime() == LinkRegime::kLatency);
  CHECK(at(721e3).regime() == LinkRegime::kBandwidth);
  CHECK(at(719e3).seconds() == doctest::Approx(8e-6));
  CHECK(at(719e3).hop_bytes == doctest::Approx(719e3 / 16));
  CHECK(link_time(Traffic::kAllGather, 8, std::vector<LinkAxis>{{4, false}}, v5e).seconds() ==
        doctest::Approx(3e-6));
  CHECK(link_time(Traffic::kAllReduce, 8, ring, v5e).seconds() == doctest::Approx(16e-6));
  const std::vector<LinkAxis> two = {{16, true}, {4, false}};
  CHECK(link_time(Traffic::kAllGather, 8, two, v5e).seconds() == doctest::Approx(11e-6));
  CHECK(std::string(name_of(LinkRegime::kLatency)) == "latency");
}

TEST_CASE("a permutation takes its busiest link, and its longest way") {
  const Chip v5e = find_chip("v5e");
  const double bytes = 45e6;
  const auto permute = [&](std::vector<std::pair<Index, Index>> pairs, std::vector<LinkAxis> axes) {
    return permute_time(bytes, pairs, axes, v5e);
  };
  std::vector<std::pair<Index, Index>> shift, reverse;
  for (Index i = 0; i < 8; ++i) shift.push_back({i, (i + 1) % 8}), reverse.push_back({i, 7 - i});
  CHECK(permute(shift, {{8, true}}).bandwidth == doctest::Approx(1e-3));
  CHECK(permute(shift, {{8, true}}).latency == doctest::Approx(1e-6));
  // Without a ring the pair that closes it goes back over links that nothing else uses.
  CHECK(permute(shift, {{8, false}}).bandwidth == doctest::Approx(1e-3));
  CHECK(permute(shift, {{8, false}}).latency == doctest::Approx(7e-6));
  // On a line four messages pass the middle.
  CHECK(permute(reverse, {{8, false}}).bandwidth == doctest::Approx(4e-3));
  CHECK(permute({{3, 3}}, {{8, false}}).seconds() == 0);
  CHECK(permute({{0, 15}}, {{4, false}, {4, false}}).latency == doctest::Approx(6e-6));
  CHECK(permute({{0, 3}}, {{4, true}}).latency == doctest::Approx(1e-6));
  CHECK(refusal([&] {
          permute({{0, 8}}, {{8, true}});
        }).find("expected ranks below 8") != std::string::npos);
}

TEST_CASE("between slices a device has its share of the network") {
  const Chip v5p = find_chip("v5p");
  const std::vector<LinkAxis> pods = {{2, true, 1, true}};
  CHECK(link_time(Traffic::kAllGather, 6.25e9, pods, v5p).seconds() == doctest::Approx(1));
  CHECK(link_time(Traffic::kAllReduce, 6.25e9, pods, v5p).seconds() == doctest::Approx(2));
  // Gradients of a slice of 4: each chip exchanges a quarter of them.
  const std::vector<LinkAxis> both = {{4, true}, {2, true, 1, true}};
  CHECK(link_time(Traffic::kAllReduce, 6.25e9, both, v5p).seconds() ==
        doctest::Approx(2 * (6.25e9 / 1.8e11 + 0.25)));
}

TEST_CASE("V of a collective from what one device sends") {
  // n blocks of 10: a gather sends 9 of the whole, a sum twice that, an exchange its own block but
  // for a part.
  CHECK(whole_bytes(Traffic::kAllGather, 90, 10) == 100);
  CHECK(whole_bytes(Traffic::kReduceScatter, 90, 10) == 100);
  CHECK(whole_bytes(Traffic::kAllReduce, 180, 10) == 100);
  CHECK(whole_bytes(Traffic::kAllToAll, 9, 10) == 100);
  CHECK(whole_bytes(Traffic::kAllGather, 0, 1) == 0);
}

}  // namespace
}  // namespace kref
