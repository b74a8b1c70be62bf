// SPDX-License-Identifier: Apache-2.0
// No result depends on which device comes first: a body of mixed collectives gives the same bits
// under a thousand seeded schedules, those of plain loops.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "sharding/collective_calls.h"
#include "tests/drill.h"

namespace kref {
namespace {

// Fractions whose sums depend on the order in which they are added.
Array operand(Index device, Index rows = 8) {
  Array x = Array::unwritten(DType::kF32, std::vector<Index>{rows, 64});
  Index i = 0;
  for (float& value : x.mutable_elements<float>()) {
    const auto odd = static_cast<float>((device * 977 + ++i * 331) % 1009);
    value = (odd - 500.0f) / 3.0f * (i % 7 == 0 ? 1e4f : 1.0f);
  }
  return x;
}

// Rows of an operand that is large enough to be shared out among eight: every member writes to the
// others.
constexpr Index kLarge = 96;

// Everything that a device ends up with, in order.
using Results = std::vector<Array>;

Results body(Device& device) {
  const Array x = operand(device.index());
  Results out;
  out.push_back(psum(device, x, "X"));
  Pending gathering = all_gather_start(device, x, axes("Y", "X"), {.tiled = true});
  out.push_back(psum_scatter(device, x, axes("X", "Y"), {.scatter_dimension = 0, .tiled = true}));
  Pending travelling = ppermute_start(device, out.back(), "Y", ring(4, 1));
  out.push_back(all_to_all(device, x, "Y", 0, 1, {.tiled = true}));
  out.push_back(travelling.done());
  out.push_back(pmax(device, out.back(), "X"));
  out.push_back(
      pmean(device, out[2], axes("Y", "X"), {.axis_index_groups = {{0, 3, 5, 1}, {7, 6, 4, 2}}}));
  out.push_back(gathering.done());
  out.push_back(psum(device, operand(device.index(), kLarge), axes("X", "Y"),
                     {.sum = {.order = SumOrder::kRing}}));
  out.push_back(pargmin(device, x, "Y"));
  out.push_back(pbroadcast(device, out[2], "Y", 2));
  return out;
}

// Element [row, column] of a result of device (x, y), 4 x + y, by number of the result: loops over
// the operands, which know nothing of the collectives.
class Expected {
 public:
  Expected() {
    for (Index d = 0; d < 8; ++d)
      small_.push_back(operand(d)), large_.push_back(operand(d, kLarge));
  }

  // By number of the result.
  Index rows(std::size_t result) const {
    const Index all[] = {8, 1, 2, 1, 1, 2, 64, kLarge, 8, 2};
    return all[result];
  }
  Index columns(std::size_t result) const {
    return result == 2 || result == 5 || result == 9 ? 256 : 64;
  }

  float at(std::size_t result, Index d, Index row, Index column) const {
    const Index x = d / 4, y = d % 4;
    switch (result) {
      case 0:
        return in(y, row, column) + in(4 + y, row, column);
      case 1:
        return scattered(d, column);
      case 2:
        return swapped(d, row, column);
      case 3:
        return scattered(4 * x + (y + 3) % 4, column);
      case 4:
        return std::max(scattered((y + 3) % 4, column), scattered(4 + (y + 3) % 4, column));
      case 5:
        return mean(d, row, column);
      case 6: {  // rank 2 y + x has block 2 y + x
        const Index rank = row / 8;
        return in(4 * (rank % 2) + rank / 2, row % 8, column);
      }
      case 7:
        return ring_sum(row * 64 + column);
      case 8:
        return smallest(x, row, column);
      default:
        return swapped(4 * x + 2, row, column);
    }
  }

 private:
  float in(Index d, Index row, Index column) const {
    return small_[static_cast<std::size_t>(d)]
        .elements<float>()[static_cast<std::size_t>(row * 64 + column)];
  }
  float scattered(Index d, Index column) const {
    float sum = in(0, d, column);
    for (Index k = 1; k < 8; ++k) sum += in(k, d, column);
    return sum;
  }
  // Two rows of each device along Y, side by side.
  float swapped(Index d, Index row, Index column) const {
    return in(d / 4 * 4 + column / 64, 2 * (d % 4) + row, column % 64);
  }
  float mean(Index d, Index row, Index column) const {
    const Index rank = 2 * (d % 4) + d / 4;
    const Index groups[2][4] = {{0, 3, 5, 1}, {7, 6, 4, 2}};
    const bool first = rank == 0 || rank == 3 || rank == 5 || rank == 1;
    float sum = 0;
    for (const Index k : groups[first ? 0 : 1]) sum += swapped(4 * (k % 2) + k / 2, row, column);
    return sum / 4;
  }
  // Chunk c of eight is added from device c - 1 down, round the ring.
  float ring_sum(Index i) const {
    const Index chunk = i / (kLarge * 64 / 8);
    float sum = 0;
    for (Index k = 1; k <= 8; ++k) {
      const auto from = static_cast<std::size_t>((chunk + 8 - k) % 8);
      sum += large_[from].elements<float>()[static_cast<std::size_t>(i)];
    }
    return sum;
  }
  float smallest(Index x, Index row, Index column) const {
    Index place = 0;
    for (Index y = 1; y < 4; ++y) {
      if (in(4 * x + y, row, column) < in(4 * x + place, row, column)) place = y;
    }
    return static_cast<float>(place);
  }

