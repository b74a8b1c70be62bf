// SPDX-License-Identifier: Apache-2.0
#include "sharding/layer_math.h"

#include <cmath>

#include "dsl/work_meter.h"
#include "kernels/matmul.h"
#include "sharding/local_math.h"

namespace kref {
namespace {

// A value and its derivative.
struct Slope {
  float value, slope;
};

Slope relu(float a) {
  // A NaN stays one.
  if (a != a) return {a, a};
  return a > 0 ? Slope{a, 1} : Slope{0, 0};
}

// x Phi(x). By erfc, which keeps its digits where Phi is small.
Slope gelu(float a) {
  constexpr float kHalfRoot = 0.70710678f, kPeak = 0.39894228f;  // 1 / sqrt(2), 1 / sqrt(2 pi)
  const float phi = 0.5f * std::erfc(-a * kHalfRoot);
  const float density = kPeak * std::exp(-0.5f * a * a);
  // Beyond the range of a * a the density is 0, and 0 times infinity is not.
  return {a * phi, phi + (density == 0 ? 0.0f : a * density)};
}

// 0.5 x (1 + tanh(c (x + 0.044715 x^3))) = x sigmoid(2 c (x + ...)).
Slope gelu_tanh(float a) {
  constexpr float kTwice = 1.59576912f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
  const float square = a * a;
  const float inner = kTwice * a * (1 + kCubic * square);
  const float gate = 1 / (1 + std::exp(-inner));
  const float rest = gate * (1 - gate);
  const float slope = kTwice * (1 + 3 * kCubic * square);
  return {a * gate, gate + (rest == 0 ? 0.0f : a * rest * slope)};
}

Slope silu(float a) {
  const float gate = 1 / (1 + std::exp(-a));
  const float rest = gate * (1 - gate);
  return {a * gate, gate + (rest == 0 ? 0.0f : a * rest)};
}

// Calls f with the function of an activation, once for all elements.
template <class F>
void with_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::kNone:
      return f([](float a) { return Slope{a, 1}; });
    case Activation::kRelu:
      return f(relu);
    case Activation::kGelu:
      return f(gelu);
    case Activation::kGeluTanh:
      return f(gelu_tanh);
    case Activation::kSilu:
      return f(silu);
  }
}

}  // namespace

Array of_type(const Array& x, DType dtype) { return x.dtype() == dtype ? x : converted(x, dtype); }

DType product_type(const Array& x, const Array& y) {
  return x.dtype() == y.dtype() ? x.dtype() : DType::kF32;
}

Array layer_product(const LayerStep& step, const Array& x, const Array& y) {
  const DType type = product_type(x, y);
  return matmul(of_type(x, type), of_type(y, type),
                {.trans_x = step.trans_x, .trans_y = step.trans_y}, DType::kF32);
}

Array hidden_value(Activation activation, const Array& a, const Array* g, DType hidden) {
  if (detail::shapes_only()) return Array::unwritten(hidden, a.shape());
  Array out = Array::unwritten(DType::kF32, a.shape());
  const std::span<const float> from = a.elements<float>();
  const std::span<float> to = out.mutable_elements<float>();
  const float* gates = g == nullptr ? nullptr : g->elements<float>().data();
  with_activation(activation, [&](auto act) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const float value = act(from[i]).value;
      to[i] = gates == nullptr ? value : value * gates[i];
    }
  });
  return of_type(out, hidden);
}

HiddenCotangents hidden_cotangents(Activation activation, const Array& ct, const Array& a,
                                   const Array* g) {
  const Array wide = of_type(ct, DType::kF32);
  const std::span<const float> from = a.elements<float>(), cts = wide.elements<float>();
  HiddenCotangents out;
  out.a = Array::unwritten(DType::kF32, a.shape());
  const std::span<float> to_a = out.a.mutable_elements<float>();
  if (g != nullptr) out.g = Array::unwritten(DType::kF32, a.shape());
  if (detail::shapes_only()) return out;
  float* const to_g = g == nullptr ? nullptr : out.g.mutable_elements<float>().data();
  const float* gates = g == nullptr ? nullptr : g->elements<float>().data();
  with_activation(activation, [&](auto act) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Slope at = act(from[i]);
      to_a[i] = (gates == nullptr ? cts[i] : cts[i] * gates[i]) * at.slope;
      if (to_g != nullptr) to_g[i] = cts[i] * at.value;
    }
  });
  return out;
}

}  // namespace kref
