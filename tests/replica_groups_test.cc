// SPDX-License-Identifier: Apache-2.0
#include "sharding/replica_groups.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "sharding/call_site.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using Groups = std::vector<std::vector<Index>>;

TEST_CASE("devices that differ in nothing but the named axes are a group") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  CHECK(replica_groups(mesh, "X", {}) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(replica_groups(mesh, "Y", {}) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(replica_groups(mesh, axes("X", "Y"), {}) == Groups{{0, 1, 2, 3, 4, 5, 6, 7}});
  // The order of the names is the order of the ranks, first major.
  CHECK(replica_groups(mesh, axes("Y", "X"), {}) == Groups{{0, 4, 1, 5, 2, 6, 3, 7}});
  CHECK(replica_groups(mesh, AxisNames(), {}) == Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});
  CHECK(replica_groups(Mesh(), AxisNames(), {}) == Groups{{0}});
}

TEST_CASE("ranks, sizes and indices agree with the coordinates, in every order of the axes") {
  const Mesh mesh = Mesh::parse("X=2,Y=3,Z=2");
  for (const std::vector<std::string>& names : {std::vector<std::string>{"X"},
                                                {"Y"},
                                                {"Z"},
                                                {"X", "Y"},
                                                {"Y", "X"},
                                                {"Z", "X"},
                                                {"X", "Y", "Z"},
                                                {"Z", "Y", "X"},
                                                {"Y", "Z", "X"},
                                                {}}) {
    Index size = 1;
    for (const std::string& name : names) size *= mesh.size(name);
    CHECK(axis_size(mesh, names) == size);
    for (Index device = 0; device < mesh.device_count(); ++device) {
      const std::vector<Index> at = mesh.coordinates(device);
      Index rank = 0;
      for (const std::string& name : names) {
        rank = rank * mesh.size(name) + at[mesh.index(name)];
      }
      CHECK(axis_index(mesh, names, device) == rank);
      const ReplicaGroup group = replica_group(mesh, names, {}, device);
      CHECK(group.size() == size);
      CHECK(group.rank == rank);
      CHECK(group.members[static_cast<std::size_t>(rank)] == device);
      for (Index k = 0; k < size; ++k) {
        const Index member = group.members[static_cast<std::size_t>(k)];
        CHECK(axis_index(mesh, names, member) == k);
        const std::vector<Index> other = mesh.coordinates(member);
        for (std::size_t a = 0; a < at.size(); ++a) {
          const bool named =
              std::find(names.begin(), names.end(), mesh.axes()[a].name) != names.end();
          if (!named) CHECK(other[a] == at[a]);
        }
      }
    }
  }
}

TEST_CASE("axis_index_groups: the place in its list is the rank") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const AxisIndexGroups pairs{{0, 2}, {3, 1}};
  check_groups(mesh, "Y", pairs, GroupSizes::kEqual, "psum");
  CHECK(replica_groups(mesh, "Y", pairs) == Groups{{0, 2}, {3, 1}, {4, 6}, {7, 5}});
  CHECK(replica_group(mesh, "Y", pairs, 5).rank == 1);
  CHECK(replica_group(mesh, "Y", pairs, 7).rank == 0);
  // Indices along several axes are flattened in the order of the names.
  const AxisIndexGroups split{{0, 1, 2, 3, 4}, {7, 6, 5}};
  check_groups(mesh, axes("Y", "X"), split, GroupSizes::kAny, "psum");
  CHECK(replica_groups(mesh, axes("Y", "X"), split) == Groups{{0, 4, 1, 5, 2}, {7, 3, 6}});
}

TEST_CASE("wrong axes and groups are refused, and the message says what is wrong") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const struct {
    AxisNames axes;
    AxisIndexGroups groups;
    GroupSizes sizes;
    const char* message;
  } cases[] = {
      {"Z", {}, GroupSizes::kAny, "psum: unbound axis name 'Z', the mesh has X=2,Y=4"},
      {"", {}, GroupSizes::kAny, "psum: unbound axis name ''"},
      {axes("Y", "X", "Y"), {}, GroupSizes::kAny, "psum: axis 'Y' is named twice in (Y,X,Y)"},
      {"X",
       {{0}},
       GroupSizes::kAny,
       "psum: axis_index_groups must cover all indices exactly once, 0 .. 1 along X: index 1 is "
       "missing"},
      {"X", {{0, 1}, {1}}, GroupSizes::kAny, "index 1 appears twice"},
      {"X", {{0, 2}}, GroupSizes::kAny, "there is no index 2 (group 0)"},
      {"X", {{0}, {1, -1}}, GroupSizes::kAny, "there is no index -1 (group 1)"},
      {"X", {{0, 1}, {}}, GroupSizes::kAny, "group 1 is empty"},
      {"Y",
       {{0, 1, 2}, {3}},
       GroupSizes::kEqual,
       "psum: axis_index_groups must be equally sized: group 0 has 3 indices, group 1 has 1"},
  };
  for (const auto& c : cases) {
    const std::string message =
        refusal([&] { check_groups(mesh, c.axes, c.groups, c.sizes, "psum"); });
    CHECK_MESSAGE(message.find(c.message) != std::string::npos, message);
  }
  check_groups(mesh, "Y", {{0, 1, 2}, {3}}, GroupSizes::kAny, "psum");
  CHECK(refusal([&] { axis_size(mesh, "W"); }).find("axis_size: unbound axis name 'W'") == 0);
  CHECK(refusal([&] {
          axis_index(mesh, axes("X", "X"), 0);
        }).find("axis_index: axis 'X' is named") == 0);
  CHECK(refusal([] { axis_size(Mesh(), "X"); }).find("the mesh has no axes") != std::string::npos);
  // A mesh that is only priced costs nothing to refuse.
  CHECK(refusal([] {
          check_groups(Mesh::parse("X=1000000000"), "X", {{0, 1}}, GroupSizes::kAny, "psum");
        }).find("index 2 is missing") != std::string::npos);
}

TEST_CASE("axis names and call sites print as in messages") {
  CHECK(to_string(AxisNames("X")) == "X");
  CHECK(to_string(AxisNames(axes("X", "Y"))) == "(X,Y)");
  CHECK(to_string(AxisNames()) == "()");
  CHECK(to_string(CallSite{"layers/mlp.cc", 12}) == "mlp.cc:12");
  CHECK(to_string(CallSite{"mlp.cc", 3}) == "mlp.cc:3");
  CHECK(to_string(CallSite()).empty());
  CHECK(to_string(CallSite::here()).find("replica_groups_test.cc:") == 0);
}

}  // namespace
}  // namespace kref
