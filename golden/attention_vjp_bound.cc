// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_vjp_bound.h"

#include <algorithm>
#include <cmath>

#include "golden/attention_bound.h"
#include "golden/rounding.h"
#include "kernels/reference.h"

namespace kref {
namespace {

using reference::AttentionRow;
using reference::AttentionRowGradient;

// Past any error that is of use: it stays finite, so that 0 times one is 0.
constexpr double kHuge = 1e200;

// What a weight w of logarithm log_w grows by when its logit does by `error`.
double grown(double w, double log_w, double error) {
  return w > 0 ? std::min(w * std::expm1(error), kHuge) : std::min(std::exp(log_w + error), kHuge);
}

// The same of a weight that stays one: whatever its logit, a machine's weights lie in 0 .. 1.
// Without this a row whose logits are all of about -1e9 (a padded one, masked by its bias) would
// have no bound at all, since f32 knows such logits only to some 64.
double moved_by(double w, double log_w, double error) {
  return std::min(grown(w, log_w, error), std::max(w, 1 - w));
}

double of(const LogitErrors::Error& e, bool likely) { return likely ? e.likely : e.worst; }

double sink_weight(const AttentionRow& row) {
  return std::isinf(row.sink) ? 0 : std::exp(row.sink - row.maximum) / row.denominator;
}

DType narrow_type(DType inputs) {
  if (inputs == DType::kF64) return DType::kF32;
  return size_of(inputs) == 1 ? DType::kBF16 : inputs;
}

// The largest finite |v| of each batch and kv head.
std::vector<double> largest(const AttentionRun& run) {
  std::vector<double> out(static_cast<std::size_t>(run.batches * run.groups), 0.0);
  const std::vector<double> v = reference::values(run.in.v);
  for (Index b = 0; b < run.batches; ++b) {
    for (Index g = 0; g < run.groups; ++g) {
      double& most = out[static_cast<std::size_t>(b * run.groups + g)];
      for (Index j = 0; j < run.keys; ++j) {
        const Index at = reference::row_index(run.options.layout, b, run.groups, g, run.keys, j);
        for (Index e = at * run.width; e < (at + 1) * run.width; ++e) {
          const double size = std::fabs(v[static_cast<std::size_t>(e)]);
          if (std::isfinite(size)) most = std::max(most, size);
        }
      }
    }
  }
  return out;
}

}  // namespace

AttentionVjpBounds::AttentionVjpBounds(const AttentionVjpRun& run)
    : run_(run),
      logits_(run.primal),
      narrow_(narrow_type(run.primal.dtype())),
      ct_repeats_(row_repeats(run.ct.o)),
      v_repeats_(row_repeats(run.primal.in.v)),
      largest_v_(largest(run.primal)) {}

AttentionVjpBounds::AttentionVjpBounds(const AttentionVjpRun& run, const AttentionVjpBounds& same)
    : run_(run),
      logits_(run.primal, same.logits_),
      narrow_(same.narrow_),
      ct_repeats_(same.ct_repeats_),
      v_repeats_(same.v_repeats_),
      largest_v_(same.largest_v_) {}

double AttentionVjpBounds::half_narrow(double value) const {
  return narrow_ == DType::kF32 ? 0 : half_spacing(narrow_, value);
}

double AttentionVjpBounds::dp_steps(const AttentionRow& row, Index key, bool likely) const {
  const AttentionRun& run = run_.primal;
  if (!likely) return static_cast<double>(run.width);
  const auto at = [&](Index heads, Index h, Index rows, Index r) {
    return static_cast<std::size_t>(
        reference::row_index(run.options.layout, row.batch, heads, h, rows, r));
  };
  const double ct = ct_repeats_[at(run.heads, row.head, run.queries, row.query)].squares[0];
  const double v = v_repeats_[at(run.groups, kv_head_, run.keys, key)].squares[0];
  return likely_steps(run.width, std::min(ct, v));
}

AttentionVjpBounds::Shared AttentionVjpBounds::shared(const AttentionRow& row,
                                                      const AttentionRowGradient& gradient,
                                                      bool likely) {
  const double unit = logits_.unit(), delta = std::fabs(gradient.delta);
  Shared out;
  out.slack = likely ? 1 : 2;
  out.log_denominator = std::log(row.denominator);
  double up = 0, down = 0, moved = 0, farthest = 0, magnitude = 0, width_steps = 0;
  const auto add = [&](double weight, double logit, double error, double away) {
    const double log_weight = logit - row.maximum - out.log_denominator;
    up += grown(weight, log_weight, error);
    down += weight * std::exp(-error);
    moved += moved_by(weight, log_weight, error) * away;
    farthest = std::max(farthest, away);
  };
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const AttentionRow::Key& key = row.keys[j];
    if (std::isinf(key.logit)) continue;  // a bias of -infinity: its weight is 0 whatever else
    const AttentionRowGradient::Key& g = gradient.keys[j];
    add(key.weight, key.logit, of((*errors_)[j], likely), std::fabs(g.dp - gradient.delta));
    magnitude += key.weight * g.dp_magnitude;
    width_steps = std::max(width_steps, dp_steps(row, key.index, likely));
  }
  if (!std::isinf(row.sink)) {
    add(sink_weight(row), row.sink, of(logits_.sink(row), likely), delta);
  }
  const double steps = likely ? weight_steps_ : static_cast<double>(row.keys.size());
  const double logs = std::fabs(out.log_denominator);
  const double sizes = std::fabs(row.maximum) + logs + std::fabs(row.maximum + out.log_denominator);
  out.lse = std::log1p(up) + (steps + 8 + 2 * out.slack * sizes) * unit;
  // delta is a mean of the dp, whatever the weights; with weights exp(logit - lse), which need not
  // add up to 1, it is as much too large as they are.
  out.delta = (down > 0 ? std::min(moved / down, farthest) : farthest) +
              std::min(out.lse, 1.0) * delta + 2 * out.slack * unit * logs * delta +
              (steps + width_steps + 8 * out.slack) * unit * magnitude;
  if (unit_roundoff(run_.primal.out_dtype) > unit) {
    for (std::size_t e = 0; e < row.o.size(); ++e) {
      out.delta += half_spacing(run_.primal.out_dtype, row.o[e]) * std::fabs(gradient.ct_o[e]);
    }
  }
  out.differences = 4 * out.slack * unit * (delta + std::fabs(gradient.ct_lse));
  return out;
}

