// SPDX-License-Identifier: Apache-2.0
// Other forms of the strategies: whatever the layout of activations, slices beside them, and
// however many parts the batch is cut into, integers give the numbers of the unsharded layer.
#include <doctest/doctest.h>

#include "sharding/layer.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

struct Inputs {
  Array x = mixed({16, 16}, 1), w_in = mixed({16, 24}, 2), w_out = mixed({24, 16}, 3),
        w_gate = mixed({16, 24}, 4), ct = mixed({16, 16}, 5);
  LayerOperands operands() const { return {x, w_in, w_out, w_gate}; }
};

LayerOptions options(const LayerPlan& plan, Index microbatches = 1) {
  LayerOptions out;
  out.plan = plan;
  out.plan.gate = true;
  out.activation = Activation::kRelu;
  out.microbatches = microbatches;
  return out;
}

// Forward and backward against one device (which layer_test holds against plain loops).
void check_layer_of(const char* mesh, const LayerPlan& plan, Index microbatches) {
  CAPTURE(mesh);
  CAPTURE(name_of(plan.strategy));
  CAPTURE(microbatches);
  const Inputs in;
  const LayerOptions how = options(plan, microbatches);
  CHECK(values(mlp(Mesh::parse(mesh), in.operands(), how)) ==
        values(mlp(Mesh(), in.operands(), options({}))));
  const LayerCotangents right = mlp_vjp(Mesh(), in.operands(), in.ct, options({}));
  const LayerCotangents found = mlp_vjp(Mesh::parse(mesh), in.operands(), in.ct, how);
  CHECK(values(found.x) == values(right.x));
  CHECK(values(found.w_in) == values(right.w_in));
  CHECK(values(found.w_out) == values(right.w_out));
  CHECK(values(found.w_gate) == values(right.w_gate));
}

TEST_CASE("activations whole, by columns and by rows, with slices, in parts") {
  for (const LayerStrategy strategy : kLayerStrategies) {
    for (const ModelForm form : {ModelForm::kColumns, ModelForm::kReplicated, ModelForm::kRows}) {
      for (const char* slice : {"", "S"}) {
        for (const Index microbatches : {1, 2}) {
          for (const bool keep : {false, true}) {
            LayerPlan plan;
            plan.strategy = strategy;
            plan.form = form;
            plan.slice_axis = slice;
            plan.keep_input = keep;
            check_layer_of("S=2,X=2,Y=2", plan, microbatches);
          }
        }
      }
    }
  }
}

TEST_CASE("accumulated gradients are reduced once, weights gathered for each part") {
  const Inputs in;
  const Mesh mesh = Mesh::parse("X=4");
  for (const Index parts : {2, 4}) {
    for (const LayerStrategy strategy : {LayerStrategy::kDp, LayerStrategy::kFsdp}) {
      LayerPlan plan;
      plan.strategy = strategy;
      std::vector<LayerMeter> meters;
      mlp_vjp(mesh, in.operands(), in.ct, options(plan, parts), &meters);
      for (const LayerMeter& m : meters) {
        Index reductions = 0, gathers = 0;
        for (const std::string& line : m.collectives) {
          (line.find("all_gather") != std::string::npos ? gathers : reductions) += 1;
        }
        CHECK(reductions == 3);
        CHECK(gathers == (strategy == LayerStrategy::kFsdp ? 3 * parts : 0));
      }
    }
  }
}

TEST_CASE("what does not fit is refused by name") {
  const Inputs in;
  const auto refused = [&](const LayerPlan& plan, Index microbatches) {
    return refusal([&] {
      mlp_vjp(Mesh::parse("S=2,X=2,Y=2"), in.operands(), in.ct, options(plan, microbatches));
    });
  };
  LayerPlan plan;
  plan.strategy = LayerStrategy::kDp;
  CHECK(refused(plan, 3).find("3 microbatches of the 8 rows that a device has") !=
        std::string::npos);
  CHECK(refused(plan, 0).find("0 microbatches") != std::string::npos);
  plan.slice_axis = "X";
  CHECK(refused(plan, 1).find("slice_axis is 'X', expected another axis") != std::string::npos);
  plan.slice_axis = "Z";
  CHECK(refused(plan, 1).find("needs the axis 'Z' (slice_axis)") != std::string::npos);
}

}  // namespace
}  // namespace kref
