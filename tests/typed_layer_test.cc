// SPDX-License-Identifier: Apache-2.0
// The layer in typed bodies: the bits of mlp and mlp_vjp under every plan, the steps of its lists,
// and derivatives through what stands around it.
#include "sharding/typed_layer.h"

#include <doctest/doctest.h>

#include <cstring>

#include "sharding/local_math.h"
#include "sharding/vjp.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

struct Operands {
  Array x, w_in, w_out, w_gate, ct;

  // Small fractions: sums round in bf16.
  explicit Operands(DType type)
      : x(part({8, 16}, 1, type)),
        w_in(part({16, 24}, 2, type)),
        w_out(part({24, 16}, 3, type)),
        w_gate(part({16, 24}, 4, type)),
        ct(part({8, 16}, 5, type)) {}
  static Array part(const std::vector<Index>& shape, unsigned seed, DType type) {
    return converted(scaled(mixed(shape, seed), 0.3), type);
  }
  LayerOperands given(bool gate) const {
    LayerOperands out{x, w_in, w_out};
    if (gate) out.w_gate = w_gate;
    return out;
  }
};

// The layer alone, of any number of Values.
auto typed(const Mesh& mesh, const LayerOptions& options, bool check_vma = true) {
  const LayerSpecs specs = layer_specs(options.plan);
  std::vector<Placement> in = {specs.x, specs.w_in, specs.w_out};
  if (options.plan.gate) in.emplace_back(specs.w_in);
  const auto body = [options](Tracer&, std::span<const Value> all) {
    LayerValues blocks{all[0], all[1], all[2]};
    if (all.size() > 3) blocks.w_gate = all[3];
    return mlp(blocks, options);
  };
  return shard_map(mesh, {.in_specs = Specs(in), .out_specs = {specs.x}, .check_vma = check_vma},
                   body);
}

void check_plan(const char* name, const LayerOptions& options, DType type) {
  CAPTURE(name_of(options.plan.strategy));
  CAPTURE(name);
  const Mesh mesh = Mesh::parse(name);
  const Operands o(type);
  const auto layer = typed(mesh, options);
  const bool gate = options.plan.gate;
  const auto [y, back] =
      gate ? vjp(layer, o.x, o.w_in, o.w_out, o.w_gate) : vjp(layer, o.x, o.w_in, o.w_out);
  CHECK(same_bits(y, mlp(mesh, o.given(gate), options)));
  const std::vector<Array> cts = back(o.ct);
  const LayerCotangents right = mlp_vjp(mesh, o.given(gate), o.ct, options);
  CHECK(same_bits(cts[0], right.x));
  CHECK(same_bits(cts[1], right.w_in));
  CHECK(same_bits(cts[2], right.w_out));
  if (gate) CHECK(same_bits(cts[3], right.w_gate));
}

constexpr LayerStrategy kAll[] = {LayerStrategy::kNone,   LayerStrategy::kDp,
                                  LayerStrategy::kFsdp,   LayerStrategy::kTp,
                                  LayerStrategy::kFsdpTp, LayerStrategy::kStationary};

TEST_CASE("a typed layer has the bits of mlp and mlp_vjp, under every strategy") {
  for (const LayerStrategy strategy : kAll) {
    for (const bool gate : {false, true}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        LayerOptions options;
        options.plan = {.strategy = strategy, .gate = gate, .keep_input = type == DType::kF32};
        options.activation = gate ? Activation::kSilu : Activation::kGelu;
        if (!gate) options.hidden_dtype = DType::kF32;
        check_plan("X=2,Y=4", options, type);
        check_plan("Y=2,Z=2,X=2", options, type);
      }
    }
  }
}

TEST_CASE("a typed layer in the other forms, and over slices") {
  for (const LayerStrategy strategy : kAll) {
    for (const ModelForm form : {ModelForm::kReplicated, ModelForm::kRows}) {
      LayerOptions options;
      options.plan = {.strategy = strategy, .gate = true, .form = form, .slice_axis = "S"};
      if (splits_features(strategy)) options.plan.form = ModelForm::kColumns;
      check_plan("S=2,X=2,Y=2", options, DType::kF32);
    }
  }
}

TEST_CASE("what the devices of a typed layer run is the plan's list") {
  const Operands o(DType::kF32);
  for (const LayerStrategy strategy : kAll) {
    const LayerPlan plan{.strategy = strategy};
    CAPTURE(name_of(strategy));
    const auto layer = typed(Mesh::parse("X=2,Y=4"), {.plan = plan});
    const auto [y, back] = vjp(layer, o.x, o.w_in, o.w_out);
    const auto listed = [](const std::vector<LayerStep>& steps, LayerStep::Kind kind) {
      Index n = 0;
      for (const LayerStep& step : steps) n += step.kind == kind ? 1 : 0;
      return n;
    };
    using Kind = LayerStep::Kind;
    const auto forward = forward_steps(plan), backward = backward_steps(plan);
    Index moves = 0, moves_back = 0;
    for (const char* name : {"all_gather", "psum", "psum_scatter"}) {
      moves += layer.count(name, o.x, o.w_in, o.w_out);
      moves_back += back.count(name);
    }
    CHECK(moves == listed(forward, Kind::kCollective));
    CHECK(moves_back == listed(backward, Kind::kCollective));
    CHECK(layer.count("matmul", o.x, o.w_in, o.w_out) == 2);
    CHECK(back.count("matmul") == 4);
  }
}

