// SPDX-License-Identifier: Apache-2.0
// The failure drill: devices that do not fit together, do not come, or fail. Nothing hangs, and the
// message says which device, which operation, which line. device_stop_test has how the others end.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "tests/drill.h"

namespace kref {
namespace {

const char* const kFile = "device_failure_test.cc:";

TEST_CASE("one device calls psum and the others all_gather") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  std::string psum, gather;
  const std::string message = drill(mesh, [&](Device& device) {
    if (device.index() == 6) {
      psum = here(), summed(device, axes("X", "Y"), 1);
    } else if (device.index() == 0) {
      gather = here(), gathered(device, axes("X", "Y"), 1);
    } else {
      gathered(device, axes("X", "Y"), 1);
    }
  });
  CHECK(first_line(message) == "device (X=1, Y=2): psum over (X,Y) at " + psum +
                                   " does not fit all_gather over (X,Y) at " + gather +
                                   " on device (X=0, Y=0): the operation is psum, expected "
                                   "all_gather");
  CHECK(line_of(message, mesh, 6) == "brings psum over (X,Y), i32[1] at " + psum);
  CHECK(line_of(message, mesh, 0) == "brings all_gather over (X,Y), i32[1] at " + gather);
  CHECK(std::ranges::count(message, '\n') == 8);
}

TEST_CASE("the odd one out is named, wherever it is; of two the second") {
  for (const Index odd : {0, 1, 4}) {
    const Mesh mesh = Mesh::parse("X=5");
    const std::string message = drill(mesh, [&](Device& device) {
      gathered(device, "X", 1, device.index() == odd ? "psum" : "pmax");
    });
    CHECK(message.find(detail::cat("device (X=", odd, "): psum over X at ", kFile)) == 0);
    CHECK(first_line(message).find("the operation is psum, expected pmax") != std::string::npos);
  }
  const std::string message = drill(Mesh::parse("X=2"), [&](Device& device) {
    gathered(device, "X", 1, device.index() == 0 ? "psum" : "pmax");
  });
  CHECK(message.find("device (X=1): pmax over X at ") == 0);
}

TEST_CASE("whatever else must agree: shape, rank, element type, options, order of the axes") {
  const Mesh mesh = Mesh::parse("X=3,Y=1");
  const struct {
    std::function<void(Offer&)> change;
    const char* message;
  } cases[] = {
      {[](Offer& o) {
         o.shape = {8, 3};
       },
       "the operand is i32[8,3], expected i32[8,4]"},
      {[](Offer& o) { o.shape = {32}; }, "the operand is i32[32], expected i32[8,4]"},
      {[](Offer& o) { o.dtype = DType::kBF16; }, "the operand is bf16[8,4], expected i32[8,4]"},
      {[](Offer& o) { o.options = "axis=1"; }, "the option is axis=1, expected axis=0"},
      {[](Offer& o) { o.axes = axes("X", "Y"); }, "the axis name is (X,Y), expected X"},
  };
  for (const auto& c : cases) {
    const std::string message = drill(mesh, [&](Device& device) {
      Offer offer = offer_of(device, "psum", "X", {8, 4});
      offer.options = "axis=0";
      if (device.index() == 2) c.change(offer);
      device.transport().post(std::move(offer))->match();
    });
    CHECK(message.find("device (X=2, Y=0): psum over ") == 0);
    CHECK_MESSAGE(first_line(message).ends_with(" on device (X=0, Y=0): " + std::string(c.message)),
                  message);
  }
}

TEST_CASE("one device sums over another axis") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  std::string line;
  const std::string message = drill(mesh, [&](Device& device) {
    if (device.index() == 1) {
      line = here(), summed(device, "X", 1);
    } else {
      summed(device, "Y", 1);
    }
  });
  // (1, 0) and (1, 1) are through; (0, 1) waits for (1, 1), and (0, 0) for (0, 1).
  CHECK(first_line(message) ==
        "device (X=1, Y=1): returned, but device (X=0, Y=1) waits for it in psum over X at " +
            line);
  CHECK(line_of(message, mesh, 1) ==
        "waits in psum over X, i32[1] at " + line + ", for device (X=1, Y=1)");
  CHECK(line_of(message, mesh, 3) == "returned");
}

