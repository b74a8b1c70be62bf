// SPDX-License-Identifier: Apache-2.0
// The steps of each strategy are those of sharding_semantics 3.4, collective by collective; the
// devices run just these, send the bytes of 3.5, and hold no gathered weight longer than they must.
#include "sharding/layer_steps.h"

#include <doctest/doctest.h>

#include "sharding/layer.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using Names = std::vector<std::string>;

LayerPlan plan(LayerStrategy strategy, bool gate = false, bool keep_input = false) {
  return {.strategy = strategy, .gate = gate, .keep_input = keep_input};
}

// The collectives of a list, as 3.4 writes them: "AG_Y x (cp)".
Names collectives(const std::vector<LayerStep>& steps) {
  Names out;
  for (const LayerStep& step : steps) {
    if (step.kind != LayerStep::Kind::kCollective) continue;
    const auto& op = step.collective;
    const char* kind = std::holds_alternative<AllGather>(op)     ? "AG"
                       : std::holds_alternative<PsumScatter>(op) ? "RS"
                                                                 : "AR";
    out.push_back(detail::cat(kind, '_', to_string(axis_name(op)), ' ', step.in[0],
                              step.critical ? " (cp)" : " (bg)"));
  }
  return out;
}

TEST_CASE("the collectives of 3.4, in order, critical or in the background") {
  using S = LayerStrategy;
  CHECK(collectives(forward_steps(plan(S::kNone))).empty());
  CHECK(collectives(backward_steps(plan(S::kNone))).empty());
  CHECK(collectives(forward_steps(plan(S::kDp))).empty());
  CHECK(collectives(backward_steps(plan(S::kDp))) ==
        Names{"AR_X ct.w_out_sum (bg)", "AR_X ct.w_in_sum (bg)"});
  CHECK(collectives(forward_steps(plan(S::kFsdp))) == Names{"AG_X w_in (bg)", "AG_X w_out (bg)"});
  CHECK(collectives(backward_steps(plan(S::kFsdp))) ==
        Names{"RS_X ct.w_out_sum (bg)", "AG_X w_out (bg)", "RS_X ct.w_in_sum (bg)",
              "AG_X w_in (bg)"});
  CHECK(collectives(forward_steps(plan(S::kTp))) == Names{"AG_Y x (cp)", "RS_Y y_sum (cp)"});
  CHECK(collectives(backward_steps(plan(S::kTp))) ==
        Names{"AG_Y ct.y (cp)", "AG_Y x (bg)", "RS_Y ct.x_sum (cp)"});
  CHECK(collectives(backward_steps(plan(S::kTp, false, true))) ==
        Names{"AG_Y ct.y (cp)", "RS_Y ct.x_sum (cp)"});
  const Names forward = collectives(forward_steps(plan(S::kFsdpTp)));
  CHECK(forward == Names{"AG_Y x (cp)", "AG_X w_in (bg)", "AG_X w_out (bg)", "RS_Y y_sum (cp)"});
  CHECK(forward.size() == 4);
  const Names backward = collectives(backward_steps(plan(S::kFsdpTp)));
  CHECK(backward == Names{"AG_Y ct.y (cp)", "RS_X ct.w_out_sum (bg)", "AG_X w_out (bg)",
                          "AG_Y x (bg)", "RS_X ct.w_in_sum (bg)", "AG_X w_in (bg)",
                          "RS_Y ct.x_sum (cp)"});
  CHECK(backward.size() == 7);
  // A gate is one more weight.
  CHECK(collectives(forward_steps(plan(S::kFsdpTp, true))).size() == 5);
  CHECK(collectives(backward_steps(plan(S::kFsdpTp, true))).size() == 9);
}

