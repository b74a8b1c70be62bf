// SPDX-License-Identifier: Apache-2.0
// What the outputs of an attention.vjp run ought to hold: value, bounds and blocks of every
// element.
#include <algorithm>
#include <cmath>

#include "golden/attention_bound.h"
#include "golden/attention_vjp_bound.h"

namespace kref {
namespace {

using reference::AttentionRow;
using reference::AttentionRowGradient;
using reference::Layout;

// One gradient while the rows add to it: vectors of `width` elements, each a sum of terms.
class Gradient {
 public:
  Gradient(const Run& run, const std::string& input, Index width)
      : name_("ct." + input), width_(width) {
    const auto found = run.in.find(input);
    if (found == run.in.end() || !run.out.contains(name_)) return;
    dtype_ = found->second.dtype();
    const auto size = static_cast<std::size_t>(found->second.size());
    for (auto* numbers : {&value_, &magnitude_, &likely_, &worst_}) numbers->assign(size, 0.0);
    terms_.assign(width == 0 ? 0 : size / static_cast<std::size_t>(width), 0.0);
    overflow_.assign(terms_.size(), 0);
    wanted_ = true;
  }

  bool wanted() const { return wanted_; }

  // Vector `at` += factor from, with the error of the factor; wild: it may be anything.
  void add(Index at, double factor, const GradientError& error, const double* from, bool wild) {
    if (!wanted_) return;
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
    if (width_ == 0) return;
    terms_[static_cast<std::size_t>(at)] += 1;
    overflow_[static_cast<std::size_t>(at)] |= wild ? 1 : 0;
  }

  // The sums are in f32 unless they are `wide`. steps(element): those of its sum, if fewer than its
  // terms; scale: what terms are multiplied by before or after they are added, 0: by nothing.
  template <class Steps>
  Expectation expectation(const AttentionVjpBounds& bounds, bool wide, double scale,
                          const Steps& steps) const {
    constexpr std::uint8_t kAnything =
        Expectation::kPlusInfinity | Expectation::kMinusInfinity | Expectation::kNaN;
    const double unit = bounds.unit();
    const double tiny = bounds.tiny() * std::max(1.0, std::fabs(scale));
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
      if (overflow_[at] != 0 || (!wide && largest >= kPastF32)) e.overflow[i] = kAnything;
      if (std::isinf(value_[i])) e.overflow[i] |= Expectation::kNaN;
      if (!std::isfinite(value_[i])) continue;
      const double size = magnitude_[i] + worst_[i];
      const double lost = size > 0 ? 2 * n * tiny : 0;
      const double likely =
          likely_[i] + (std::min(n, steps(i)) + 8) * unit * (magnitude_[i] + likely_[i]) + lost;
      const double worst = worst_[i] + (n + 16) * unit * size + lost;
      e.likely[i] = output_bound(value_[i], likely, dtype_);
      e.worst[i] = output_bound(value_[i], worst, dtype_);
    }
    return e;
  }

 private:
  std::string name_;
  Index width_;
  DType dtype_ = DType::kF32;
  bool wanted_ = false;
  std::vector<double> value_, magnitude_, likely_, worst_;
  std::vector<double> terms_;  // of each vector
  std::vector<std::uint8_t> overflow_;
};

class Gradients {
 public:
  Gradients(const Run& given, const AttentionVjpRun& run)
      : run_(run),
        bounds_(run),
        q_(given, "q", run.primal.depth),
        k_(given, "k", run.primal.depth),
        v_(given, "v", run.primal.width),
        bias_(given, "bias", 1),
        sinks_(given, "sinks", 1) {}

  void add(const AttentionRow& row, const AttentionRowGradient& g) {
    const AttentionRun& run = run_.primal;
    const RowGradientErrors& errors = bounds_(row, g);
    const Layout layout = run.options.layout;
    const Index group = row.head / (run.heads / run.groups);
    const auto key_row = [&](Index j) {
      return reference::row_index(layout, row.batch, run.groups, group, run.keys, j);
    };
    if (row.kind == AttentionRow::Kind::kNoKey &&
        run.options.fully_masked == reference::FullyMasked::kUniform) {
      const double share = 1 / static_cast<double>(run.keys), error = 2 * bounds_.unit() * share;
      for (Index j = 0; j < run.keys; ++j) v_.add(key_row(j), share, {error, error}, g.ct_o, false);
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
      q_.add(q_row, g.keys[i].product, product, row.k + j * run.depth, errors.overflow);
      k_.add(key_row(j), g.keys[i].product, product, row.q, errors.overflow);
      v_.add(key_row(j), row.keys[i].weight, e.weight, g.ct_o, errors.overflow);
      if (!bias_.wanted()) continue;
      bias_.add(reference::bias_offset(run.in.bias->shape(), row) + j, g.keys[i].bias,
                before ? scaled(e.score) : e.score, &kOne, errors.overflow);
    }
    if (row.kind == AttentionRow::Kind::kSoftmax && run.in.sinks) {
      sinks_.add(row.head, g.sink, errors.sink, &kOne, errors.overflow);
    }
  }