TEST_CASE("derivatives go through a typed layer and what stands around it") {
  // z = mlp(3 mlp(x) + x), whose weights are the same: exact on integers.
  const auto two = [](const LayerOptions& options) {
    return [options](Tracer&, const Value& x, const Value& w_in, const Value& w_out) {
      const LayerValues first{x, w_in, w_out};
      const Value middle = mlp(first, options) * 3.0 + x;
      return mlp(LayerValues{middle, w_in, w_out}, options);
    };
  };
  const Array x = mixed({4, 4}, 1), w_in = mixed({4, 8}, 2), w_out = mixed({8, 4}, 3),
              ct = mixed({4, 4}, 4);
  LayerOptions alone;
  alone.activation = Activation::kRelu;
  const auto plain =
      shard_map(Mesh(), {.in_specs = {P(), P(), P()}, .out_specs = {P()}}, two(alone));
  const auto [y, back] = vjp(plain, x, w_in, w_out);
  const std::vector<Array> right = back(ct);
  // By mlp_vjp, layer by layer.
  const LayerOperands first{x, w_in, w_out};
  const Array middle = binary(BinaryOp::kAdd, scaled(mlp(Mesh(), first, alone), 3), x);
  CHECK(same_bits(y, mlp(Mesh(), {middle, w_in, w_out}, alone)));
  const LayerCotangents outer = mlp_vjp(Mesh(), {middle, w_in, w_out}, ct, alone);
  const Array inner_ct = scaled(outer.x, 3);
  const LayerCotangents inner = mlp_vjp(Mesh(), first, inner_ct, alone);
  for (Index i = 0; i < 16; ++i) CHECK(right[0].at(i) == outer.x.at(i) + inner.x.at(i));
  for (Index i = 0; i < 32; ++i) {
    CHECK(right[1].at(i) == outer.w_in.at(i) + inner.w_in.at(i));
    CHECK(right[2].at(i) == outer.w_out.at(i) + inner.w_out.at(i));
  }
  for (const LayerStrategy strategy : kAll) {
    CAPTURE(name_of(strategy));
    LayerOptions options = alone;
    options.plan.strategy = strategy;
    const LayerSpecs specs = layer_specs(options.plan);
    const auto sharded = shard_map(
        Mesh::parse("X=2,Y=2"),
        {.in_specs = {specs.x, specs.w_in, specs.w_out}, .out_specs = {specs.x}}, two(options));
    const auto [z, pull] = vjp(sharded, x, w_in, w_out);
    CHECK(values(z) == values(y));
    const std::vector<Array> cts = pull(ct);
    for (std::size_t i = 0; i < 3; ++i) CHECK(values(cts[i]) == values(right[i]));
  }
}

TEST_CASE("what a typed layer does not take is refused before a device starts") {
  const Operands o(DType::kF32);
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  LayerOptions options;
  options.plan.strategy = LayerStrategy::kFsdp;
  CHECK(says(refusal([&] { typed(mesh, options, false)(o.x, o.w_in, o.w_out); }),
             "mlp of Values needs check_vma"));
  options.microbatches = 2;
  CHECK(says(refusal([&] { typed(mesh, options)(o.x, o.w_in, o.w_out); }),
             "microbatches is 2, expected 1"));
  options.microbatches = 1;
  CHECK(says(refusal([&] { typed(mesh, options)(o.x, o.w_out, o.w_in); }),
             "a = x w_in_all: x is f32[4,16]{V:X}"));
  const auto wrong_spec =
      shard_map(mesh, {.in_specs = {P{"X"}, P(), P{none, "X"}}, .out_specs = {P{"X"}}},
                [options](Tracer&, const Value& x, const Value& w_in, const Value& w_out) {
                  return mlp(LayerValues{x, w_in, w_out}, options);
                });
  CHECK(says(refusal([&] { wrong_spec(o.x, o.w_in, o.w_out); }), "mlp: a = x w_in_all"));
  options.plan.gate = true;
  const auto no_gate =
      shard_map(mesh, {.in_specs = {P{"X"}, P{"X"}, P{none, "X"}}, .out_specs = {P{"X"}}},
                [options](Tracer&, const Value& x, const Value& w_in, const Value& w_out) {
                  return mlp(LayerValues{x, w_in, w_out}, options);
                });
  CHECK(says(refusal([&] { no_gate(o.x, o.w_in, o.w_out); }), "w_gate is missing"));
}

}  // namespace
}  // namespace kref