TEST_CASE("f and g, rows, slices, and a reduction after several parts") {
  using S = LayerStrategy;
  LayerPlan p = plan(S::kFsdpTp);
  p.form = ModelForm::kReplicated;
  CHECK(collectives(forward_steps(p)) ==
        Names{"AG_X w_in (bg)", "AG_X w_out (bg)", "AR_Y y_sum (cp)"});
  CHECK(collectives(backward_steps(p)) == Names{"RS_X ct.w_out_sum (bg)", "AG_X w_out (bg)",
                                                "RS_X ct.w_in_sum (bg)", "AG_X w_in (bg)",
                                                "AR_Y ct.x_sum (cp)"});
  p.form = ModelForm::kRows;
  CHECK(collectives(forward_steps(p)) == collectives(forward_steps(plan(S::kFsdpTp))));
  CHECK(collectives(backward_steps(p)) == collectives(backward_steps(plan(S::kFsdpTp))));
  CHECK(to_string(layer_specs(p).x) == "P(('X', 'Y'), None)");
  p = plan(S::kFsdp);
  p.slice_axis = "S";
  // Over the slow axis shards only, and nothing forward.
  CHECK(collectives(forward_steps(p)) == collectives(forward_steps(plan(S::kFsdp))));
  CHECK(collectives(backward_steps(p)) == Names{"RS_X ct.w_out_sum (bg)", "AR_S ct.w_out_f32 (bg)",
                                                "AG_X w_out (bg)", "RS_X ct.w_in_sum (bg)",
                                                "AR_S ct.w_in_f32 (bg)", "AG_X w_in (bg)"});
  CHECK(collectives(accumulation_steps(p)) == Names{"AG_X w_out (bg)", "AG_X w_in (bg)"});
  CHECK(collectives(reduction_steps(p)) == Names{"RS_X ct.w_out_sum (bg)", "AR_S ct.w_out_f32 (bg)",
                                                 "RS_X ct.w_in_sum (bg)", "AR_S ct.w_in_f32 (bg)"});
  CHECK(collectives(accumulation_steps(plan(S::kDp))).empty());
}

TEST_CASE("devices run the collectives of the list, each of them") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  const Array x = mixed({8, 16}, 1), w_in = mixed({16, 24}, 2), w_out = mixed({24, 16}, 3),
              w_gate = mixed({16, 24}, 4), ct = mixed({8, 16}, 5);
  for (const LayerStrategy strategy : kLayerStrategies) {
    for (const bool gate : {false, true}) {
      for (const bool keep : {false, true}) {
        LayerOptions options;
        options.plan = plan(strategy, gate, keep);
        LayerOperands operands{x, w_in, w_out};
        if (gate) operands.w_gate = w_gate;
        const auto listed = [](const std::vector<LayerStep>& steps) {
          Names out;
          for (const LayerStep& step : steps) {
            if (step.kind == LayerStep::Kind::kCollective) out.push_back(to_string(step));
          }
          return out;
        };
        std::vector<LayerMeter> meters;
        mlp(mesh, operands, options, &meters);
        CHECK(meters.size() == 8);
        for (const LayerMeter& m : meters) {
          CHECK(m.collectives == listed(forward_steps(options.plan)));
        }
        mlp_vjp(mesh, operands, ct, options, &meters);
        for (const LayerMeter& m : meters) {
          CHECK(m.collectives == listed(backward_steps(options.plan)));
        }
      }
    }
  }
}

TEST_CASE("printed, a list reads like 3.4") {
  CHECK(to_string(forward_steps(plan(LayerStrategy::kFsdpTp))) ==
        "x_all = all_gather(Y, axis=1, tiled=true) of x (cp)\n"
        "w_in_all = all_gather(X, axis=0, tiled=true) of w_in (bg)\n"
        "a = x_all w_in_all\n"
        "drop w_in_all\n"
        "drop x_all\n"
        "h = act(a)\n"
        "w_out_all = all_gather(X, axis=1, tiled=true) of w_out (bg)\n"
        "y_sum = h w_out_all\n"
        "drop w_out_all\n"
        "y_f32 = psum_scatter(Y, scatter_dimension=1, tiled=true) of y_sum (cp)\n"
        "drop y_sum\n"
        "y = round(y_f32)\n"
        "drop y_f32\n");
  CHECK(saved_names(plan(LayerStrategy::kFsdpTp, true)) == Names{"h", "a", "g"});
  CHECK(saved_names(plan(LayerStrategy::kTp, false, true)) == Names{"h", "a", "x_all"});
}

