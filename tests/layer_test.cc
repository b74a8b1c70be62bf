// SPDX-License-Identifier: Apache-2.0
// Behaviour 72: every strategy, forward and backward, is the unsharded layer of sharding_semantics
// 3.3, exactly on integers and bit for bit where no sum crosses devices.
#include "sharding/layer.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

constexpr Index kB = 8, kD = 16, kF = 24;

struct Operands {
  Array x, w_in, w_out, w_gate, ct;
};

Operands operands(DType type = DType::kF32) {
  return {mixed({kB, kD}, 1, type), mixed({kD, kF}, 2, type), mixed({kF, kD}, 3, type),
          mixed({kD, kF}, 4, type), mixed({kB, kD}, 5, type)};
}

LayerOperands given(const Operands& o, bool gate) {
  LayerOperands out{o.x, o.w_in, o.w_out};
  if (gate) out.w_gate = o.w_gate;
  return out;
}

// A matrix of the definition: plain loops over doubles.
struct Matrix {
  Index rows, columns;
  std::vector<double> v;

  Matrix(Index r, Index c) : rows(r), columns(c), v(static_cast<std::size_t>(r * c)) {}
  explicit Matrix(const Array& a) : Matrix(a.extent(0), a.extent(1)) { v = values(a); }
  double& operator()(Index i, Index j) { return v[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(Index i, Index j) const { return v[static_cast<std::size_t>(i * columns + j)]; }
  Matrix t() const {
    Matrix out(columns, rows);
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) out(j, i) = (*this)(i, j);
    }
    return out;
  }
};

Matrix operator*(const Matrix& x, const Matrix& y) {
  Matrix out(x.rows, y.columns);
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < y.columns; ++j) {
      for (Index k = 0; k < x.columns; ++k) out(i, j) += x(i, k) * y(k, j);
    }
  }
  return out;
}
Matrix operator+(Matrix x, const Matrix& y) {
  for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] += y.v[i];
  return x;
}
// Element by element.
Matrix times(Matrix x, const Matrix& y) {
  for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] *= y.v[i];
  return x;
}

// 3.3 with a gate and relu, whose derivative at 0 is 0.
struct Definition {
  Matrix y, ct_x, ct_w_in, ct_w_out, ct_w_gate;

  static Definition of(const Operands& o, bool gate, bool relu) {
    const Matrix x(o.x), w_in(o.w_in), w_out(o.w_out), w_gate(o.w_gate), ct(o.ct);
    const Matrix a = x * w_in;
    Matrix act = a, slope = a, g = x * w_gate;
    for (double& v : act.v) v = relu && v < 0 ? 0 : v;
    for (double& v : slope.v) v = relu && v <= 0 ? 0 : 1;
    if (!gate) std::fill(g.v.begin(), g.v.end(), 1.0);
    const Matrix h = times(act, g), ct_h = ct * w_out.t();
    const Matrix ct_a = times(times(ct_h, g), slope), ct_g = times(ct_h, act);
    Matrix ct_x = ct_a * w_in.t();
    if (gate) ct_x = ct_x + ct_g * w_gate.t();
    return {h * w_out, ct_x, x.t() * ct_a, h.t() * ct, x.t() * ct_g};
  }
};

LayerOptions options(LayerStrategy strategy, bool gate, Activation activation = Activation::kRelu) {
  LayerOptions out;
  out.plan.strategy = strategy;
  out.plan.gate = gate;
  out.activation = activation;
  return out;
}

TEST_CASE("every strategy is the unsharded layer, exactly on integers") {
  const Operands o = operands();
  for (const LayerStrategy strategy : kLayerStrategies) {
    for (const char* mesh : {"X=2,Y=4", "Y=2,X=4", "X=1,Y=8"}) {
      for (const bool gate : {false, true}) {
        for (const bool relu : {false, true}) {
          CAPTURE(name_of(strategy));
          CAPTURE(mesh);
          CAPTURE(gate);
          CAPTURE(relu);
          const Definition right = Definition::of(o, gate, relu);
          const LayerOptions how =
              options(strategy, gate, relu ? Activation::kRelu : Activation::kNone);
          CHECK(values(mlp(Mesh::parse(mesh), given(o, gate), how)) == right.y.v);
          const LayerCotangents cts = mlp_vjp(Mesh::parse(mesh), given(o, gate), o.ct, how);
          CHECK(values(cts.x) == right.ct_x.v);
          CHECK(values(cts.w_in) == right.ct_w_in.v);
          CHECK(values(cts.w_out) == right.ct_w_out.v);
          if (gate) CHECK(values(cts.w_gate) == right.ct_w_gate.v);
        }
      }
    }
  }
}

// Numbers whose sums round.
Array rough(Array out) {
  unsigned state = static_cast<unsigned>(out.size());
  for (float& v : out.mutable_elements<float>()) {
    state = state * 1664525u + 1013904223u;
    v = v * 0.125f + static_cast<float>(state >> 8) * 0x1p-26f;
  }
  return out;
}

