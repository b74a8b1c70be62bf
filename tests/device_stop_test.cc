// SPDX-License-Identifier: Apache-2.0
// How devices end when another has failed, wherever they are; and what must not be left behind.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "dsl/grid.h"
#include "dsl/thread_share.h"
#include "dsl/threads.h"
#include "tests/drill.h"

namespace kref {
namespace {

TEST_CASE("a device that steps through a grid ends at its next step") {
  std::atomic<Index> steps{0};
  for (const int threads : {2, 6}) {  // teams of one and of three
    steps = 0;
    const std::string message =
        drill(Mesh::parse("X=2"),
              [&](Device& device) {
                if (device.index() == 1) {
                  while (steps == 0) std::this_thread::yield();
                  throw Error("enough");
                }
                Grid grid("endless");
                grid.parallel("i", Index{1} << 20);
                grid.sequential("k", Index{1} << 20);
                grid.run([&](const Step&) {
                  ++steps;
                  std::this_thread::sleep_for(std::chrono::microseconds(100));
                });
              },
              Milliseconds(0), {.threads = threads});
    CHECK(message.find("device (X=1): enough\n") == 0);
    CHECK(steps >= 1);
  }
}

TEST_CASE("a thread's share of the cores and its stop, without devices") {
  const int usual = threads();
  std::atomic<bool> stop{false};
  Grid grid("g");
  grid.parallel("i", 100);
  int steps = 0;
  {
    const ThreadShare share(1, &stop);
    CHECK(threads() == 1);
    {
      const ThreadShare more(5);
      CHECK(threads() == 1);
    }
    std::thread([&] { CHECK(threads() == usual); }).join();
    const auto body = [&](const Step& s) { stop = s.number() == 7, ++steps; };
    CHECK(refusal([&] { grid.run(body); }) == "grid 'g': stopped before step 8");
    CHECK(steps == 8);
    CHECK_THROWS_AS(grid.check([](const Step&) {}), Stopped);
  }
  CHECK(threads() == usual);
  CHECK(grid.run([](const Step&) {}).steps == 100);
}

TEST_CASE("a body that goes on after the end finds it at every exchange") {
  std::atomic<int> caught{0};
  const std::string message = drill(Mesh::parse("X=3"), [&](Device& device) {
    if (device.index() == 2) throw Error("mine");
    for (int k = 0; k < 3; ++k) {
      try {
        summed(device, "X", 1);
      } catch (const Stopped& stopped) {
        ++caught;
        CHECK(std::string(stopped.what()).find("device (X=0): ") != std::string::npos);
      }
    }
  });
  CHECK(message.find("device (X=2): mine\n") == 0);
  CHECK(caught == 6);
}

TEST_CASE("an exchange that is started and never taken") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto start = [](Device& device) {
    return device.transport().post(offer_of(device, "psum_start", "X", {1}));
  };
  const char* const expected = "device (X=1): left psum_start over X at device_stop_test.cc:";
  // Dropped at once.
  CHECK(drill(mesh, [&](Device& device) {
          const auto exchange = start(device);
          if (device.index() == 1) return;
          exchange->match();
          exchange->wait(Exchange::End::kOwn);
          summed(device, "X", 1);
        }).find(expected) == 0);
  // Kept beyond the end of the launch, even where nobody waits for it.
  std::unique_ptr<Exchange> kept;
  CHECK(drill(mesh, [&](Device& device) {
          auto exchange = start(device);
          if (device.index() == 1) {
            kept = std::move(exchange);
          } else {
            exchange->match();
            exchange->wait(Exchange::End::kOwn);
          }
        }).find(expected) == 0);
  CHECK(refusal([&] { kept->match(); }).find("not the device's own") != std::string::npos);
  kept.reset();
  check_usable(mesh);
  // Carried away by an exception that the body does not let out.
  for (const bool goes_on : {false, true}) {
    CHECK(drill(mesh, [&](Device& device) {
            try {
              const auto exchange = start(device);
              exchange->match();
              if (device.index() == 1) throw 1;
              exchange->wait(Exchange::End::kAll);
            } catch (const int&) {
              if (goes_on) summed(device, "X", 1);
            }
          }).find(expected) == 0);
  }
}

TEST_CASE("memory that others write to is there until they have stopped") {
  // One device leaves between match and wait while the others are at its target.
  for (const int round : {0, 1, 2, 3, 4, 5}) {
    const Mesh mesh = Mesh::parse("X=4");
    std::atomic<int> writers{0}, entered{0}, found{0};
    const std::string message = drill(mesh, [&](Device& device) {
      struct Target {
        explicit Target(std::atomic<int>& w, std::atomic<int>& f) : writing(w), bad(f) {}
        ~Target() { bad += writing != 0 ? 1 : 0; }
        std::atomic<int>& writing;
        std::atomic<int>& bad;
        std::vector<std::int32_t> values = std::vector<std::int32_t>(4);
      };
      const auto self = static_cast<std::int32_t>(device.index());
      std::atomic<int> nobody{0};
      const Target target(self == 0 ? writers : nobody, found);
      Offer offer = offer_of(device, "all_to_all", "X", {4});
      offer.target = const_cast<std::int32_t*>(target.values.data());
      offer.target_bytes = 16;
      const auto exchange = device.transport().post(std::move(offer));
      exchange->match();
      if (self == 0) {
        while (round < 3 && entered == 0) std::this_thread::yield();
        throw Error("out");
      }
      ++writers, ++entered;
      std::this_thread::sleep_for(Milliseconds(round));
      for (Index k = 0; k < 4; ++k) {
        exchange->put(k, 4 * static_cast<std::size_t>(self), 4,
                      reinterpret_cast<const std::byte*>(&self));
      }
      --writers;
      exchange->wait(Exchange::End::kAll);
    });
    CHECK(message.find("device (X=0): out\n") == 0);
    CHECK(found == 0);
  }
}

TEST_CASE("a device is used on its own thread only") {
  const std::string message = drill(Mesh::parse("X=2"), [](Device& device) {
    std::string told;
    std::thread([&] { told = refusal([&] { summed(device, "X", 1); }); }).join();
    throw Error(told);
  });
  CHECK(first_line(message) ==
        "device (X=0): a collective was called on a thread that is not the device's own");
}

TEST_CASE("a launch within a launch fails with it, and it with the launch") {
  const Mesh outer = Mesh::parse("X=2"), inner = Mesh::parse("Y=2");
  CHECK(drill(outer, [&](Device& device) {
          launch(inner, [&](Device& within) {
            if (device.index() == 1 && within.index() == 0) throw Error("deep");
            summed(within, "Y", 1);
          });
          summed(device, "X", 1);
        }).find("device (X=1): device (Y=0): deep\n") == 0);
  // Each inner device waits for one that steps through a grid, which ends with the outer launch.
  for (const bool nested : {true, false}) {
    std::atomic<int> steps{0};
    CHECK(drill(outer, [&](Device& device) {
            if (device.index() == 1) {
              while (steps == 0) std::this_thread::yield();
              throw Error("outer");
            }
            launch(nested ? inner : Mesh(), [&](Device& within) {
              if (within.index() == 0) {
                Grid grid("endless");
                grid.sequential("k", Index{1} << 30);
                grid.run([&](const Step&) {
                  ++steps;
                  std::this_thread::sleep_for(std::chrono::microseconds(100));
                });
              }
              summed(within, "Y", 1);
            });
          }).find("device (X=1): outer\n") == 0);
  }
}

TEST_CASE("a device that cannot be ended is told of, and waited for") {
  const std::string path = detail::cat("device_stop_test.", getpid(), ".err");
  std::fflush(stderr);
  const int old = dup(2);
  REQUIRE(std::freopen(path.c_str(), "w+", stderr) != nullptr);
  const std::string message = refusal([] {
    launch(Mesh::parse("X=3"), [](Device& device) {
      if (device.index() == 1) std::this_thread::sleep_for(Milliseconds(900));
      if (device.index() == 2) throw Error("gone");
    });
  });
  std::fflush(stderr);
  std::rewind(stderr);
  char text[1000] = {};
  const std::size_t length = std::fread(text, 1, sizeof text - 1, stderr);
  dup2(old, 2);
  close(old);
  std::remove(path.c_str());
  CHECK(message.find("device (X=2): gone\n") == 0);
  const std::string told(text, length);
  CHECK_MESSAGE(told.find("kref: launch at device_stop_test.cc:") == 0, told);
  CHECK(told.find(" waits for device (X=1), still computing: ") != std::string::npos);
  CHECK(told.find("threw: gone\n") != std::string::npos);
}

}  // namespace
}  // namespace kref
