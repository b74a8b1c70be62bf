// SPDX-License-Identifier: Apache-2.0
// flash_attention_vjp of the cases of attention_vjp_cases.h.
#pragma once

#include "kernels/flash_attention_vjp.h"
#include "tests/attention_vjp_cases.h"

namespace kref {

// What flash_attention_vjp makes of a case; memory that it leaves unwritten would show.
struct Gradients {
  Array q, k, v, bias, sinks;

  std::vector<std::pair<const char*, const Array*>> all() const {
    return {{"q", &q}, {"k", &k}, {"v", &v}, {"bias", &bias}, {"sinks", &sinks}};
  }
};

enum class From { kInputs, kResiduals };

inline Gradients compute_vjp(const AttentionVjpCase& c, From from = From::kInputs) {
  const auto like = [](const Array& a) {
    Array out(a.dtype(), a.shape());
    if (out.bytes() > 0) std::memset(out.mutable_data(), 0x55, out.bytes());
    return out;
  };
  Gradients g{like(c.q), like(c.k), like(c.v), {}, {}};
  AttentionGradientOutputs out{g.q.mutable_ref(), g.k.mutable_ref(), g.v.mutable_ref()};
  if (c.has_bias) g.bias = like(c.bias), out.bias = g.bias.mutable_ref();
  if (c.has_sinks) g.sinks = like(c.sinks), out.sinks = g.sinks.mutable_ref();
  if (from == From::kInputs) {
    flash_attention_vjp(c.inputs(), c.cotangents(), out, c.options, c.tile);
    return g;
  }
  AttentionVjpCase wide = c;  // o unrounded
  wide.out_dtype = DType::kF32;
  wide.options.p_dtype.reset();
  const Result r = compute(wide);
  flash_attention_vjp(c.inputs(), {.o = r.o, .lse = r.lse}, c.cotangents(), out, c.options, c.tile);
  return g;
}

inline bool same_bits(const Gradients& a, const Gradients& b) {
  const auto x = a.all(), y = b.all();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Array &one = *x[i].second, &other = *y[i].second;
    if (one.data() != nullptr && !same_bits(one, other)) return false;
  }
  return true;
}

}  // namespace kref
