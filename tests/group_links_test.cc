// SPDX-License-Identifier: Apache-2.0
// Which links parts of an axis have, and what collectives of such parts take.
#include "sharding/group_links.h"

#include <doctest/doctest.h>

#include "sharding/collective_calls.h"
#include "sharding/launch.h"
#include "sharding/virtual_clock.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using Axes = std::vector<LinkAxis>;

MeshLinks on(const char* mesh, const char* chip, const char* slice) {
  return lay_out(find_chip(chip), Mesh::parse(mesh), parse_slice(find_chip(chip), slice));
}

Axes links_of(const std::vector<Index>& members, const MeshLinks& links,
              const std::vector<std::string>& names = {"X"}) {
  return group_links(members, names, links);
}

TEST_CASE("parts of a ring are lines, every so many-th chip of it a ring that shares its links") {
  const MeshLinks ring = on("X=16", "v5e", "16");
  CHECK(links_of({0, 1, 2, 3}, ring) == Axes{{4, false, 1, false}});
  CHECK(links_of({4, 5, 6, 7}, ring) == Axes{{4, false, 1, false}});
  CHECK(links_of({3, 2, 1, 0}, ring) == Axes{{4, false, 1, false}});  // in any order
  CHECK(links_of({0, 4, 8, 12}, ring) == Axes{{4, true, 4, false}});
  CHECK(links_of({1, 9}, ring) == Axes{{2, true, 8, false}});
  CHECK(links_of({0, 2, 4, 6}, ring) == Axes{{4, false, 2, false}});
  std::vector<Index> all;
  for (Index i = 0; i < 16; ++i) all.push_back(i);
  CHECK(links_of(all, ring) == ring.of({"X"}));
  CHECK(links_of({5}, ring).empty());
  const MeshLinks line = on("X=4", "v5e", "4");
  CHECK(links_of({0, 2}, line) == Axes{{2, false, 2, false}});
}

TEST_CASE("groups on several axes of links are boxes") {
  const MeshLinks cube = on("X=16,Y=4", "v5p", "4x4x4");  // X on two rings of four
  CHECK(cube.of({"X"}) == Axes{{4, true, 1, false}, {4, true, 1, false}});
  // Device number = 4 x + y; members along x = 0 .. 3: a row of the second axis.
  CHECK(links_of({0, 4, 8, 12}, cube) == Axes{{4, true, 1, false}});
  CHECK(links_of({0, 16, 32, 48}, cube) == Axes{{4, true, 1, false}});
  CHECK(links_of({0, 4, 16, 20}, cube) == Axes{{2, false, 1, false}, {2, false, 1, false}});
  const std::string text = refusal([&] { links_of({0, 4, 16, 24}, cube); });
  CHECK(says(text, "neither a row of equally distant chips nor a box"));
  CHECK(says(text, "(X=6, Y=0)"));
  CHECK(says(refusal([&] { links_of({0, 4, 12}, cube); }), "neither a row"));
}

TEST_CASE("a collective of groups takes what its own links take") {
  const auto seconds = [](const AxisIndexGroups& groups) {
    RunLog log;
    LaunchOptions options;
    options.log = &log;
    const auto body = [&](Device& device) {
      const Array x(DType::kF32, std::vector<Index>{45'000});
      static_cast<void>(all_gather(device, x, "X", {.tiled = true, .axis_index_groups = groups}));
    };
    launch(Mesh::parse("X=8"), body, options);
    const MeshLinks links = on("X=8", "v5e", "8");  // a line
    return time_run(log, links, {.links = {.hop_seconds = 0}, .floats = {}}).seconds();
  };
  constexpr double kBlock = 180'000 / 4.5e10;  // one block over one link
  CHECK(seconds({}) == doctest::Approx(7 * kBlock));
  CHECK(seconds({{0, 1, 2, 3}, {4, 5, 6, 7}}) == doctest::Approx(3 * kBlock));
  // In each other: twice as many blocks pass each link.
  CHECK(seconds({{0, 2, 4, 6}, {1, 3, 5, 7}}) == doctest::Approx(2 * 3 * kBlock));
  CHECK(seconds({{0, 1}, {2, 3}, {4, 5}, {6, 7}}) == doctest::Approx(kBlock));
}

}  // namespace
}  // namespace kref
