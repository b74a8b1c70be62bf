// SPDX-License-Identifier: Apache-2.0
// No result depends on which device comes first: a body of mixed collectives gives the same bits
// under a thousand seeded schedules.
#include <doctest/doctest.h>

#include <cstring>

#include "sharding/collective_calls.h"
#include "tests/drill.h"

namespace kref {
namespace {

// Fractions whose sums depend on the order in which they are added.
Array operand(Index device) {
  Array x = Array::unwritten(DType::kF32, std::vector<Index>{8, 64});
  Index i = 0;
  for (float& value : x.mutable_elements<float>()) {
    const auto odd = static_cast<float>((device * 977 + ++i * 331) % 1009);
    value = (odd - 500.0f) / 3.0f * (i % 7 == 0 ? 1e4f : 1.0f);
  }
  return x;
}

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
  // Large enough to be shared out: every member writes to the others.
  out.push_back(psum(device, out.back(), axes("X", "Y"), {.sum = {.order = SumOrder::kRing}}));
  out.push_back(pargmin(device, x, "Y"));
  out.push_back(pbroadcast(device, out[7], "Y", 2));
  return out;
}

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
  // They are the sums, in ascending rank.
  for (Index d = 0; d < 8; ++d) {
    const Results& results = first[static_cast<std::size_t>(d)];
    REQUIRE(results.size() == 10);
    const auto low = operand(d % 4), high = operand(d % 4 + 4);
    const auto scattered = results[1].elements<float>();
    for (std::size_t i = 0; i < 512; ++i) {
      CHECK(results[0].elements<float>()[i] ==
            low.elements<float>()[i] + high.elements<float>()[i]);
    }
    for (std::size_t i = 0; i < 64; ++i) {
      float sum = operand(0).elements<float>()[static_cast<std::size_t>(d) * 64 + i];
      for (Index k = 1; k < 8; ++k) {
        sum += operand(k).elements<float>()[static_cast<std::size_t>(d) * 64 + i];
      }
      CHECK(scattered[i] == sum);
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