TEST_CASE("collectives in another order: found at once, not at the limit") {
  for (const char* text : {"X=2,Y=2", "X=4,Y=4"}) {  // the second: sixteen devices
    const Mesh mesh = Mesh::parse(text);
    const std::string message = drill(mesh, [](Device& device) {
      if ((device.axis_index("X") + device.axis_index("Y")) % 2 == 0) {
        summed(device, "X", 1);
        gathered(device, "Y", 1);
      } else {
        gathered(device, "Y", 1);
        summed(device, "X", 1);
      }
    });
    const std::string first = first_line(message);
    CHECK_MESSAGE(first.ends_with(": neither can go on"), message);
    CHECK(first.starts_with("device (X="));
    CHECK(first.find(std::string("psum over X at ") + kFile) != std::string::npos);
    CHECK(first.find(std::string("all_gather over Y at ") + kFile) != std::string::npos);
    // Of four devices all are in the circle; of sixteen at least four are, two on either side, and
    // the others need not have come yet.
    Index sums = 0, gathers = 0, others = 0;
    for (Index k = 0; k < mesh.device_count(); ++k) {
      const std::string doing = line_of(message, mesh, k);
      const bool even = (k / axis_size(mesh, "Y") + k % axis_size(mesh, "Y")) % 2 == 0;
      const std::string operation = even ? "psum over X, " : "all_gather over Y, ";
      // On the way, or there and not yet asleep.
      if (doing == "computes" || doing.starts_with("computes, with " + operation)) {
        ++others;
        CHECK(first.find("device " + mesh.device_name(k)) == std::string::npos);
        continue;
      }
      CHECK_MESSAGE(doing.starts_with("waits in " + operation), message);
      ++(even ? sums : gathers);
    }
    CHECK(sums >= 2);
    CHECK(gathers >= 2);
    CHECK((mesh.device_count() == 16 || others == 0));
  }
  // Where nobody waits for himself, the order is free.
  check_usable(Mesh::parse("X=2,Y=2"));
  launch(Mesh::parse("X=2,Y=2"), [](Device& device) {
    if (device.index() == 0) summed(device, "X", 1);
    gathered(device, "Y", 1);
    if (device.index() != 0) summed(device, "X", 1);
  });
  // In one group the operations themselves differ.
  CHECK(drill(Mesh::parse("X=2"), [](Device& device) {
          if (device.index() == 0) summed(device, "X", 1);
          gathered(device, "X", 1);
          if (device.index() == 1) summed(device, "X", 1);
        }).find("device (X=1): all_gather over X at ") == 0);
}

TEST_CASE("a circle of three waits for itself") {
  // Groups {0, 1}, {1, 2}, {2, 0}, each device in two, each first in the one the other is not in.
  const Mesh mesh = Mesh::parse("X=3");
  const std::string message = drill(mesh, [](Device& device) {
    const Index self = device.index();
    Offer offer = offer_of(device, "psum", "X");
    const Index next = (self + 1) % 3;
    offer.group.members = {std::min(self, next), std::max(self, next)};
    offer.group.rank = self < next ? 0 : 1;
    device.transport().post(std::move(offer))->match();
  });
  CHECK(first_line(message).find("neither can go on") != std::string::npos);
}

TEST_CASE("a device returns early") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  std::string gather;
  // Before the others come, after they have come, and at the end of an exchange.
  for (const int late : {0, 20}) {
    const std::string message = drill(mesh, [&](Device& device) {
      summed(device, "Y", 1);
      if (device.index() == 3) return std::this_thread::sleep_for(Milliseconds(late));
      if (device.index() > 3) return;
      if (device.index() == 0) gather = here();
      gathered(device, "Y", 1);
    });
    CHECK(message.find("device (X=0, Y=3): returned, but device (X=0, Y=") == 0);
    CHECK(first_line(message).find(std::string("waits for it in all_gather over Y at ") + kFile) !=
          std::string::npos);
    CHECK(line_of(message, mesh, 3) == "returned");
  }
  CHECK(drill(mesh, [](Device& device) {
          Offer offer = offer_of(device, "all_to_all", "Y");
          const auto exchange = device.transport().post(std::move(offer));
          exchange->match();
          if (device.index() != 5) exchange->wait(Exchange::End::kAll);
        }).find("device (X=1, Y=1): left all_to_all over Y at device_failure_test.cc:") == 0);
}

