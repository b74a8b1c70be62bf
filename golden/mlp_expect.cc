// SPDX-License-Identifier: Apache-2.0
// The layer in f64, with the errors of F32 machines beside every number.
#include <algorithm>
#include <cmath>
#include <functional>

#include "golden/inexact.h"
#include "golden/mlp_op.h"

namespace kref {
namespace {

constexpr double kUnit = 0x1p-24;  // of F32
// What exp, erf and tanh of F32, what is around them, and the differences in which they are spelled
// may be off by: this many roundings of an argument or of a value near 1.
constexpr double kFunctionSteps = 16;
// No second derivative of a smooth activation is larger: that of gelu is at most 0.8, of its
// derivative's derivative 1.
constexpr double kCurvature = 1.2;

// The value, the slope, and what a machine may get wrong by in either though it knows a exactly.
struct Slope {
  double value, slope;
  double value_error = 0, slope_error = 0;
};

double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }

Slope at(Activation activation, double a) {
  if (std::isnan(a)) return {a, a};
  Slope out{a, 1};
  switch (activation) {
    case Activation::kNone:
      return out;
    case Activation::kRelu:
      return a > 0 ? out : Slope{0, 0};
    case Activation::kGelu: {
      const double phi = 0.5 * std::erfc(-a / std::sqrt(2.0));
      const double density = std::exp(-0.5 * a * a) / std::sqrt(2 * std::acos(-1.0));
      out = {a * phi, phi + (density == 0 ? 0 : a * density)};
      break;
    }
    case Activation::kGeluTanh: {
      const double twice = 2 * std::sqrt(2 / std::acos(-1.0)), cubic = 0.044715;
      const double gate = sigmoid(twice * (a + cubic * a * a * a)), rest = gate * (1 - gate);
      out = {a * gate, gate + (rest == 0 ? 0 : a * rest * twice * (1 + 3 * cubic * a * a))};
      break;
    }
    case Activation::kSilu: {
      const double gate = sigmoid(a), rest = gate * (1 - gate);
      out = {a * gate, gate + (rest == 0 ? 0 : a * rest)};
      break;
    }
  }
  // 1 + erf, 1 + tanh may be spelled so, where they are near 0: an error of 1, not of the sum. Far
  // out a density is below that of 1 whatever its own error.
  out.value_error = kFunctionSteps * kUnit * std::fabs(a);
  out.slope_error = kFunctionSteps * kUnit * (1 + std::min(std::fabs(a), 8.0));
  return out;
}

// act(a) and act'(a) of an inexact a.
struct Activated {
  InexactNumber value, slope;
};

Activated activated(Activation activation, const InexactNumber& a) {
  const Slope exact = at(activation, a.value);
  const double likely = a.likely();
  Activated out;
  if (activation == Activation::kNone) {
    out.value = a;
    out.slope.value = 1;
    out.slope.overflow = a.overflow;
    return out;
  }
  if (activation == Activation::kRelu) {
    // Zero or not: where a may have either sign a machine takes either side.
    const double near = likely > 0 && std::fabs(a.value) <= likely ? 1 : 0;
    const double ever = a.worst > 0 && std::fabs(a.value) <= a.worst ? 1 : 0;
    out.value = mapped(a, exact.value, std::max(exact.slope, near), std::max(exact.slope, ever));
    out.slope = {exact.slope, near, 0, ever, a.overflow};
    return out;
  }
  const double slope = std::fabs(exact.slope);
  out.value = mapped(a, exact.value, slope + kCurvature * likely, slope + kCurvature * a.worst);
  out.value.bias += exact.value_error, out.value.worst += exact.value_error;
  out.slope = mapped(a, exact.slope, kCurvature, kCurvature);
  out.slope.bias += exact.slope_error, out.slope.worst += exact.slope_error;
  return out;
}

// Applies f to every index of matrices of one shape.
Inexact each(const Inexact& like, const std::function<InexactNumber(Index)>& f) {
  Inexact out(like.rows(), like.columns());
  for (Index i = 0; i < like.size(); ++i) out.set(i, f(i));
  return out;
}

// One block is what one device holds.
void set_devices(const MlpRun& run, const PartitionSpec& spec, const Inexact& x, Expectation& e) {
  const std::vector<Index> shape{x.rows(), x.columns()};
  e.blocks.axes.assign(2, "");
  e.blocks.extents = local_shape(spec, shape, run.mesh);
  for (Index& extent : e.blocks.extents) extent = std::max<Index>(1, extent);
  e.blocks.shards = e.blocks.extents;
  if (run.mesh.axes().empty()) return;
  e.owner.shard = e.blocks.extents;
  e.owner.device = [spec = OutSpec{spec, {}}, shape, mesh = run.mesh](Index element) {
    const Index at[] = {element / shape[1], element % shape[1]};
    return owner_name(spec, shape, mesh, at);
  };
}

}  // namespace

