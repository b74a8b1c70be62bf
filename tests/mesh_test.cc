// SPDX-License-Identifier: Apache-2.0
#include "sharding/mesh.h"

#include <doctest/doctest.h>

#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("a mesh is read, printed and asked for its axes") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  REQUIRE(mesh.axes().size() == 2);
  CHECK(mesh.axes()[0] == MeshAxis{"X", 2});
  CHECK(mesh.axes()[1] == MeshAxis{"Y", 4});
  CHECK(mesh.device_count() == 8);
  CHECK(mesh.size("Y") == 4);
  CHECK(mesh.index("Y") == 1);
  CHECK_FALSE(mesh.find("Z"));
  CHECK(to_string(mesh) == "X=2,Y=4");
  CHECK(Mesh::parse("  X = 2 ,\tY=4 ") == mesh);
  CHECK(Mesh({{"X", 2}, {"Y", 4}}) == mesh);
  CHECK_FALSE(Mesh::parse("Y=4,X=2") == mesh);
  CHECK(Mesh().device_count() == 1);
}

TEST_CASE("devices are numbered row-major, the first axis major") {
  const Mesh mesh = Mesh::parse("X=2,Y=4,Z=3");
  Index device = 0;
  for (Index x = 0; x < 2; ++x) {
    for (Index y = 0; y < 4; ++y) {
      for (Index z = 0; z < 3; ++z, ++device) {
        const std::vector<Index> at{x, y, z};
        CHECK(mesh.device(at) == device);
        CHECK(mesh.coordinates(device) == at);
      }
    }
  }
  CHECK(device == mesh.device_count());
  CHECK(Mesh::parse("X=2,Y=4").device_name(6) == "(X=1, Y=2)");
  CHECK(Mesh().device_name(0) == "()");
}

TEST_CASE("a mesh may be priced at any size, run at 1024 devices") {
  const Mesh pod = Mesh::parse("X=1000000000");
  CHECK(pod.device_count() == 1000000000);
  CHECK(refusal([&] {
          check_runnable(pod);
        }).find("mesh X=1000000000 has 1000000000 devices, expected at most 1024") == 0);
  check_runnable(Mesh::parse("X=32,Y=32"));
  CHECK(refusal([] { check_runnable(Mesh::parse("X=5,Y=205")); }).find("1025 devices") !=
        std::string::npos);
  CHECK(Mesh::parse("X=9223372036854775807").device_count() == 9223372036854775807);
}

TEST_CASE("a wrong mesh is refused, and the message says what is wrong with it") {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"X=0", "axis 'X' has size 0, expected at least 1"},
      {"X=2,Y=-4", "axis 'Y' has size -4, expected at least 1"},
      {"X=2,X=4", "axis 'X' appears twice"},
      {"X=4294967296,Y=4294967296", "axis 'Y' of size 4294967296 the number of devices does not"},
      {"X=9223372036854775808", "axis 'X': size 9223372036854775808 does not fit in 64 bits"},
      {"", "is empty"},
      {"  ", "is empty"},
      {"X", "'X' is not of the form NAME=SIZE"},
      {"X=2,", "'' is not of the form NAME=SIZE"},
      {"X=2,,Y=2", "'' is not of the form NAME=SIZE"},
      {"X=", "axis 'X': size '' is not a whole number"},
      {"X=2.0", "axis 'X': size '2.0' is not a whole number"},
      {"X=2 3", "axis 'X': size '2 3' is not a whole number"},
      {"X=0x2", "axis 'X': size '0x2' is not a whole number"},
      {"=2", "axis name ''"},
      {"2X=2", "axis name '2X'"},
      {"a b=2", "axis name 'a b'"},
      {"None=2", "axis name 'None'"},
      {"X=2\n", "axis 'X': size '2?' is not a whole number"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const std::string message = refusal([&] { Mesh::parse(c.text); });
    CAPTURE(message);
    CHECK(message.find(c.message) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  std::string many = "a0=1";
  for (int k = 1; k < 100; ++k) many += ",a" + std::to_string(k) + "=1";
  CHECK(refusal([&] { Mesh::parse(many); }).find("more than 32 axes") != std::string::npos);
}

TEST_CASE("axes and devices that a mesh lacks are refused by name") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  CHECK(refusal([&] { mesh.size("Q"); }) == "axis 'Q' is not in the mesh X=2,Y=4");
  CHECK(refusal([&] { mesh.coordinates(8); }).find("device 8") == 0);
  CHECK(refusal([&] { mesh.coordinates(-1); }).find("device -1") == 0);
  const std::vector<Index> outside{0, 4}, few{1};
  CHECK(refusal([&] { mesh.device(outside); }).find("Y=4 is not in the mesh") != std::string::npos);
  CHECK(refusal([&] { mesh.device(few); }).find("1 coordinates, expected 2") != std::string::npos);
}

}  // namespace
}  // namespace kref