// Sums of the work of a list.
LayerStepWork total(const LayerPlan& p, bool forward, const Mesh& mesh, Index b, Index d, Index f) {
  const auto steps = forward ? forward_steps(p) : backward_steps(p);
  LayerStepWork out;
  for (const LayerStepWork& one : layer_work(p, steps, mesh, b, d, f, DType::kBF16, DType::kBF16)) {
    out.flops += one.flops, out.bytes += one.bytes;
  }
  return out;
}

TEST_CASE("flops of 3.5, and the bytes of every ring") {
  using S = LayerStrategy;
  const Index x = 4, y = 8, b = 64, d = 128, f = 512;
  const Mesh mesh = Mesh::parse("X=4,Y=8");
  const double product = 2.0 * b * d * f;
  for (const LayerStrategy s : kLayerStrategies) {
    const auto devices =
        static_cast<double>((uses_data_axis(s) ? x : 1) * (uses_model_axis(s) ? y : 1));
    CHECK(total(plan(s), true, mesh, b, d, f).flops == 2 * product / devices);
    CHECK(total(plan(s), false, mesh, b, d, f).flops == 4 * product / devices);
  }
  // A ring of n sends (n - 1) / n of what is gathered, 2 bytes an element, or scattered, 4 bytes,
  // since partial sums are F32; twice that where all get the sum.
  const double weight = d * f, act = b * d, rx = 3.0 / 4, ry = 7.0 / 8;
  CHECK(total(plan(S::kDp), true, mesh, b, d, f).bytes == 0);
  CHECK(total(plan(S::kDp), false, mesh, b, d, f).bytes == 2 * (2 * 4 * weight * rx));
  CHECK(total(plan(S::kFsdp), true, mesh, b, d, f).bytes == 2 * (2 * weight * rx));
  CHECK(total(plan(S::kFsdp), false, mesh, b, d, f).bytes == 2 * ((4 + 2) * weight * rx));
  CHECK(total(plan(S::kTp), true, mesh, b, d, f).bytes == (2 + 4) * act * ry);
  CHECK(total(plan(S::kTp), false, mesh, b, d, f).bytes == (2 + 2 + 4) * act * ry);
  CHECK(total(plan(S::kTp, false, true), false, mesh, b, d, f).bytes == (2 + 4) * act * ry);
  CHECK(total(plan(S::kFsdpTp), true, mesh, b, d, f).bytes ==
        2 * (2 * weight / y * rx) + (2 + 4) * act / x * ry);
  CHECK(total(plan(S::kFsdpTp), false, mesh, b, d, f).bytes ==
        2 * ((4 + 2) * weight / y * rx) + (2 + 2 + 4) * act / x * ry);
}

TEST_CASE("a gathered weight is dropped after its use") {
  const Mesh mesh = Mesh::parse("X=8");
  const Index b = 8, d = 64, f = 128;
  const Array x = mixed({b, d}, 1), w_in = mixed({d, f}, 2), w_out = mixed({f, d}, 3),
              ct = mixed({b, d}, 4);
  const auto peak = [&](LayerStrategy strategy, bool backward) {
    LayerOptions options;
    options.plan = plan(strategy);
    std::vector<LayerMeter> meters;
    if (backward) mlp_vjp(mesh, {x, w_in, w_out}, ct, options, &meters);
    if (!backward) mlp(mesh, {x, w_in, w_out}, options, &meters);
    std::size_t most = 0;
    for (const LayerMeter& m : meters) most = std::max(most, m.peak_bytes);
    return static_cast<double>(most) / 4;  // elements
  };
  const double weight = d * f, shard = weight / 8, row = d, hidden = f;
  // Forward: both shards, one gathered weight, x, a, h and the sum of y.
  CHECK(peak(LayerStrategy::kFsdp, false) == 2 * shard + weight + 2 * row + 2 * hidden);
  CHECK(peak(LayerStrategy::kDp, false) >= 2 * weight);
  // Backward: never more than one whole weight and one whole gradient beside the shards.
  CHECK(peak(LayerStrategy::kFsdp, true) <= 4 * shard + 2 * weight + 8 * (row + hidden));
  CHECK(peak(LayerStrategy::kDp, true) >= 4 * weight);
}

}  // namespace
}  // namespace kref