  std::vector<Expectation> expectations() const {
    const AttentionRun& run = run_.primal;
    const double scale = run.options.scale;
    const bool wide = run.dtype() == DType::kF64;
    const bool bthd = run.options.layout == Layout::kBTHD;
    const Index per_group = run.groups == 0 ? 0 : run.heads / run.groups;
    // Of element i of an array [B, heads, rows, width], the number of its column.
    const auto column = [&](std::size_t i, Index heads, Index rows, Index width) {
      const auto at = static_cast<Index>(i);
      const Index e = at % width, outer = at / width;
      const Index b = outer / (heads * rows);
      const Index h = bthd ? outer % heads : outer / rows % heads;
      return (b * heads + h) * width + e;
    };
    // Of a sum over the rows of all query heads of a kv head.
    const auto over_heads = [&](const std::vector<Repeats>& repeats, std::size_t i, Index width) {
      const Index c = column(i, run.groups, run.keys, width), e = c % width, group = c / width;
      double roots = 0;
      for (Index h = group * per_group; h < (group + 1) * per_group; ++h) {
        roots += std::sqrt(repeats[static_cast<std::size_t>(h * width + e)].squares[0]);
      }
      return 4 * roots;
    };
    const auto all = [](std::size_t) { return HUGE_VAL; };
    std::vector<Expectation> out;
    const auto put = [&](Expectation e, std::vector<std::string> axes, std::vector<Index> extents,
                         const std::string& steps) {
      if (bthd && axes.size() == 4 && e.output != "ct.bias") {
        std::swap(axes[1], axes[2]);
        std::swap(extents[1], extents[2]);
      }
      for (Index& extent : extents) extent = std::max<Index>(1, extent);
      e.blocks = {.axes = std::move(axes), .extents = std::move(extents), .steps = steps};
      out.push_back(std::move(e));
    };
    const std::string rows = attention_steps("iq", run.queries, kAttentionQueryBlock);
    const std::string keys = attention_steps("ik", run.keys, kAttentionKeyBlock);
    constexpr Index kRows = kAttentionQueryBlock, kKeys = kAttentionKeyBlock;
    if (q_.wanted()) {
      const std::vector<Repeats> repeats = column_repeats(run.in.k, run.options.layout);
      const auto steps = [&](std::size_t i) {
        const Index c = column(i, run.heads, run.queries, run.depth), d = c % run.depth;
        const Index kv = c / run.depth / per_group;
        return 4 * std::sqrt(repeats[static_cast<std::size_t>(kv * run.depth + d)].squares[0]);
      };
      put(q_.expectation(bounds_, wide, scale, steps), {"batch", "head", "iq", "d"},
          {1, 1, kRows, run.depth}, keys);
    }
    if (k_.wanted()) {
      const std::vector<Repeats> repeats = column_repeats(run.in.q, run.options.layout);
      const auto steps = [&](std::size_t i) { return over_heads(repeats, i, run.depth); };
      put(k_.expectation(bounds_, wide, scale, steps), {"batch", "kv_head", "ik", "d"},
          {1, 1, kKeys, run.depth}, rows);
    }
    if (v_.wanted()) {
      const std::vector<Repeats> repeats = column_repeats(run_.ct.o, run.options.layout);
      const auto steps = [&](std::size_t i) { return over_heads(repeats, i, run.width); };
      put(v_.expectation(bounds_, wide, 0, steps), {"batch", "kv_head", "ik", "e"},
          {1, 1, kKeys, run.width}, rows);
    }
    if (bias_.wanted()) {
      put(bias_.expectation(bounds_, wide, scale, all), {"batch", "head", "iq", "ik"},
          {1, 1, kRows, kKeys}, "");
    }
    if (sinks_.wanted()) put(sinks_.expectation(bounds_, wide, 0, all), {"head"}, {1}, rows);
    return out;
  }

 private:
  const AttentionVjpRun& run_;
  AttentionVjpBounds bounds_;
  Gradient q_, k_, v_, bias_, sinks_;
};

}  // namespace

std::vector<Expectation> expect_attention_vjp(const Run& given) {
  const AttentionVjpRun run = read_attention_vjp(given);
  Gradients gradients(given, run);
  reference::attention_vjp_rows(
      run.primal.in, run.ct, run.primal.options,
      [&](const AttentionRow& row, const AttentionRowGradient& g) { gradients.add(row, g); });
  return gradients.expectations();
}

}  // namespace kref