std::vector<Expectation> expect_mlp(const Run& given) {
  std::vector<Expectation> out = expect_layer(given, LayerOperandsAs::kGiven);
  for (Expectation& e : out) e.alternatives = other_layers(given, e.output);
  return out;
}

std::vector<Expectation> expect_layer(const Run& given, LayerOperandsAs operands) {
  const MlpRun run = read_mlp(given);
  const bool gate = run.layer.plan.gate;
  const Activation activation = run.layer.activation;
  const LayerSpecs specs = layer_specs(run.layer.plan);
  const Inexact x(given.in.at("x")), w_in(given.in.at("w_in")), w_out(given.in.at("w_out"));
  const Inexact w_gate = gate ? Inexact(given.in.at("w_gate")) : Inexact();
  const auto multiplied = [&](const Inexact& left, const Inexact& right, Index more) {
    if (operands == LayerOperandsAs::kGiven) return product(left, right, more);
    const auto narrow = [](const Inexact& m) {
      return each(m, [&](Index i) { return rounded(m.at(i), DType::kBF16); });
    };
    return product(narrow(left), narrow(right), more);
  };
  std::vector<Expectation> out;
  const auto expect = [&](const char* name, const char* of, const Inexact& value) {
    if (!given.out.contains(name)) return;
    Expectation e = expectation_of(name, value, run.dtype);
    set_devices(run, spec_of(specs, of), value, e);
    out.push_back(std::move(e));
  };

  const Inexact a = multiplied(x, w_in, 0);
  const Inexact g = gate ? multiplied(x, w_gate, 0) : Inexact();
  const Inexact act = each(a, [&](Index i) { return activated(activation, a.at(i)).value; });
  const Inexact h = each(a, [&](Index i) {
    return rounded(gate ? times(act.at(i), g.at(i)) : act.at(i), run.hidden);
  });
  if (!run.vjp) {
    expect("y", "y", multiplied(h, w_out, 0));
    return out;
  }

  const Inexact ct(given.in.at("ct.y"));
  const Inexact ct_h_sum = multiplied(ct, w_out.transposed(), 0);
  const Inexact ct_h = each(a, [&](Index i) { return rounded(ct_h_sum.at(i), run.hidden); });
  const Inexact ct_a = each(a, [&](Index i) {
    const InexactNumber slope = activated(activation, a.at(i)).slope;
    const InexactNumber through = gate ? times(ct_h.at(i), g.at(i)) : ct_h.at(i);
    return activation == Activation::kNone ? through : times(through, slope);
  });
  const Inexact xt = x.transposed();
  Inexact ct_x = multiplied(ct_a, w_in.transposed(), gate ? run.f : 0);
  if (gate) {
    const Inexact ct_g = each(a, [&](Index i) { return times(ct_h.at(i), act.at(i)); });
    ct_x = sum(ct_x, multiplied(ct_g, w_gate.transposed(), run.f));
    expect("ct.w_gate", "w_gate", multiplied(xt, ct_g, 0));
  }
  expect("ct.x", "x", ct_x);
  expect("ct.w_in", "w_in", multiplied(xt, ct_a, 0));
  expect("ct.w_out", "w_out", multiplied(h.transposed(), ct, 0));
  return out;
}

}  // namespace kref
