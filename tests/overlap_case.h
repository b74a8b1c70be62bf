// SPDX-License-Identifier: Apache-2.0
// The book's collective matmul, 311 / 244 / 224 us, on virtual clocks: the real code runs, and a
// chip whose rate is fitted on the third number predicts the other two (sharding_semantics 4.4,
// 4.5).
#pragma once

#include "sharding/collective_matmul.h"
#include "sharding/virtual_clock.h"

namespace kref {

// A [1024, 2048] as P(X, Y) by W [2048, 8192] as P(-, Y) on X=2, Y=4, in elements of four bytes.
// Measured, in seconds: gather, then multiply; multiply while blocks go round; multiply alone, A
// being gathered already. The book states neither chip nor element type.
struct OverlapCase {
  Index m = 1024, k = 2048, n = 8192;
  Mesh mesh = Mesh::parse("X=2,Y=4");
  double naive = 311e-6, ring = 244e-6, product = 224e-6;

  // Operations a second that make the product alone take what was measured.
  double fitted_rate() const {
    const double devices = static_cast<double>(mesh.device_count());
    return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n) /
           devices / product;
  }
  // The links and the memory of a v5e, which in this shape has no ring.
  MeshLinks links() const {
    Chip chip = find_chip("v5e");
    chip.bf16_rate = fitted_rate();
    return lay_out(chip, mesh);
  }
};

// What was run, and its virtual clock.
struct OverlapRun {
  Array z;
  TimedRun time;
};

// How A and W meet.
enum class OverlapForm { kProduct, kNaive, kRing, kRingBoth };

inline OverlapRun run_overlap(const OverlapCase& c, OverlapForm form, const Array& a,
                              const Array& w) {
  RunLog log;
  LaunchOptions launch;
  launch.log = &log;
  // One pass of the MXU a product, as the fitted rate counts.
  constexpr Precision kOnePass = Precision::kBF16;
  const P whole = {"X"}, blocks = {"X", "Y"};
  OverlapRun out;
  const MatmulSpecs specs{
      form == OverlapForm::kProduct ? whole : blocks, P{none, "Y"}, {blocks, {}}};
  if (form == OverlapForm::kRing || form == OverlapForm::kRingBoth) {
    const RingDirection way =
        form == OverlapForm::kRing ? RingDirection::kOne : RingDirection::kBoth;
    out.z = collective_matmul(
        c.mesh, specs, a, w,
        {.axis_name = "Y", .direction = way, .precision = kOnePass, .launch = launch});
  } else {
    out.z = sharded_matmul(c.mesh, specs, a, w, {.precision = kOnePass, .launch = launch});
  }
  out.time = time_run(log, c.links());
  return out;
}

}  // namespace kref
