// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference_attention_vjp.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/reference.h"

namespace kref::reference {
namespace {

void check_cotangent(const char* name, const ArrayRef& a, std::initializer_list<Index> expected) {
  KREF_CHECK(is_float(a.dtype) && std::ranges::equal(a.shape(), expected), "attention: ", name,
             " is ", to_string(a), ", expected floats ",
             shape_string({expected.begin(), expected.size()}));
}

// B, H, T, E of o; what attention_rows refuses may give anything.
struct Sizes {
  Index b, h, t, e;

  Sizes(const AttentionInputs& in, Layout layout)
      : b(in.q.extents[0]),
        h(in.q.extents[layout == Layout::kBTHD ? 2 : 1]),
        t(in.q.extents[layout == Layout::kBTHD ? 1 : 2]),
        e(in.v.extents[3]) {}
};

// 1 - tanh^2(score / c).
double cap_slope(const AttentionOptions& options, double score) {
  if (!options.soft_cap) return 1;
  const double grown = std::cosh(score / *options.soft_cap);
  return 1 / grown / grown;
}

}  // namespace

void row_gradient(const AttentionRow& row, const AttentionOptions& options, const double* ct_o,
                  double ct_lse, AttentionRowGradient& out) {
  out.keys.clear();
  out.ct_o = ct_o, out.ct_lse = ct_lse;
  out.delta = out.sink = 0;
  if (row.kind != AttentionRow::Kind::kSoftmax) return;
  const std::size_t width = row.o.size();
  for (const AttentionRow::Key& key : row.keys) {
    const double* v = row.v + key.index * static_cast<Index>(width);
    AttentionRowGradient::Key g{};
    for (std::size_t e = 0; e < width; ++e) {
      g.dp += out.ct_o[e] * v[e];
      g.dp_magnitude += std::fabs(out.ct_o[e] * v[e]);
    }
    g.slope = cap_slope(options, key.score);
    out.delta += key.weight * g.dp;
    out.keys.push_back(g);
  }
  const bool before = options.bias_order == BiasOrder::kBeforeScale;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    AttentionRowGradient::Key& g = out.keys[j];
    g.logit = row.keys[j].weight * (g.dp - out.delta + out.ct_lse);
    const double score = g.logit * g.slope;
    g.product = score * options.scale;
    g.bias = before ? g.product : score;
  }
  // Of no sink the logit is -infinity: its weight is 0.
  const double sink = std::exp(row.sink - row.maximum) / row.denominator;
  out.sink = std::isinf(row.sink) && row.sink < 0 ? 0 : sink * (out.ct_lse - out.delta);
}

Index bias_offset(std::span<const Index> extents, const AttentionRow& row) {
  const auto at = [&](std::size_t d, Index i) { return extents[d] == 1 ? 0 : i; };
  return ((at(0, row.batch) * extents[1] + at(1, row.head)) * extents[2] + at(2, row.query)) *
         extents[3];
}

void attention_vjp_rows(
    const AttentionInputs& in, const AttentionCotangents& ct, const AttentionOptions& options,
    const std::function<void(const AttentionRow&, const AttentionRowGradient&)>& visit) {
  const bool bthd = options.layout == Layout::kBTHD;
  const Sizes s(in, options.layout);
  if (in.q.rank == 4 && in.v.rank == 4) {
    check_cotangent("ct.o", ct.o, {s.b, bthd ? s.t : s.h, bthd ? s.h : s.t, s.e});
    if (ct.lse) check_cotangent("ct.lse", *ct.lse, {s.b, s.h, s.t});
  }
  const std::vector<double> o = values(ct.o);
  const std::vector<double> lse = ct.lse ? values(*ct.lse) : std::vector<double>();
  AttentionOptions exact = options;
  exact.p_dtype.reset();
  AttentionRowGradient gradient;
  std::size_t at = 0;
  attention_rows(in, exact, [&](const AttentionRow& row) {
    double ct_lse = lse.empty() ? 0 : lse[at];
    if (options.lse_base == LogBase::k2) ct_lse *= std::numbers::log2e;
    ++at;
    row_gradient(row, options, o.data() + o_offset(options.layout, s.h, s.t, s.e, row), ct_lse,
                 gradient);
    visit(row, gradient);
  });
}

AttentionGradients attention_vjp(const AttentionInputs& in, const AttentionCotangents& ct,
                                 const AttentionOptions& options) {
  const Layout layout = options.layout;
  const std::size_t head = layout == Layout::kBTHD ? 2 : 1;
  const Sizes s(in, layout);
  const Index groups = in.k.extents[head], keys = in.k.extents[3 - head], depth = in.k.extents[3];
  const auto zeros = [](const ArrayRef& a) {
    return std::vector<double>(static_cast<std::size_t>(a.size()));
  };
  AttentionGradients out{zeros(in.q), zeros(in.k), zeros(in.v), {}, {}};
  if (in.bias) out.bias = zeros(*in.bias);
  if (in.sinks) out.sinks = zeros(*in.sinks);

  // to += factor from.
  const auto add = [](double* to, double factor, const double* from, Index n) {
    for (Index i = 0; i < n; ++i) to[i] += factor * from[i];
  };
  attention_vjp_rows(in, ct, options, [&](const AttentionRow& row, const AttentionRowGradient& g) {
    const Index group = row.head / (s.h / groups);
    const auto kv_row = [&](Index j) {
      return row_index(layout, row.batch, groups, group, keys, j);
    };
    if (row.kind == AttentionRow::Kind::kNoKey && options.fully_masked == FullyMasked::kUniform) {
      for (Index j = 0; j < keys; ++j) {
        add(out.v.data() + kv_row(j) * s.e, 1 / static_cast<double>(keys), g.ct_o, s.e);
      }
    }
    double* dq = out.q.data() + o_offset(layout, s.h, s.t, depth, row);
    double* dbias = in.bias ? out.bias.data() + bias_offset(in.bias->shape(), row) : nullptr;
    for (std::size_t i = 0; i < row.keys.size(); ++i) {
      const Index j = row.keys[i].index;
      add(dq, g.keys[i].product, row.k + j * depth, depth);
      add(out.k.data() + kv_row(j) * depth, g.keys[i].product, row.q, depth);
      add(out.v.data() + kv_row(j) * s.e, row.keys[i].weight, g.ct_o, s.e);
      if (dbias != nullptr) dbias[j] += g.keys[i].bias;
    }
    if (in.sinks) out.sinks[static_cast<std::size_t>(row.head)] += g.sink;
  });
  return out;
}

}  // namespace kref::reference