bool same_bits(const Array& a, const Array& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST_CASE("the bits of the unsharded layer, where no sum crosses devices") {
  Operands o = operands();
  for (Array* a : {&o.x, &o.w_in, &o.w_out, &o.w_gate, &o.ct}) *a = rough(std::move(*a));
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  for (const Activation activation : kActivations) {
    CAPTURE(name_of(activation));
    const LayerOptions alone = options(LayerStrategy::kNone, true, activation);
    const Array y = mlp(Mesh(), given(o, true), alone);
    const LayerCotangents cts = mlp_vjp(Mesh(), given(o, true), o.ct, alone);
    for (const LayerStrategy strategy : {LayerStrategy::kDp, LayerStrategy::kFsdp}) {
      const LayerOptions how = options(strategy, true, activation);
      CHECK(same_bits(mlp(mesh, given(o, true), how), y));
      CHECK(same_bits(mlp_vjp(mesh, given(o, true), o.ct, how).x, cts.x));
    }
    const LayerOptions tp = options(LayerStrategy::kTp, true, activation);
    const LayerCotangents of_tp = mlp_vjp(mesh, given(o, true), o.ct, tp);
    CHECK(same_bits(of_tp.w_in, cts.w_in));
    CHECK(same_bits(of_tp.w_out, cts.w_out));
    CHECK(same_bits(of_tp.w_gate, cts.w_gate));
    CHECK_FALSE(same_bits(mlp(mesh, given(o, true), tp), y));  // else this says nothing
  }
}

TEST_CASE("schedules change no bit, and weights may live on the mesh") {
  Operands o = operands();
  o.x = rough(std::move(o.x));
  o.w_in = rough(std::move(o.w_in));
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  LayerOptions how = options(LayerStrategy::kFsdpTp, false, Activation::kSilu);
  const Array y = mlp(mesh, given(o, false), how);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    how.launch.delay_seed = seed;
    CHECK(same_bits(mlp(mesh, given(o, false), how), y));
  }
  const LayerSpecs specs = layer_specs(how.plan);
  const Sharded x = shard(mesh, o.x, specs.x), w_in = shard(mesh, o.w_in, specs.w_in),
                w_out = shard(mesh, o.w_out, specs.w_out);
  const Sharded stays = mlp_sharded(mesh, {x, w_in, w_out}, how);
  CHECK(stays.placement() == Placement(specs.x));
  CHECK(same_bits(unshard(stays), y));
}

TEST_CASE("bf16: the hidden value is rounded once, sums are not") {
  const Mesh mesh = Mesh::parse("X=2,Y=4");
  // Every product is exact; h = 257 is none of bf16's numbers, 256 is the even neighbour.
  Array x = full({8, 8}, 0), w_in = full({8, 8}, 0), w_out = full({8, 8}, 0);
  for (std::size_t i = 0; i < 8; ++i) {
    x.mutable_elements<float>()[i * 8] = 1;
    x.mutable_elements<float>()[i * 8 + 1] = 256;
    w_in.mutable_elements<float>()[i] = w_in.mutable_elements<float>()[8 + i] = 1;
    w_out.mutable_elements<float>()[i * 8] = i == 0 ? 1 : 0.00390625f;
  }
  for (const LayerStrategy strategy : kLayerStrategies) {
    for (const DType hidden : {DType::kF32, DType::kBF16}) {
      LayerOptions how = options(strategy, false, Activation::kNone);
      how.hidden_dtype = hidden;
      const float h = hidden == DType::kBF16 ? 256.0f : 257.0f;
      CHECK(mlp(mesh, {x, w_in, w_out}, how).at(0) == h * (1 + 7 * 0.00390625f));
    }
  }
}

std::string refused(const char* mesh, const LayerPlan& plan, const LayerOperands& operands) {
  return refusal([&] { mlp(Mesh::parse(mesh), operands, {.plan = plan}); });
}

void has(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("what does not fit is refused by name") {
  const Operands o = operands();
  const LayerOperands all = given(o, false);
  has(refused("X=4", {.strategy = LayerStrategy::kTp}, all),
      "strategy tp needs the axis 'Y' (model_axis), the mesh has X=4");
  has(refused("X=4", {.strategy = LayerStrategy::kDp, .data_axis = "data"}, all),
      "strategy dp needs the axis 'data' (data_axis), the mesh has X=4");
  has(refused("X=4", {.strategy = LayerStrategy::kFsdpTp, .model_axis = "X"}, all),
      "data_axis and model_axis are both 'X', expected two axes");
  has(refused("X=3", {.strategy = LayerStrategy::kDp}, all),
      "dimension 0 of size 8 is not divisible by the 3");
  has(refused("X=1,Y=16", {.strategy = LayerStrategy::kTp}, all), "size 24 is not divisible");
  has(refused("X=4", {.gate = true}, all), "the plan has a gate, but w_gate is missing");
  has(refused("X=4", {}, given(o, true)), "the plan has no gate, but w_gate is given");
  has(refused("X=4", {}, {o.x, o.w_out, o.w_in}), "mlp: w_in is F32[24,16], expected [D, F]");
  has(refused("X=4", {}, {o.x, o.w_in, o.w_in}), "mlp: w_out is F32[16,24], expected [F, D] =");
  has(refused("X=4", {}, {o.x, mixed({kD, kF}, 2, DType::kBF16), o.w_out}),
      "w_in is BF16[16,24], expected the element type of x, F32");
  has(refused("X=4", {}, {mixed({8}, 1), o.w_in, o.w_out}), "mlp: x is F32[8], expected [B, D]");
  const Array bytes = mixed({8, 8}, 1, DType::kI8);
  has(refused("X=4", {}, {bytes, bytes, bytes}), "x is I8[8,8], expected F32, BF16 or F16");
}

}  // namespace
}  // namespace kref
