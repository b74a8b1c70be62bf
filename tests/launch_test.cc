// SPDX-License-Identifier: Apache-2.0
// Devices that get on with each other; device_failure_test has the others.
#include "sharding/launch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "dsl/grid.h"
#include "dsl/threads.h"
#include "tests/exchanges.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using Values = std::vector<std::int32_t>;

TEST_CASE("the body runs once on every device, which knows its place") {
  for (const char* text : {"X=1", "X=2", "X=3", "X=2,Y=4", "X=2,Y=2,Z=2", "X=7,Y=10"}) {
    const Mesh mesh = Mesh::parse(text);
    std::vector<std::string> names(static_cast<std::size_t>(mesh.device_count()));
    std::atomic<int> calls{0};
    launch(mesh, [&](Device& device) {
      ++calls;
      names[static_cast<std::size_t>(device.index())] =
          detail::cat(device.name(), device.axis_index("X"), '/', device.axis_size("X"));
    });
    CHECK(calls == mesh.device_count());
    for (Index k = 0; k < mesh.device_count(); ++k) {
      const Index x = mesh.coordinates(k)[0];
      CHECK(names[static_cast<std::size_t>(k)] ==
            detail::cat(mesh.device_name(k), x, '/', mesh.size("X")));
    }
  }
}

TEST_CASE("a mesh without axes and one device run on the calling thread") {
  for (const Mesh& mesh : {Mesh(), Mesh::parse("X=1,Y=1")}) {
    std::thread::id there;
    Values values;
    launch(mesh, [&](Device& device) {
      there = std::this_thread::get_id();
      values = gathered(device, AxisNames(), 7);
      CHECK(exchanged(device, AxisNames(), {5}) == Values{5});
    });
    CHECK(there == std::this_thread::get_id());
    CHECK(values == Values{7});
  }
}

