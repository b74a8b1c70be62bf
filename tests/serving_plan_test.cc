// SPDX-License-Identifier: Apache-2.0
// Decoding with weights that move, as FSDP has them: priced as the book says, refused with advice.
#include "sharding/serving_plan.h"

#include <doctest/doctest.h>

#include "sharding/serving.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using doctest::Approx;

constexpr LayerSize kSize{.b = 32, .d = 8192, .f = 28672};

MeshLinks pod(const char* mesh) {
  const Chip chip = find_chip("v5e");
  return lay_out(chip, Mesh::parse(mesh), parse_slice(chip, "16x16"));
}

TEST_CASE("fsdp at inference: 144 times as long as reading weights, 16 ways on v5e") {
  const ServingPlan s = serving_plan({.strategy = LayerStrategy::kFsdp}, kSize, pod("X=16,Y=16"));
  CHECK(s.moved.size() == 2);
  CHECK(s.penalty() == Approx(fsdp_decode_penalty(find_chip("v5e"), 16)));
  CHECK(s.penalty() == Approx(144.0).epsilon(2e-3));
  const double weight = 2.0 * 8192 * 28672;
  CHECK(s.move_seconds == Approx(2 * weight / find_chip("v5e").axis_rate()));
  CHECK(s.read_seconds == Approx(2 * weight / 16 / find_chip("v5e").hbm_rate));
  // Nothing hides it: the step takes about as long.
  CHECK(s.given.seconds >= s.move_seconds);
}

TEST_CASE("a gate moves a third weight; fsdp_tp a part of each; axes of one device none") {
  const LayerPlan gated{.strategy = LayerStrategy::kFsdp, .gate = true};
  const ServingPlan all = serving_plan(gated, kSize, pod("X=16,Y=16"));
  CHECK(all.moved.size() == 3);
  CHECK(all.penalty() == Approx(144.0).epsilon(2e-3));
  const ServingPlan part =
      serving_plan({.strategy = LayerStrategy::kFsdpTp, .gate = true}, kSize, pod("X=16,Y=16"));
  CHECK(part.moved.size() == 3);
  CHECK(part.move_seconds == Approx(all.move_seconds / 16));
  CHECK(part.penalty() == Approx(all.penalty()));
  const ServingPlan none =
      serving_plan({.strategy = LayerStrategy::kFsdpTp}, kSize, pod("X=1,Y=256"));
  CHECK(none.moved.empty());
  CHECK(none.penalty() == 0);
}

TEST_CASE("check_serving refuses what moves weights, and says what to take instead") {
  const auto told = [](LayerStrategy strategy, const char* mesh) {
    return refusal([&] { check_serving({.strategy = strategy}, kSize, pod(mesh)); });
  };
  CHECK(told(LayerStrategy::kTp, "Y=256") == "(not refused)");
  CHECK(told(LayerStrategy::kStationary, "X=4,Y=64") == "(not refused)");
  CHECK(told(LayerStrategy::kDp, "X=32,Y=8") == "(not refused)");
  const std::string message = told(LayerStrategy::kFsdp, "X=16,Y=16");
  CAPTURE(message);
  CHECK(says(message,
             "strategy fsdp: decoding moves weights (all_gather(X, axis=0, tiled=true) of "
             "w_in, all_gather(X, axis=1, tiled=true) of w_out)"));
  CHECK(says(message, "144 times"));
  const ServingPlan s = serving_plan({.strategy = LayerStrategy::kFsdp}, kSize, pod("X=16,Y=16"));
  REQUIRE(!s.better.empty());
  const ServingChoice& best = s.better[0];
  const std::string advice =
      detail::cat("take ", name_of(best.plan.strategy), " on ", to_string(best.mesh));
  CHECK(says(message, advice.c_str()));
  CHECK(best.seconds * 10 < s.given.seconds);  // "order of magnitude regressions"
  for (const ServingChoice& c : s.better) {
    CHECK(c.seconds >= best.seconds);
    check_serving(c.plan, kSize, lay_out(find_chip("v5e"), c.mesh, pod("X=16,Y=16").slice));
    const MeshLinks links = lay_out(find_chip("v5e"), c.mesh, pod("X=16,Y=16").slice);
    CHECK(c.seconds == price_layer(c.plan, kSize, links, {.backward = false}).expected());
  }
}

TEST_CASE("sizes that no split over the chips allows get advice too") {
  const LayerSize odd{.b = 16, .d = 48, .f = 21};
  const ServingPlan s = serving_plan({.strategy = LayerStrategy::kFsdp}, odd, pod("X=16,Y=16"));
  CHECK(s.better.empty());
  CHECK(says(to_string(s), "these sizes do not divide over the chips"));
  CHECK(says(refusal([&] {
               check_serving({.strategy = LayerStrategy::kFsdp}, {.b = 0, .d = 16, .f = 16},
                             pod("X=16,Y=16"));
             }),
             "B = 0"));
}

}  // namespace
}  // namespace kref
