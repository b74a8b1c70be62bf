// SPDX-License-Identifier: Apache-2.0
// Virtual clocks of small runs, against times worked out by hand.
#include "sharding/virtual_clock.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/flash_attention.h"
#include "kernels/matmul.h"
#include "sharding/collective_calls.h"
#include "sharding/launch.h"
#include "tests/refusal.h"

namespace kref {
namespace {

// A byte takes a nanosecond on a link, and hops nothing, so that times are round.
constexpr const char* kChip = "v5e:link=1e9";
const ClockOptions kNoHops = {.links = {.hop_seconds = 0}, .floats = {}};
constexpr double kUs = 1e-6;

RunLog logged(const char* mesh, const std::function<void(Device&)>& body,
              LaunchOptions options = {}) {
  RunLog log;
  options.log = &log;
  launch(Mesh::parse(mesh), body, options);
  return log;
}

TimedRun timed(const RunLog& log, const char* slice = nullptr,
               const ClockOptions& options = kNoHops) {
  const Chip chip = find_chip(kChip);
  std::optional<Slice> on;
  if (slice != nullptr) on = parse_slice(chip, slice);
  return time_run(log, lay_out(chip, log.mesh, on), options);
}

void work(Device& device, double microseconds) {
  charge(device, "work", Roofline{.compute = microseconds * kUs});
}
// 1000 bytes.
Array kilobyte() { return Array(DType::kF32, std::vector<Index>{250}); }
Index along(const Device& device, const char* axis) { return device.axis_index(axis); }

// Seconds as whole nanoseconds.
long ns(double seconds) { return std::lround(seconds * 1e9); }

// Do the steps of the critical path follow each other from 0 to the end?
bool unbroken(const TimedRun& run) {
  double at = 0;
  for (const CriticalStep& step : run.critical) {
    if (step.begin != at || step.end <= at) return false;
    at = step.end;
  }
  return at == run.seconds();
}

TEST_CASE("a collective begins with the last member and all leave it together") {
  const RunLog log = logged("X=2", [](Device& device) {
    work(device, along(device, "X") == 0 ? 5 : 2);
    static_cast<void>(psum(device, kilobyte(), "X"));
  });
  const TimedRun run = timed(log);
  // An all-reduce of 1000 bytes on a line of two: half of them, twice.
  CHECK(ns(run.device_seconds[0]) == 6000);
  CHECK(ns(run.device_seconds[1]) == 6000);
  REQUIRE(run.transfers.size() == 1);
  CHECK(ns(run.transfers[0].begin) == 5000);
  CHECK(ns(run.transfers[0].started[1]) == 2000);
  CHECK(ns(run.transfers[0].taken[1]) == 6000);
  REQUIRE(run.critical.size() == 2);
  CHECK(run.critical[0].device == 0);
  CHECK(run.critical[0].bound_by == "compute");
  CHECK(run.critical[1].bound_by == "link bandwidth");
  CHECK(run.critical[1].what == "psum(X) of F32[250]");
  CHECK(unbroken(run));
  CHECK(run.bound_by() == "compute");
  CHECK(ns(run.axis_seconds().at("X")) == 1000);
  CHECK(run.axis_bytes().at("X") == 1000);
}

TEST_CASE("what is computed between start and done hides the transfer") {
  for (const double between : {0.0, 0.25, 1.0, 3.0}) {
    const RunLog log = logged("X=2", [&](Device& device) {
      Pending travelling = ppermute_start(device, kilobyte(), "X", ring(2, 1));
      work(device, between);
      static_cast<void>(travelling.done());
      work(device, 0.5);
    });
    const TimedRun run = timed(log);
    CHECK(ns(run.seconds()) == ns((std::max(between, 1.0) + 0.5) * kUs));
    CHECK(unbroken(run));
    CHECK(run.bound().contains("link bandwidth") == (between < 1));
  }
}

TEST_CASE("a link that is busy delays the next transfer, the other way is free") {
  const auto two = [](const AxisNames& first, Index shift, const AxisNames& second, Index back) {
    return [=](Device& device) {
      Pending a = ppermute_start(device, kilobyte(), first, ring(device.axis_size(first), shift));
      Pending b = ppermute_start(device, kilobyte(), second, ring(device.axis_size(second), back));
      static_cast<void>(b.done());
      static_cast<void>(a.done());
    };
  };
  const RunLog same = logged("X=16", two("X", 1, "X", 1));
  const TimedRun busy = timed(same, "16");
  CHECK(ns(busy.seconds()) == 2000);
  REQUIRE(busy.transfers.size() == 2);
  CHECK(busy.transfers[1].begin == busy.transfers[0].end);
  CHECK(busy.critical.size() == 2);
  CHECK(unbroken(busy));
  CHECK(ns(busy.axis_seconds().at("X")) == 2000);
  const TimedRun both = timed(logged("X=16", two("X", 1, "X", -1)), "16");
  CHECK(ns(both.seconds()) == 1000);
  CHECK(ns(both.axis_seconds().at("X")) == 1000);  // each way for as long
  // On a line what goes from one end to the other takes the links of the other way.
  CHECK(ns(timed(logged("X=4", two("X", 1, "X", -1)), "4").seconds()) == 2000);
  CHECK(ns(timed(logged("X=2,Y=2", two("X", 1, "Y", 1))).seconds()) == 1000);
  // Over both axes at once: the links of each.
  CHECK(ns(timed(logged("X=2,Y=2", two(axes("X", "Y"), 1, "Y", 1))).seconds()) == 2000);
}

TEST_CASE("rows of a mesh do not wait for each other") {
  const RunLog log = logged("X=2,Y=2", [](Device& device) {
    if (along(device, "X") == 1) work(device, 7);
    static_cast<void>(psum(device, kilobyte(), "Y"));
  });
  const TimedRun run = timed(log);
  CHECK(ns(run.device_seconds[0]) == 1000);
  CHECK(ns(run.device_seconds[1]) == 1000);
  CHECK(ns(run.device_seconds[2]) == 8000);
  CHECK(ns(run.device_seconds[3]) == 8000);
  CHECK(run.critical[0].device == 2);
}

TEST_CASE("the link that is ready first is served first, whoever comes from elsewhere") {
  // Row 0 exchanges along Y late; the exchange along X that needs it comes after another along X.
  const RunLog log = logged("X=2,Y=2", [](Device& device) {
    if (along(device, "X") == 0) work(device, 1);
    static_cast<void>(psum(device, kilobyte(), "Y"));
    if (along(device, "Y") == 0) work(device, 3);
    static_cast<void>(psum(device, kilobyte(), "X"));
  });
  const TimedRun run = timed(log);
  // Along Y: row 0 from 1 to 2, row 1 from 0 to 1. Along X: column 1 at 2, column 0 at 2 + 3.
  CHECK(ns(run.device_seconds[1]) == 3000);
  CHECK(ns(run.device_seconds[3]) == 3000);
  CHECK(ns(run.device_seconds[0]) == 6000);
  CHECK(ns(run.device_seconds[2]) == 6000);
  CHECK(unbroken(run));
}

TEST_CASE("small messages are bound by their hops") {
  const RunLog log = logged("X=4", [](Device& device) {
    static_cast<void>(all_gather(device, Array(DType::kF32, std::vector<Index>{1}), "X"));
  });
  const TimedRun run = timed(log, "4", {});
  CHECK(ns(run.seconds()) == 3000);  // a line of four
  CHECK(run.bound_by() == "link latency");
}

TEST_CASE("floats count as the type that is asked for, integers as they are") {
  for (const DType type : {DType::kF32, DType::kI32}) {
    const RunLog log = logged("X=2", [&](Device& device) {
      static_cast<void>(psum(device, Array(type, std::vector<Index>{250}), "X"));
    });
    const ClockOptions as_bf16 = {.links = {.hop_seconds = 0}, .floats = DType::kBF16};
    CHECK(ns(timed(log, nullptr, as_bf16).seconds()) == (type == DType::kF32 ? 500 : 1000));
    CHECK(ns(timed(log).seconds()) == 1000);
  }
}

TEST_CASE("no schedule of the threads changes a time") {
  const auto body = [](Device& device) {
    const Index me = device.index();
    Pending a = ppermute_start(device, kilobyte(), "Y", ring(4, 1));
    work(device, static_cast<double>(me % 3));
    Pending b = psum_start(device, kilobyte(), "X");
    work(device, static_cast<double>(me % 2) / 2);
    static_cast<void>(a.done());
    static_cast<void>(all_to_all(device, Array(DType::kF32, std::vector<Index>{8, 8}),
                                 axes("X", "Y"), 0, 1, {.tiled = true}));
    static_cast<void>(b.done());
  };
  const TimedRun first = timed(logged("X=2,Y=4", body));
  CHECK(unbroken(first));
  CHECK(first.seconds() > 2 * kUs);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    LaunchOptions options;
    options.delay_seed = seed;
    const TimedRun other = timed(logged("X=2,Y=4", body, options));
    CHECK(other.device_seconds == first.device_seconds);
    REQUIRE(other.transfers.size() == first.transfers.size());
    for (std::size_t i = 0; i < other.transfers.size(); ++i) {
      CHECK(other.transfers[i].members == first.transfers[i].members);
      CHECK(other.transfers[i].begin == first.transfers[i].begin);
      CHECK(other.transfers[i].taken == first.transfers[i].taken);
    }
    REQUIRE(other.critical.size() == first.critical.size());
    for (std::size_t i = 0; i < other.critical.size(); ++i) {
      CHECK(other.critical[i].what == first.critical[i].what);
      CHECK(other.critical[i].begin == first.critical[i].begin);
    }
  }
}

TEST_CASE("one log holds several launches, of one mesh") {
  RunLog log;
  LaunchOptions options;
  options.log = &log;
  const auto body = [](Device& device) { static_cast<void>(psum(device, kilobyte(), "X")); };
  for (int i = 0; i < 3; ++i) launch(Mesh::parse("X=2"), body, options);
  CHECK(ns(timed(log).seconds()) == 3000);
  const std::string text = refusal([&] { launch(Mesh::parse("X=4"), body, options); });
  CHECK(says(text, "X=2"));
  CHECK(says(text, "X=4"));
}

TEST_CASE("links of another mesh and runs that ended early are refused") {
  const RunLog log =
      logged("X=2", [](Device& device) { static_cast<void>(psum(device, kilobyte(), "X")); });
  const MeshLinks other = lay_out(find_chip("v5e"), Mesh::parse("X=4"));
  CHECK(says(refusal([&] { time_run(log, other); }), "the links are those of X=4"));
  RunLog broken;
  LaunchOptions options;
  options.log = &broken;
  CHECK_THROWS_AS(launch(
                      Mesh::parse("X=2"),
                      [](Device& device) {
                        if (device.index() == 1) throw Error("no more");
                        static_cast<void>(psum(device, kilobyte(), "X"));
                      },
                      options),
                  Error);
  const std::string text = refusal([&] { timed(broken); });
  CHECK(says(text, "did not come to its end"));
}

TEST_CASE("grids, products and attention of a body advance its clock, each once") {
  const Chip chip = find_chip(kChip);
  const Array x(DType::kBF16, std::vector<Index>{64, 32}),
      y(DType::kBF16, std::vector<Index>{32, 48});
  const RunLog log = logged("X=2", [&](Device& device) {
    static_cast<void>(matmul(x, y));  // a grid within, and dots within that
    Tensor<float, 2> sums({64, 48});
    dot_add(x.ref().ref<const bf16, 2>(), y.ref().ref<const bf16, 2>(), sums.ref());
    Array o(DType::kBF16, std::vector<Index>{2, 4, 8, 16});
    const Array q(DType::kBF16, std::vector<Index>{2, 4, 8, 16});
    flash_attention({.q = q, .k = q, .v = q}, o.mutable_ref(), {},
                    {.scale = 1.0, .causal = Causal::kTopLeft});
    GridCost grid;
    grid.flops = grid.product_flops = 1'970'000, grid.bytes = 810;
    charge(device, "own grid", GridWork{grid});
  });
  const TimedRun run = timed(log);
  REQUIRE(run.work.size() == 2 * 4);
  const auto seconds = [&](std::size_t i) { return run.work[i].end - run.work[i].begin; };
  CHECK(run.work[0].what == "BF16[64,32] x BF16[32,48]");
  MatmulCost product{.m = 64, .n = 48, .k = 32};
  CHECK(seconds(0) == doctest::Approx(matmul_roofline(chip, product).lower()));
  product.adds = true, product.z = DType::kF32;
  CHECK(seconds(1) == doctest::Approx(matmul_roofline(chip, product).lower()));
  CHECK(run.work[1].unit.hbm_bytes == 2 * (64 * 32 + 32 * 48) + 2 * 4 * 64 * 48);
  CHECK(run.work[2].unit.flops == doctest::Approx(2.0 * 2 * 4 * (8 * 9 / 2) * (16 + 16)));
  CHECK(seconds(3) == doctest::Approx(1'970'000 / 1.97e14));
  CHECK(run.work[3].unit.hbm == doctest::Approx(1e-9));
  CHECK(run.seconds() == doctest::Approx(seconds(0) + seconds(1) + seconds(2) + seconds(3)));
}

TEST_CASE("a group of one moves nothing and takes no time") {
  const RunLog log =
      logged("X=1", [](Device& device) { static_cast<void>(psum(device, kilobyte(), "X")); });
  const TimedRun run = timed(log);
  CHECK(run.seconds() == 0);
  CHECK(run.transfers.empty());
  CHECK(run.critical.empty());
  CHECK(run.bound_by() == "nothing");
}

}  // namespace
}  // namespace kref