TEST_CASE("all groups meet, whatever the order of the axes, many times over") {
  const Mesh mesh = Mesh::parse("X=2,Y=3");
  std::atomic<int> wrong{0};
  launch(mesh, [&](Device& device) {
    for (std::int32_t round = 0; round < 50; ++round) {
      for (const AxisNames& names : {AxisNames("X"), AxisNames("Y"), AxisNames(axes("X", "Y")),
                                     AxisNames(axes("Y", "X")), AxisNames()}) {
        const Values got =
            gathered(device, names, 100 * round + static_cast<std::int32_t>(device.index()));
        const ReplicaGroup group = replica_group(mesh, names, {}, device.index());
        Values expected;
        for (const Index member : group.members) {
          expected.push_back(100 * round + static_cast<std::int32_t>(member));
        }
        if (got != expected) ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("what is put is there after wait") {
  const Mesh mesh = Mesh::parse("X=5");
  std::atomic<int> wrong{0};
  launch(mesh, [&](Device& device) {
    const auto self = static_cast<std::int32_t>(device.index());
    for (std::int32_t round = 0; round < 100; ++round) {
      Values to_each, expected;
      for (std::int32_t k = 0; k < 5; ++k) {
        to_each.push_back(round * 100 + self * 10 + k);
        expected.push_back(round * 100 + k * 10 + self);
      }
      if (exchanged(device, "X", to_each) != expected) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("several exchanges are under way at once, and are taken in another order") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  std::atomic<int> wrong{0};
  launch(mesh, [&](Device& device) {
    std::vector<std::unique_ptr<Exchange>> open;
    for (std::int32_t k = 0; k < 6; ++k) {
      Offer offer = offer_of(device, "all_gather_start", k % 2 == 0 ? "X" : "Y", {1});
      Array data(DType::kI32, offer.shape);
      data.mutable_elements<std::int32_t>()[0] = 10 * k + static_cast<std::int32_t>(device.index());
      offer.data = data;
      open.push_back(device.transport().post(std::move(offer)));
    }
    for (std::int32_t k = 6; k-- > 0;) {
      Exchange& exchange = *open[static_cast<std::size_t>(k)];
      exchange.match();
      const ReplicaGroup group = replica_group(mesh, k % 2 == 0 ? "X" : "Y", {}, device.index());
      for (Index rank = 0; rank < 2; ++rank) {
        std::int32_t scratch, value;
        std::memcpy(&value, exchange.view(rank, 0, 4, reinterpret_cast<std::byte*>(&scratch)), 4);
        const Index member = group.members[static_cast<std::size_t>(rank)];
        if (value != 10 * k + static_cast<std::int32_t>(member)) ++wrong;
      }
      exchange.wait(Exchange::End::kOwn);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("an offer is held until the last reader is done, and let go of then") {
  std::atomic<int> alive{0};
  struct Held {
    explicit Held(std::atomic<int>& count) : counter(count) { ++counter; }
    ~Held() { --counter; }
    std::atomic<int>& counter;
    std::int32_t value = 0;
  };
  std::atomic<int> wrong{0}, before_second{-1};
  launch(Mesh::parse("X=2"), [&](Device& device) {
    const auto self = static_cast<std::int32_t>(device.index());
    {
      Offer offer = offer_of(device, "all_gather", "X", {1});
      const auto held = std::make_shared<Held>(alive);
      held->value = 40 + self;
      offer.data = Array(DType::kI32, offer.shape, held, &held->value);
      const auto exchange = device.transport().post(std::move(offer));
      exchange->match();
      // The first device goes on at once; the second reads much later.
      if (self == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::int32_t value;
      std::memcpy(&value, exchange->view(1 - self, 0, 4, nullptr), 4);
      if (value != 41 - self) ++wrong;
      exchange->wait(Exchange::End::kOwn);
    }
    summed(device, "X", 1);
    if (self == 0) before_second = alive.load();
    summed(device, "X", 1);
  });
  CHECK(wrong == 0);
  CHECK(before_second == 0);
  CHECK(alive == 0);
}

TEST_CASE("more devices than cores, and than fit into one word of bits") {
  const Mesh mesh = Mesh::parse("X=4,Y=25");
  std::vector<std::int32_t> sums(100);
  launch(mesh, [&](Device& device) {
    const auto self = static_cast<std::int32_t>(device.index());
    const std::int32_t rows = summed(device, "X", self);
    sums[static_cast<std::size_t>(self)] = summed(device, "Y", rows);
  });
  for (const std::int32_t sum : sums) CHECK(sum == 99 * 100 / 2);
}

TEST_CASE("launches run side by side and one within another") {
  const Mesh mesh = Mesh::parse("X=2,Y=2");
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int k = 0; k < 3; ++k) {
    callers.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        launch(mesh, [&](Device& device) { total += summed(device, axes("X", "Y"), 1); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 3 * 10 * 4 * 4);

  std::atomic<int> inner{0};
  launch(Mesh::parse("X=2"), [&](Device& outer) {
    for (const char* text : {"Z=3", "Z=1"}) {
      launch(Mesh::parse(text), [&](Device& device) { inner += summed(device, "Z", 1); });
    }
    inner += 100 * summed(outer, "X", 1);
  });
  CHECK(inner == 2 * (9 + 1) + 400);
}

TEST_CASE("the cores are shared between the devices, on all kinds of threads") {
  const struct {
    const char* mesh;
    int threads;
    std::vector<int> shares;
  } cases[] = {{"X=1", 3, {3}}, {"X=2", 5, {3, 2}}, {"X=4", 2, {1, 1, 1, 1}}};
  for (const auto& c : cases) {
    const std::size_t n = c.shares.size();
    std::vector<int> shares(n), seen(n);
    launch(Mesh::parse(c.mesh),
           [&](Device& device) {
             set_threads(8);
             shares[static_cast<std::size_t>(device.index())] = device.threads();
             seen[static_cast<std::size_t>(device.index())] = threads();
           },
           {.threads = c.threads});
    CHECK(shares == c.shares);
    CHECK(seen == c.shares);
    CHECK(threads() == 8);
    set_threads(0);
  }
}

TEST_CASE("grids run within devices") {
  std::vector<Tensor<std::int32_t, 1>> out;
  for (int k = 0; k < 2; ++k) out.emplace_back(Shape<1>{64}, 0);
  launch(Mesh::parse("X=2"),
         [&](Device& device) {
           Tensor<std::int32_t, 1>& z = out[static_cast<std::size_t>(device.index())];
           Grid grid("g");
           const Axis i = grid.parallel("i", 64);
           const auto zb = grid.out("z", z, {.block = {1}, .index = {i}});
           grid.run([&](const Step& s) {
             s[zb](0) = static_cast<std::int32_t>(1000 * device.index() + s.index(i));
           });
         },
         {.threads = 4});
  for (int k = 0; k < 2; ++k) {
    for (Index e = 0; e < 64; ++e) CHECK(out[static_cast<std::size_t>(k)](e) == 1000 * k + e);
  }
}

TEST_CASE("what cannot be launched is refused before a device starts") {
  const auto body = [](Device&) { FAIL("a device has started"); };
  CHECK(refusal([&] { launch(Mesh::parse("X=5,Y=205"), body); }).find("at most 1024") !=
        std::string::npos);
  CHECK(refusal([&] { launch(Mesh(), nullptr); }).find("there is no body") != std::string::npos);
  CHECK(refusal([&] { launch(Mesh(), body, {.threads = -1}); }).find("-1 threads") !=
        std::string::npos);
  CHECK(refusal([&] {
          launch(Mesh(), body, {.time_limit = std::chrono::milliseconds(0)});
        }).find("time limit of 0 ms") != std::string::npos);
  std::atomic<int> calls{0};
  launch(Mesh::parse("X=2"), [&](Device& device) { calls += summed(device, "X", 1); },
         {.time_limit = std::chrono::milliseconds::max()});
  CHECK(calls == 4);
}

}  // namespace
}  // namespace kref