  std::vector<Array> small_, large_;
};

std::vector<Results> run(const LaunchOptions& options) {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  std::vector<Results> all(8);
  launch(
      mesh, [&](Device& device) { all[static_cast<std::size_t>(device.index())] = body(device); },
      options);
  return all;
}

bool same(const std::vector<Results>& a, const std::vector<Results>& b) {
  for (std::size_t d = 0; d < a.size(); ++d) {
    if (a[d].size() != b[d].size()) return false;
    for (std::size_t k = 0; k < a[d].size(); ++k) {
      if (a[d][k].bytes() != b[d][k].bytes() ||
          std::memcmp(a[d][k].data(), b[d][k].data(), a[d][k].bytes()) != 0) {
        return false;
      }
    }
  }
  return true;
}

TEST_CASE("a thousand schedules of ten mixed collectives: the same bits") {
  const std::vector<Results> first = run({});
  const Expected expected;
  for (Index d = 0; d < 8; ++d) {
    const Results& results = first[static_cast<std::size_t>(d)];
    REQUIRE(results.size() == 10);
    for (std::size_t k = 0; k < 10; ++k) {
      CAPTURE(d);
      CAPTURE(k);
      const Array& result = results[k];
      const Index rows = expected.rows(k), columns = expected.columns(k);
      REQUIRE(result.dtype() == (k == 8 ? DType::kI32 : DType::kF32));
      REQUIRE(result.rank() == 2);
      REQUIRE(result.extent(0) == rows);
      REQUIRE(result.extent(1) == columns);
      Index wrong = 0;
      for (Index i = 0; i < result.size(); ++i) {
        wrong += result.at(i) != double{expected.at(k, d, i / columns, i % columns)};
      }
      CHECK(wrong == 0);
    }
  }
  std::uint64_t different = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    if (!same(first, run({.delay_seed = seed}))) ++different;
  }
  CHECK(different == 0);
}

TEST_CASE("collectives that fail say which device, which operation, which line") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  std::string psum_line, gather_line;
  const std::string kinds = drill(mesh, [&](Device& device) {
    const Array x = operand(device.index());
    if (device.index() == 2) {
      psum_line = here(), psum(device, x, "Y");
    } else if (device.index() == 0) {
      gather_line = here(), all_gather(device, x, "Y");
    } else if (device.index() < 4) {
      all_gather(device, x, "Y");
    }
  });
  CHECK(kinds.find("device (X=0, Y=2): psum over Y at " + psum_line +
                   " does not fit all_gather over Y at " + gather_line +
                   " on device (X=0, Y=0): the operation is psum, expected all_gather\n") == 0);
  CHECK(line_of(kinds, mesh, 2).starts_with("brings psum over Y, f32[8,64]"));

  const std::string shapes = drill(mesh, [&](Device& device) {
    const Array wide(DType::kF32, std::vector<Index>{4, 4}),
        tall(DType::kF32, std::vector<Index>{8, 2});
    psum(device, device.index() == 5 ? tall : wide, "Y");
  });
  CHECK(shapes.find("device (X=1, Y=1): psum over Y at schedules_test.cc:") == 0);
  CHECK(first_line(shapes).ends_with(
      "on device (X=1, Y=0): the operand is f32[8,2], expected f32[4,4]"));

  const std::string forgotten = drill(mesh, [&](Device& device) {
    Pending sum = psum_start(device, operand(0), "Y");
    if (device.index() != 1) sum.done();
  });
  CHECK(forgotten.find("device (X=0, Y=1): left psum over Y at schedules_test.cc:") == 0);

  const std::string refused = drill(
      mesh, [&](Device& device) { psum(device, operand(0), device.index() == 3 ? "Z" : "Y"); });
  CHECK(refused.find("device (X=0, Y=3): psum: unbound axis name 'Z', the mesh has X=2,Y=4 (called "
                     "at schedules_test.cc:") == 0);
}

}  // namespace
}  // namespace kref