bool AttentionVjpBounds::overflows(const AttentionRow& row,
                                   const AttentionRowGradient& gradient) const {
  const AttentionRun& run = run_.primal;
  if (run.dtype() == DType::kF64) return false;
  if (scores_overflow(run, row, logits_.unit())) return true;
  const double more = 1 + static_cast<double>(run.width + run.keys + 8) * logits_.unit();
  const auto past = [&](double size) { return std::isfinite(size) && size * more >= kPastF32; };
  const double v = largest_v_[static_cast<std::size_t>(row.batch * run.groups + kv_head_)];
  if (past(v * static_cast<double>(row.keys.size()))) return true;
  return std::any_of(gradient.keys.begin(), gradient.keys.end(), [&](const auto& g) {
    return past(2 * g.dp_magnitude + std::fabs(gradient.ct_lse));
  });
}

// The error of the slope of the soft cap at the score of a key.
double AttentionVjpBounds::slope_error(const AttentionRow::Key& key, double score_error,
                                       double slack) const {
  if (!run_.primal.options.soft_cap) return 0;
  const double cap = *run_.primal.options.soft_cap;
  const double nearest = std::max(0.0, std::fabs(key.score) - score_error) / cap;
  const double most = 1 / std::cosh(nearest) / std::cosh(nearest);
  return std::min(1.0, 2 * most * score_error / cap + 16 * slack * logits_.unit());
}

