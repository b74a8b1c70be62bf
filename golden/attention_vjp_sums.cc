// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_vjp_sums.h"

#include <algorithm>
#include <cmath>

#include "golden/attention_bound.h"

namespace kref {

using reference::AttentionRow;
using reference::AttentionRowGradient;
using reference::Layout;

GradientSum::GradientSum(std::string name, DType type, Index vectors, Index width)
    : name_(std::move(name)), type_(type), width_(width) {
  const auto size = static_cast<std::size_t>(vectors * width);
  for (auto* numbers : {&value_, &magnitude_, &likely_, &worst_}) numbers->assign(size, 0.0);
  terms_.assign(static_cast<std::size_t>(vectors), 0.0);
  wild_.assign(terms_.size(), 0);
}

void GradientSum::add(Index at, double factor, const GradientError& error, const double* from,
                      bool wild) {
  const auto first = static_cast<std::size_t>(at * width_);
  double *value = value_.data() + first, *magnitude = magnitude_.data() + first,
         *likely = likely_.data() + first, *worst = worst_.data() + first;
  const double size = std::fabs(factor);
  for (Index i = 0; i < width_; ++i) {
    const double x = std::fabs(from[i]);
    value[i] += factor * from[i];
    magnitude[i] += size * x;
    likely[i] += error.likely * x;
    worst[i] += error.worst * x;
  }
  terms_[static_cast<std::size_t>(at)] += 1;
  wild_[static_cast<std::size_t>(at)] |= wild ? 1 : 0;
}

Expectation GradientSum::expectation(const AttentionVjpBounds::Accumulator& accumulator,
                                     double scale,
                                     const std::function<double(std::size_t)>& steps) const {
  constexpr std::uint8_t kAnything =
      Expectation::kPlusInfinity | Expectation::kMinusInfinity | Expectation::kNaN;
  const double unit = accumulator.unit;
  const double tiny = accumulator.tiny * std::max(1.0, std::fabs(scale));
  const double unscaled = scale == 0 ? 1 : std::max(1.0, 1 / std::fabs(scale));
  Expectation e;
  e.output = name_;
  e.value = value_;
  e.likely.resize(value_.size()), e.worst.resize(value_.size());
  e.overflow.assign(value_.size(), Expectation::kNoOverflow);
  for (std::size_t i = 0; i < value_.size(); ++i) {
    const std::size_t at = i / static_cast<std::size_t>(width_);
    const double n = terms_[at];
    const double largest = (magnitude_[i] + likely_[i]) * unscaled;
    if (wild_[at] != 0 || (!accumulator.wide && largest >= kPastF32)) e.overflow[i] = kAnything;
    if (std::isinf(value_[i])) e.overflow[i] |= Expectation::kNaN;
    if (!std::isfinite(value_[i])) continue;
    const double size = magnitude_[i] + worst_[i];
    const double lost = size > 0 ? 2 * n * tiny : 0;
    const double likely =
        likely_[i] + (std::min(n, steps(i)) + 8) * unit * (magnitude_[i] + likely_[i]) + lost;
    const double worst = worst_[i] + (n + 16) * unit * size + lost;
    e.likely[i] = output_bound(value_[i], likely, type_);
    e.worst[i] = output_bound(value_[i], worst, type_);
  }
  return e;
}

GradientSums::GradientSums(const Run& given, const AttentionVjpRun& run, const std::string& output)
    : run_(run) {
  const auto want = [&](std::optional<GradientSum>& sum, const std::string& input, Index width) {
    const std::string name = "ct." + input;
    if (!given.out.contains(name) || (!output.empty() && output != name)) return;
    const Array& array = given.in.at(input);
    const Index vectors = width == 0 ? 0 : array.size() / width;
    sum.emplace(name, array.dtype(), vectors, vectors == 0 ? 0 : width);
  };
  want(q_, "q", run.primal.depth), want(k_, "k", run.primal.depth);
  want(v_, "v", run.primal.width);
  want(bias_, "bias", 1), want(sinks_, "sinks", 1);
  if (!bias_) return;
  const auto shape = given.in.at("bias").shape();
  bias_shape_.assign(shape.begin(), shape.end());
}

void GradientSums::add(const AttentionRow& row, const AttentionRowGradient& g,
                       const RowGradientErrors& errors, Index kv_head) {
  const AttentionRun& run = run_.primal;
  const Layout layout = run.options.layout;
  const auto key_row = [&](Index j) {
    return reference::row_index(layout, row.batch, run.groups, kv_head, run.keys, j);
  };
  if (v_ && row.kind == AttentionRow::Kind::kNoKey &&
      run.options.fully_masked == reference::FullyMasked::kUniform && run.width > 0) {
    const DType sums = run.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
    const double share = 1 / static_cast<double>(run.keys);
    const double error = 4 * unit_roundoff(sums) * share;  // it is rounded, and multiplied
    for (Index j = 0; j < run.keys; ++j) v_->add(key_row(j), share, {error, error}, g.ct_o, false);
  }
  const Index q_row =
      reference::row_index(layout, row.batch, run.heads, row.head, run.queries, row.query);
  const double scale = std::fabs(run.options.scale);
  const bool before = run.options.bias_order == reference::BiasOrder::kBeforeScale;
  const auto scaled = [scale](const GradientError& e) {
    return GradientError{scale * e.likely, scale * e.worst};
  };
  constexpr double kOne = 1;
  for (std::size_t i = 0; i < row.keys.size(); ++i) {
    const Index j = row.keys[i].index;
    const RowGradientErrors::Key& e = errors.keys[i];
    const GradientError product = scaled(e.rounded);
    const double factor = g.keys[i].product;
    if (run.depth > 0) {
      if (q_) q_->add(q_row, factor, product, row.k + j * run.depth, errors.overflow);
      if (k_) k_->add(key_row(j), factor, product, row.q, errors.overflow);
    }
    if (v_ && run.width > 0) {
      v_->add(key_row(j), row.keys[i].weight, e.weight, g.ct_o, errors.overflow);
    }
    if (!bias_) continue;
    bias_->add(reference::bias_offset(bias_shape_, row) + j, g.keys[i].bias,
               before ? scaled(e.score) : e.score, &kOne, errors.overflow);
  }
  if (sinks_ && row.kind == AttentionRow::Kind::kSoftmax) {
    sinks_->add(row.head, g.sink, errors.sink, &kOne, errors.overflow);
  }
}

// Of an element of [B, heads, rows, width] in the layout: the number of its column.
Index GradientSums::column(std::size_t element, Index heads, Index rows, Index width) const {
  const auto at = static_cast<Index>(element);
  const Index e = at % width, outer = at / width, b = outer / (heads * rows);
  const bool bthd = run_.primal.options.layout == Layout::kBTHD;
  return (b * heads + (bthd ? outer % heads : outer / rows % heads)) * width + e;
}

GradientSums::Steps GradientSums::steps_over_keys() const {
  const AttentionRun& run = run_.primal;
  const Index per_group = run.groups == 0 ? 1 : run.heads / run.groups;
  return [this, &run, per_group,
          repeats = column_repeats(run.in.k, run.options.layout)](std::size_t i) {
    const Index c = column(i, run.heads, run.queries, run.depth), kv = c / run.depth / per_group;
    const Index of = kv * run.depth + c % run.depth;
    return 4 * std::sqrt(repeats[static_cast<std::size_t>(of)].squares[0]);
  };
}

GradientSums::Steps GradientSums::steps_over_rows(const ArrayRef& heads) const {
  const AttentionRun& run = run_.primal;
  const Index per_group = run.groups == 0 ? 0 : run.heads / run.groups, width = heads.extents[3];
  return [this, &run, per_group, width,
          repeats = column_repeats(heads, run.options.layout)](std::size_t i) {
    const Index c = column(i, run.groups, run.keys, width), group = c / width;
    double roots = 0;
    for (Index h = group * per_group; h < (group + 1) * per_group; ++h) {
      roots += std::sqrt(repeats[static_cast<std::size_t>(h * width + c % width)].squares[0]);
    }
    return 4 * roots;
  };
}

Blocks GradientSums::blocks(std::vector<std::string> axes, std::vector<Index> extents,
                            const std::string& steps) const {
  if (run_.primal.options.layout == Layout::kBTHD) {
    std::swap(axes[1], axes[2]);
    std::swap(extents[1], extents[2]);
  }
  for (Index& extent : extents) extent = std::max<Index>(1, extent);
  return {.axes = std::move(axes), .extents = std::move(extents), .steps = steps};
}

std::vector<Expectation> GradientSums::expectations(
    const AttentionVjpBounds::Accumulator& accumulator) const {
  const AttentionRun& run = run_.primal;
  const double scale = run.options.scale;
  const std::string rows = attention_steps("iq", run.queries, kAttentionQueryBlock);
  const std::string keys = attention_steps("ik", run.keys, kAttentionKeyBlock);
  constexpr Index kRows = kAttentionQueryBlock, kKeys = kAttentionKeyBlock;
  const Steps all = [](std::size_t) { return HUGE_VAL; };
  std::vector<Expectation> out;
  const auto put = [&](Expectation e, Blocks b) {
    e.blocks = std::move(b);
    out.push_back(std::move(e));
  };
  if (q_) {
    put(q_->expectation(accumulator, scale, steps_over_keys()),
        blocks({"batch", "head", "iq", "d"}, {1, 1, kRows, run.depth}, keys));
  }
  if (k_) {
    put(k_->expectation(accumulator, scale, steps_over_rows(run.in.q)),
        blocks({"batch", "kv_head", "ik", "d"}, {1, 1, kKeys, run.depth}, rows));
  }
  if (v_) {
    put(v_->expectation(accumulator, 0, steps_over_rows(run_.ct.o)),
        blocks({"batch", "kv_head", "ik", "e"}, {1, 1, kKeys, run.width}, rows));
  }
  if (bias_) {
    put(bias_->expectation(accumulator, scale, all),
        {.axes = {"batch", "head", "iq", "ik"}, .extents = {1, 1, kRows, kKeys}, .steps = ""});
  }
  if (sinks_) {
    put(sinks_->expectation(accumulator, 0, all),
        {.axes = {"head"}, .extents = {1}, .steps = rows});
  }
  return out;
}

}  // namespace kref
