// SPDX-License-Identifier: Apache-2.0
// The layer whose weights are split over both axes and stay (sharding_semantics 6.5): the numbers
// of the unsharded layer, the collectives of the book, and its time and best shape by the model.
#include <doctest/doctest.h>

#include <cmath>

#include "sharding/cost_model.h"
#include "sharding/layer.h"
#include "sharding/planning.h"
#include "sharding/serving.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

using doctest::Approx;

struct Operands {
  Array x, w_in, w_out, w_gate, ct;

  Operands(Index b, Index d, Index f, DType type)
      : x(mixed({b, d}, 1, type)),
        w_in(mixed({d, f}, 2, type)),
        w_out(mixed({f, d}, 3, type)),
        w_gate(mixed({d, f}, 4, type)),
        ct(mixed({b, d}, 5, type)) {}
  LayerOperands given(bool gate) const {
    LayerOperands out{x, w_in, w_out};
    if (gate) out.w_gate = w_gate;
    return out;
  }
};

LayerOptions stationary(bool gate = false) {
  LayerOptions out;
  out.plan = {.strategy = LayerStrategy::kStationary, .gate = gate};
  return out;
}

TEST_CASE("weights that stay: the unsharded layer, exactly on integers, forward and backward") {
  const struct {
    const char* mesh;
    Index b, d, f;
  } cases[] = {{"X=2,Y=4", 8, 16, 24}, {"Y=2,X=4", 3, 8, 6},  {"X=1,Y=3", 5, 9, 12},
               {"X=3,Y=1", 1, 6, 5},   {"X=3,Y=2", 7, 18, 4}, {"Z=2,X=2,Y=2", 2, 4, 4}};
  for (const auto& c : cases) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Operands o(c.b, c.d, c.f, type);
      for (const bool gate : {false, true}) {
        for (const bool keep : {false, true}) {
          for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
            CAPTURE(c.mesh);
            CAPTURE(gate);
            LayerOptions how = stationary(gate), alone;
            how.plan.keep_input = keep;
            alone.plan.gate = gate;
            alone.activation = how.activation = activation;
            const Mesh mesh = Mesh::parse(c.mesh);
            CHECK(values(mlp(mesh, o.given(gate), how)) ==
                  values(mlp(Mesh(), o.given(gate), alone)));
            const LayerCotangents cts = mlp_vjp(mesh, o.given(gate), o.ct, how);
            const LayerCotangents right = mlp_vjp(Mesh(), o.given(gate), o.ct, alone);
            CHECK(values(cts.x) == values(right.x));
            CHECK(values(cts.w_in) == values(right.w_in));
            CHECK(values(cts.w_out) == values(right.w_out));
            if (gate) CHECK(values(cts.w_gate) == values(right.w_gate));
          }
        }
      }
    }
  }
}

TEST_CASE("weights that stay: over slices, in parts, and with collectives that start early") {
  const Operands o(8, 16, 24, DType::kF32);
  const LayerCotangents right = mlp_vjp(Mesh(), o.given(true), o.ct, {.plan = {.gate = true}});
  LayerOptions how = stationary(true);
  how.plan.slice_axis = "S";
  for (const Index parts : {1, 2, 4}) {
    for (const bool overlap : {false, true}) {
      how.microbatches = parts, how.overlap = overlap;
      const LayerCotangents cts = mlp_vjp(Mesh::parse("S=2,X=2,Y=2"), o.given(true), o.ct, how);
      CHECK(values(cts.x) == values(right.x));
      CHECK(values(cts.w_in) == values(right.w_in));
      CHECK(values(cts.w_gate) == values(right.w_gate));
      CHECK(values(cts.w_out) == values(right.w_out));
    }
  }
}

TEST_CASE("weights that stay: one list, which devices run and which is printed") {
  const LayerOptions how = stationary();
  const std::string printed =
      "x_all = all_gather(Y, axis=1, tiled=true) of x (cp)\n"
      "a_sum = x_all w_in\n"
      "a = psum(X) of a_sum (cp)\n"
      "drop a_sum\n"
      "drop x_all\n"
      "h = act(a)\n"
      "y_sum = h w_out\n"
      "y_f32 = psum_scatter(Y, scatter_dimension=1, tiled=true) of y_sum (cp)\n"
      "drop y_sum\n"
      "y = round(y_f32)\n"
      "drop y_f32\n";
  CHECK(to_string(forward_steps(how.plan)) == printed);
  CHECK(to_string(layer_specs(how.plan).x) == "P(None, ('X', 'Y'))");
  const Operands o(4, 16, 24, DType::kF32);
  const auto listed = [](const std::vector<LayerStep>& steps) {
    std::vector<std::string> out;
    for (const LayerStep& step : steps) {
      if (step.kind == LayerStep::Kind::kCollective) out.push_back(to_string(step));
    }
    return out;
  };
  std::vector<LayerMeter> meters;
  mlp(Mesh::parse("X=2,Y=4"), o.given(false), how, &meters);
  for (const LayerMeter& m : meters) CHECK(m.collectives == listed(forward_steps(how.plan)));
  mlp_vjp(Mesh::parse("X=2,Y=4"), o.given(false), o.ct, how, &meters);
  CHECK(listed(backward_steps(how.plan)).size() == 4);
  for (const LayerMeter& m : meters) CHECK(m.collectives == listed(backward_steps(how.plan)));
}