void AttentionVjpBounds::key_errors(const AttentionRow& row, const AttentionRowGradient& gradient,
                                    std::size_t j, const Shared& s, bool likely) {
  const AttentionRow::Key& key = row.keys[j];
  const AttentionRowGradient::Key& g = gradient.keys[j];
  const LogitErrors::Error& error = (*errors_)[j];
  const double unit = logits_.unit(), tiny = logits_.tiny();
  const auto put = [likely](GradientError& e, double value) {
    (likely ? e.likely : e.worst) = std::min(value, kHuge);
  };
  const double log_weight = key.logit - row.maximum - s.log_denominator;
  const double weight = moved_by(key.weight, log_weight, of(error, likely) + s.lse) +
                        8 * s.slack * unit * key.weight + std::min(tiny, key.weight);
  put(out_.keys[j].weight, weight + half_narrow(key.weight + weight));

  const auto width = static_cast<double>(row.o.size());
  const double dp =
      (dp_steps(row, key.index, likely) + 2 * s.slack) * unit * g.dp_magnitude + width * tiny;
  const double rest = dp + s.delta + s.differences + 4 * s.slack * unit * std::fabs(g.dp);
  const double ds = weight * std::fabs(g.dp - gradient.delta + gradient.ct_lse) +
                    (key.weight + weight) * rest + std::min(tiny, std::fabs(g.logit));
  const double slope = slope_error(key, likely ? error.score_likely : error.score_worst, s.slack);
  const double score = ds * g.slope + (std::fabs(g.logit) + ds) * slope;
  put(out_.keys[j].score, score);
  // Rounded before or after the scale.
  const double size = std::fabs(g.logit * g.slope) + score;
  const double scale = std::fabs(run_.primal.options.scale);
  const double scaled = scale == 0 ? 0 : half_narrow(size * scale) / scale;
  put(out_.keys[j].rounded, score + std::max(half_narrow(size), scaled));
}

double AttentionVjpBounds::sink_error(const AttentionRow& row, const AttentionRowGradient& gradient,
                                      const Shared& s, bool likely) const {
  if (std::isinf(row.sink)) return 0;
  const double weight = sink_weight(row), unit = logits_.unit();
  const double log_weight = row.sink - row.maximum - s.log_denominator;
  const double off = moved_by(weight, log_weight, of(logits_.sink(row), likely) + s.lse) +
                     8 * s.slack * unit * weight + std::min(logits_.tiny(), weight);
  const double error = off * std::fabs(gradient.ct_lse - gradient.delta) +
                       (weight + off) * (s.delta + s.differences) +
                       std::min(logits_.tiny(), std::fabs(gradient.sink));
  return std::min(error, kHuge);
}

const RowGradientErrors& AttentionVjpBounds::operator()(const AttentionRow& row,
                                                        const AttentionRowGradient& gradient,
                                                        Index kv_head) {
  kv_head_ = kv_head;
  out_.keys.assign(row.keys.size(), {});
  out_.sink = {};
  out_.overflow = false;
  if (row.kind != AttentionRow::Kind::kSoftmax || !std::isfinite(row.lse)) return out_;
  errors_ = &logits_(row, kv_head);
  weight_steps_ = likely_steps(static_cast<Index>(row.keys.size()), logits_.squares(row));
  out_.overflow = overflows(row, gradient);
  for (const bool likely : {true, false}) {
    const Shared s = shared(row, gradient, likely);
    for (std::size_t j = 0; j < row.keys.size(); ++j) {
      if (!std::isinf(row.keys[j].logit)) key_errors(row, gradient, j, s, likely);
    }
    (likely ? out_.sink.likely : out_.sink.worst) = sink_error(row, gradient, s, likely);
  }
  return out_;
}

}  // namespace kref
