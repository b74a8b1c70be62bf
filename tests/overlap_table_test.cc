// SPDX-License-Identifier: Apache-2.0
// The book's 311 / 244 / 224 us: what virtual clocks of the real code say of it.
#include <doctest/doctest.h>

#include <cstring>

#include "dsl/work_meter.h"
#include "tests/overlap_case.h"

namespace kref {
namespace {

// Small integers, so that every sum is exact in whichever order.
Array integers(const std::vector<Index>& shape, std::uint32_t seed) {
  Array out(DType::kF32, shape);
  for (float& v : out.mutable_elements<float>()) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int>(seed >> 28)) - 7;
  }
  return out;
}

bool near(double found, double expected, double part) {
  return std::abs(found - expected) <= part * expected;
}

TEST_CASE("fitted on the product alone, the clock predicts gather + product and the ring") {
  const OverlapCase c;
  const Array a = integers({c.m, c.k}, 1), w = integers({c.k, c.n}, 2);
  const OverlapRun product = run_overlap(c, OverlapForm::kProduct, a, w),
                   naive = run_overlap(c, OverlapForm::kNaive, a, w),
                   ring = run_overlap(c, OverlapForm::kRing, a, w);
  // The runs are real: they have the product.
  REQUIRE(naive.z.bytes() == product.z.bytes());
  CHECK(std::memcmp(naive.z.data(), product.z.data(), product.z.bytes()) == 0);
  CHECK(std::memcmp(ring.z.data(), product.z.data(), product.z.bytes()) == 0);
  double first = 0;  // element (0, 0) in plain loops
  for (Index k = 0; k < c.k; ++k) first += a.at(k) * w.at(k * c.n);
  CHECK(product.z.at(0) == first);
  CHECK(first != 0);

  MESSAGE("naive " << naive.time.seconds() * 1e6 << " us, ring " << ring.time.seconds() * 1e6
                   << " us, product " << product.time.seconds() * 1e6 << " us");
  CHECK(product.time.seconds() == doctest::Approx(c.product));
  CHECK(near(naive.time.seconds(), c.naive, 0.10));
  CHECK(near(ring.time.seconds(), c.ring, 0.10));

  // The structure: nothing overlaps in the one; the other is near to the larger of the two.
  REQUIRE(naive.time.critical.size() == 2);
  const double gather = naive.time.critical[0].end;
  CHECK(naive.time.critical[0].bound_by == "link bandwidth");
  CHECK(gather == doctest::Approx(3 * 1048576.0 / 4.5e10));  // three shards over one link
  CHECK(naive.time.seconds() == doctest::Approx(gather + product.time.seconds()));
  CHECK(near(ring.time.seconds(), std::max(gather, product.time.seconds()), 0.06));
  CHECK(naive.time.bound().size() == 2);
  CHECK(ring.time.transfers.size() == 2 * 3);  // two rows of the mesh, n - 1 permutes
  CHECK(ring.time.work.size() == 8 * 4);
  // Each permute begins with the product that hides it.
  for (const TimedTransfer& hop : ring.time.transfers) {
    CHECK(hop.end - hop.begin == doctest::Approx(1048576.0 / 4.5e10));
    for (const double taken : hop.taken) CHECK(taken > hop.end);
  }
}

TEST_CASE("shapes alone give the same clocks as the numbers") {
  OverlapCase c;
  c.m /= 16, c.k /= 16, c.n /= 16;
  const Array a = integers({c.m, c.k}, 3), w = integers({c.k, c.n}, 4);
  const Array no_a(DType::kF32, std::vector<Index>{c.m, c.k}, nullptr, nullptr),
      no_w(DType::kF32, std::vector<Index>{c.k, c.n}, nullptr, nullptr);
  for (const OverlapForm form :
       {OverlapForm::kProduct, OverlapForm::kNaive, OverlapForm::kRing, OverlapForm::kRingBoth}) {
    const TimedRun real = run_overlap(c, form, a, w).time;
    const ShapesOnly scope;
    const OverlapRun shapes = run_overlap(c, form, no_a, no_w);
    CHECK(shapes.z.data() == nullptr);
    CHECK(to_string(shapes.z.ref()) == "F32[64,512]");
    CHECK(shapes.time.device_seconds == real.device_seconds);
    CHECK(shapes.time.work.size() == real.work.size());
    REQUIRE(shapes.time.transfers.size() == real.transfers.size());
    for (std::size_t i = 0; i < real.transfers.size(); ++i) {
      CHECK(shapes.time.transfers[i].what == real.transfers[i].what);
      CHECK(shapes.time.transfers[i].begin == real.transfers[i].begin);
    }
    CHECK(shapes.time.seconds() > 0);
  }
}

TEST_CASE("halves both ways gain nothing on a line and half the hop on a ring") {
  OverlapCase c;
  const Array no_a(DType::kF32, std::vector<Index>{c.m, c.k}, nullptr, nullptr),
      no_w(DType::kF32, std::vector<Index>{c.k, c.n}, nullptr, nullptr);
  const ShapesOnly scope;
  // A chip so fast that the links decide.
  const auto seconds = [&](OverlapForm form, const char* chip, const char* slice) {
    RunLog log;
    LaunchOptions launch;
    launch.log = &log;
    const MatmulSpecs specs{P{"X", "Y"}, P{none, "Y"}, {P{"X", "Y"}, {}}};
    collective_matmul(
        c.mesh, specs, no_a, no_w,
        {.axis_name = "Y",
         .direction = form == OverlapForm::kRing ? RingDirection::kOne : RingDirection::kBoth,
         .precision = Precision::kBF16,
         .launch = launch});
    const Chip on = find_chip(chip);
    MeshLinks links = lay_out(on, c.mesh, parse_slice(on, slice));
    if (std::string_view(slice) == "8") links.axes[1] = {{4, true, 1, false}};
    return time_run(log, links, {.links = {.hop_seconds = 0}, .floats = {}}).seconds();
  };
  constexpr const char* kFast = "v5e:bf16=1e18,hbm=1e18";
  const double hop = 1048576.0 / 4.5e10;
  CHECK(seconds(OverlapForm::kRing, kFast, "2x4") == doctest::Approx(3 * hop).epsilon(0.001));
  CHECK(seconds(OverlapForm::kRingBoth, kFast, "2x4") == doctest::Approx(3 * hop).epsilon(0.001));
  CHECK(seconds(OverlapForm::kRing, kFast, "8") == doctest::Approx(3 * hop).epsilon(0.001));
  CHECK(seconds(OverlapForm::kRingBoth, kFast, "8") == doctest::Approx(1.5 * hop).epsilon(0.001));
}

}  // namespace
}  // namespace kref