TEST_CASE("weights that stay: columns of x in the other order give another layer") {
  // What the book's step 1 gives where x is D_YX: rows of w_in that do not belong to these columns.
  const Operands o(4, 16, 24, DType::kF32);
  const LayerOptions how = stationary();
  const LayerSpecs specs = layer_specs(how.plan);
  const auto with = [&](const PartitionSpec& x) {
    const auto body = [&](Device& device, const Array& blocks_x, const Array& w_in,
                          const Array& w_out) {
      LayerArrays arrays = {{"x", blocks_x}, {"w_in", w_in}, {"w_out", w_out}};
      layer_forward(device, how, arrays);
      return arrays.at("y");
    };
    return shard_map(Mesh::parse("X=2,Y=4"),
                     {.in_specs = {x, specs.w_in, specs.w_out}, .out_specs = x}, body);
  };
  const std::vector<double> right = values(mlp(Mesh(), o.given(false), {}));
  CHECK(values(with(specs.x)(o.x, o.w_in, o.w_out)) == right);
  CHECK(values(with(P{none, axes("Y", "X")})(o.x, o.w_in, o.w_out)) != right);
}

// One layer on v5p 8x8x8, laid out as X by Y: seconds of what moves.
double moved(const LayerPlan& plan, const LayerSize& size, Index x, Index y) {
  const Chip chip = find_chip("v5p");
  const Slice slice = parse_slice(chip, "8x8x8");
  const Mesh mesh =
      plan.strategy == LayerStrategy::kTp ? Mesh({{"Y", y}}) : Mesh({{"X", x}, {"Y", y}});
  return price_layer(plan, size, lay_out(chip, mesh, slice), {.backward = false}).moved_seconds();
}

TEST_CASE("weights that stay: the book's time, its best shape, and when it is the faster one") {
  // X over one axis of links, Y over two, where F = 4 D has its best shape: X = sqrt(N / 8) = 8.
  const LayerSize size{.b = 4096, .d = 8192, .f = 32768};
  const auto b = static_cast<double>(size.b), d = static_cast<double>(size.d),
             f = static_cast<double>(size.f);
  const Chip chip = find_chip("v5p");
  const double n = 512, seconds = moved(stationary().plan, size, 8, 64);
  CHECK(two_dimensional_axis(d, f, n) == 8);
  CHECK(seconds == Approx(two_dimensional_seconds(chip, b, d, f, n, 8)));
  CHECK(seconds == Approx(std::sqrt(128.0) * b * d / (std::sqrt(n) * chip.axis_rate())));
  for (const Index x : {2, 4, 16, 64}) {
    CAPTURE(x);
    CHECK(moved(stationary().plan, size, x, 512 / x) > seconds);
  }
  // 512 > 72 chips.
  const double flat = moved({.strategy = LayerStrategy::kTp}, size, 1, 512);
  CHECK(flat == Approx(one_dimensional_seconds(chip, b, d)));
  CHECK(flat / seconds == Approx(std::sqrt(512.0 / 72)));
}

TEST_CASE("weights that stay: bytes of the planning function, and memory") {
  const LayerPlan plan = stationary().plan;
  const Mesh mesh = Mesh::parse("X=4,Y=8");
  const LayerSize size{.b = 64, .d = 128, .f = 512};
  const LayerBytes bytes = layer_bytes(plan.strategy, 64, 128, 512, 4, 8);
  const Chip chip = find_chip("v5e");
  double forward = 0, backward = 0;
  for (const bool back : {false, true}) {
    const Cost cost = price_layer(plan, size, lay_out(chip, mesh, parse_slice(chip, "4x8")),
                                  {.forward = !back, .backward = back});
    for (const CostStep& step : cost.steps) {
      if (!step.moves) continue;
      const double n = step.axes[0] == "X" ? 4 : 8;
      (back ? backward : forward) += step.sent_bytes * n / (n - 1);
    }
  }
  CHECK(forward == Approx(bytes.forward));
  CHECK(backward == Approx(bytes.backward));
  const LayerMemory memory = layer_memory(plan, size, mesh);
  CHECK(memory.state == 2.0 * 128 * 512 / 32 * 10);
  CHECK(memory.gathered == 0);
  CHECK(memory.kept == (64.0 * 128 / 32 + 2.0 * 64 * 512 / 8) * 2);
}

TEST_CASE("weights that stay: plans that do not fit") {
  const auto told = [](const char* mesh, LayerPlan plan) {
    plan.strategy = LayerStrategy::kStationary;
    return refusal([&] { check_layer(plan, Mesh::parse(mesh), 4, 16, 24); });
  };
  CHECK(says(told("X=2", {}), "strategy stationary needs the axis 'Y' (model_axis)"));
  CHECK(says(told("Y=2", {}), "strategy stationary needs the axis 'X' (data_axis)"));
  CHECK(says(told("X=2", {.model_axis = "X"}), "data_axis and model_axis are both 'X'"));
  CHECK(says(told("X=2,Y=2", {.form = ModelForm::kRows}), "expected the form kColumns"));
  CHECK(says(told("X=2,Y=2", {.slice_axis = "X"}), "slice_axis is 'X'"));
  CHECK(says(told("X=4,Y=8", {}), "x: dimension 1 of size 16 is not divisible by the 32"));
  CHECK(told("X=2,Y=8", {}) == "(not refused)");
}

}  // namespace
}  // namespace kref