TEST_CASE("a device throws: its Error comes first, with its name") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const std::string message = drill(mesh, [](Device& device) {
    if (device.index() == 5) throw Error("the weights are odd\nwith a second line");
    summed(device, axes("X", "Y"), 1);
  });
  CHECK(message.find(
            "device (X=1, Y=1): the weights are odd\nwith a second line\n  device (X=0, Y=0)") ==
        0);
  CHECK(line_of(message, mesh, 5) == "threw: the weights are odd");
  // Where all refuse the same, the first device tells.
  CHECK(drill(mesh, [](Device& device) {
          device.axis_size("Z");
        }).find("device (X=0, Y=0): axis_size: unbound axis name 'Z'") == 0);
  // A message that names the device already does so once.
  CHECK(drill(mesh, [](Device& device) {
          if (device.index() == 1) throw Error("psum: device (X=0, Y=1): too odd");
          summed(device, "X", 1);
        }).find("psum: device (X=0, Y=1): too odd\n") == 0);
  CHECK(drill(Mesh(), [](Device&) { throw Error("alone"); }) ==
        "device (): alone\n  device (): threw: alone");
}

TEST_CASE("what is no Error comes out as it is, unless an Error explains the end") {
  const Mesh mesh = Mesh::parse("X=4");
  const auto body = [](Device& device) {
    if (device.index() == 1) throw 41;
    summed(device, "X", 1);
  };
  CHECK_THROWS_AS(launch(mesh, body), int);
  CHECK_THROWS_AS(launch(Mesh(), [](Device&) { throw 42; }), int);
  check_usable(mesh);
  CHECK_THROWS_WITH_AS(launch(mesh, [](Device&) { throw std::out_of_range("far"); }), "far",
                       std::out_of_range);
  check_usable(mesh);
  CHECK(drill(mesh, [](Device& device) {
          if (device.index() == 0) throw 40;
          if (device.index() == 3) throw Error("known");
          std::this_thread::sleep_for(Milliseconds(5));
        }).find("device (X=3): known\n") == 0);
}

TEST_CASE("a device never arrives: the one that everybody waits for is named, at the limit") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  std::string gather;
  const std::string message = drill(
      mesh,
      [&](Device& device) {
        if (device.index() == 7) return std::this_thread::sleep_for(Milliseconds(400));
        if (device.index() == 3) {
          gather = here(), gathered(device, "X", 1);
          return;
        }
        // Those wait for (X=0, Y=3), which waits itself.
        if (device.index() < 3) summed(device, "Y", 1);
      },
      Milliseconds(200));
  CHECK(first_line(message) == "device (X=1, Y=3): did not come to all_gather over X at " + gather +
                                   " within 200 ms; device (X=0, Y=3) waits there");
  CHECK(line_of(message, mesh, 7) == "computes");
  CHECK(line_of(message, mesh, 3) ==
        "waits in all_gather over X, i32[1] at " + gather + ", for device (X=1, Y=3)");
  CHECK(line_of(message, mesh, 0).find("waits in psum over Y, i32[1] at ") == 0);
}

TEST_CASE("sixteen devices and more on two cores fail as eight do") {
  for (const char* text : {"X=16", "X=32,Y=3"}) {
    const Mesh mesh = Mesh::parse(text);
    for (int round = 0; round < 3; ++round) {
      const std::string message = drill(mesh, [&](Device& device) {
        for (int k = 0; k < 5; ++k) summed(device, "X", 1);
        if (device.index() == mesh.device_count() - 1) throw Error("enough");
        for (int k = 0; k < 5; ++k) summed(device, "X", 1);
      });
      CHECK(message.find("): enough\n") != std::string::npos);
      CHECK(std::ranges::count(message, '\n') == mesh.device_count());
      CHECK(drill(mesh, [&](Device& device) {
              gathered(device, "X", 1, device.axis_index("X") == 7 ? "pmin" : "pmax");
            }).find("device (X=7") == 0);
    }
  }
}

}  // namespace
}  // namespace kref
