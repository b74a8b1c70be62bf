// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "golden/matmul_sums.h"
#include "golden/rounding.h"

namespace kref {
namespace {

using reference::AttentionRow;

constexpr double kLog2E = 1.4426950408889634;
// Past any error that is of use: factors stay finite, so that 0 times one is 0.
constexpr double kHuge = 1e300;

}  // namespace

double output_bound(double value, double error, DType type) {
  const double v = std::fabs(value);
  const double bound =
      std::min(error + half_spacing(type, v + error), std::numeric_limits<double>::max());
  return v - error < flush_limit(type) ? std::max(bound, std::min(v, flush_limit(type))) : bound;
}

bool scores_overflow(const AttentionRun& run, const AttentionRow& row, double unit) {
  const double scale = std::max(1.0, std::fabs(run.options.scale));
  const double grown = 1 + static_cast<double>(run.depth + 4) * unit;  // by rounding
  return std::any_of(row.keys.begin(), row.keys.end(), [&](const AttentionRow::Key& key) {
    // What is not finite comes of the inputs, and is so in every order.
    const double product = key.product * scale, score = key.magnitude;
    return (std::isfinite(product) && product * grown >= kPastF32) ||
           (std::isfinite(score) && score * grown >= kPastF32);
  });
}

AttentionBounds::AttentionBounds(const AttentionRun& run)
    : run_(run),
      errors_(run),
      unit_(errors_.unit()),
      tiny_(errors_.tiny()),
      v_repeats_(std::make_shared<const std::vector<Repeats>>(
          column_repeats(run.in.v, run.options.layout))) {}

AttentionBounds::AttentionBounds(const AttentionRun& run, const AttentionBounds& same)
    : run_(run),
      errors_(run, same.errors_),
      unit_(same.unit_),
      tiny_(same.tiny_),
      v_repeats_(same.v_repeats_) {}

void AttentionBounds::Columns::clear(std::size_t width) {
  for (auto* sums : {&magnitude, &values, &spread, &likely, &worst}) sums->assign(width, 0.0);
}

void AttentionBounds::weigh(const AttentionRow& row) {
  const std::vector<LogitErrors::Error>& errors = errors_(row, kv_head_);
  keys_.clear();
  const double log_denominator = std::log(row.denominator);
  const auto factor = [&](double weight, double log_weight, double error, Total& total) {
    total.most = std::max(total.most, error);
    total.down += weight * std::exp(-error);
    const double up = std::min(std::exp(log_weight + error) - weight, kHuge);
    total.up = std::min(total.up + up, kHuge);
    return up;
  };
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const AttentionRow::Key& key = row.keys[j];
    const double log_weight = key.logit - row.maximum - log_denominator;
    Key out{key.index, key.weight, 0, 0};
    out.likely = factor(key.weight, log_weight, errors[j].likely, likely_);
    out.worst = factor(key.weight, log_weight, errors[j].worst, worst_);
    keys_.push_back(out);
  }
  sink_ = 0;
  if (std::isinf(row.sink)) return;
  const double log_weight = row.sink - row.maximum - log_denominator;
  const LogitErrors::Error error = errors_.sink(row);
  sink_ = std::exp(log_weight);
  const double likely = factor(sink_, log_weight, error.likely, likely_);
  const double worst = factor(sink_, log_weight, error.worst, worst_);
  for (std::size_t e = 0; e < row.o.size(); ++e) {
    const double away = std::fabs(row.o[e]);  // its value is 0
    columns_.spread[e] = away;
    columns_.likely[e] = likely * away;
    columns_.worst[e] = worst * away;
  }
}

void AttentionBounds::weigh_uniformly() {
  keys_.clear();
  const double weight = 1 / static_cast<double>(run_.keys);
  for (Index j = 0; j < run_.keys; ++j) keys_.push_back({j, weight, 0, 0});
  likely_.down = worst_.down = 1;
}

void AttentionBounds::sum_columns(const AttentionRow& row) {
  // Plain pointers: this loop takes most of the time, and the compiler has to see its vectors.
  double* magnitude = columns_.magnitude.data();
  double* values = columns_.values.data();
  double* spread = columns_.spread.data();
  double* likely = columns_.likely.data();
  double* worst = columns_.worst.data();
  const double* o = row.o.data();
  for (const Key& key : keys_) {
    const double* v = row.v + key.index * run_.width;
    for (std::size_t e = 0; e < row.o.size(); ++e) {
      const double value = std::fabs(v[e]), away = std::fabs(v[e] - o[e]);
      magnitude[e] += key.weight * value;
      values[e] += value;
      spread[e] = spread[e] < away ? away : spread[e];
      likely[e] += key.likely * away;
      worst[e] += key.worst * away;
    }
  }
}

// squares: of the weights, as Repeats has it.
void AttentionBounds::bound_o(const AttentionRow& row, double squares) {
  const DType p = *run_.options.p_dtype;
  const double p_unit = unit_roundoff(p) > unit_ ? unit_roundoff(p) : 0;
  const double p_tiny = std::max(flush_limit(p), smallest_normal(p) * unit_roundoff(p)) + tiny_;
  const auto n = static_cast<Index>(keys_.size());
  const auto terms = static_cast<double>(n);
  const Index first = (row.batch * run_.groups + kv_head_) * run_.width;
  for (std::size_t e = 0; e < row.o.size(); ++e) {
    const double o = row.o[e];
    if (!std::isfinite(o)) continue;
    const double magnitude = columns_.magnitude[e], spread = columns_.spread[e];
    const auto at_most = [spread](double moved) { return moved <= spread ? moved : spread; };
    const double fixed = p_tiny * columns_.values[e] + (magnitude > 0 ? tiny_ : 0);
    const double v_squares = (*v_repeats_)[static_cast<std::size_t>(first) + e].squares[0];
    const double numerator = likely_steps(n, std::min(squares, v_squares));
    const double denominator = likely_steps(n, squares);
    out_.likely[e] = at_most(columns_.likely[e] / likely_.down) + fixed +
                     ((numerator + 8) * unit_ + p_unit) * magnitude +
                     denominator * unit_ * std::fabs(o);
    out_.worst[e] = at_most(columns_.worst[e] / worst_.down) + fixed +
                    ((terms + 16) * unit_ + p_unit) * magnitude +
                    ((terms + 8) * unit_ + p_unit) * std::fabs(o);
    out_.likely[e] = output_bound(o, out_.likely[e], run_.out_dtype);
    out_.worst[e] = output_bound(o, out_.worst[e], run_.out_dtype);
  }
}

void AttentionBounds::bound_lse(const AttentionRow& row, double squares) {
  if (!std::isfinite(row.lse)) return;
  const double base = run_.options.lse_base == reference::LogBase::k2 ? kLog2E : 1;
  const auto bound = [&](const Total& total, double steps, double slack) {
    const double factors = std::max(std::log1p(total.up), -std::log(total.down));
    const double moved = total.up < kHuge ? std::min(factors, total.most) : total.most;
    const double rounded = std::fabs(row.maximum) + std::fabs(std::log(row.denominator));
    const double error = moved + ((steps + 8) + 2 * slack * rounded) * unit_;
    return output_bound(row.lse, error * base + 2 * slack * unit_ * std::fabs(row.lse),
                        DType::kF32);
  };
  const auto n = static_cast<Index>(keys_.size());
  out_.lse_likely = bound(likely_, likely_steps(n, squares), 1);
  out_.lse_worst = bound(worst_, static_cast<double>(n), 2);
}

// May a rescaling exp(m' - m) be 0? Of the smallest normal number it is -87.3.
bool AttentionBounds::may_vanish(const AttentionRow& row) const {
  constexpr double kFar = 80;
  const auto far = [&](double logit) { return std::isfinite(logit) && row.maximum - logit > kFar; };
  return far(row.sink) || std::any_of(row.keys.begin(), row.keys.end(),
                                      [&](const auto& key) { return far(key.logit); });
}

std::uint8_t AttentionBounds::column_overflow(const AttentionRow& row, std::size_t e,
                                              bool vanishes) const {
  const double grown = 1 + static_cast<double>(keys_.size() + 8) * unit_;
  if (columns_.values[e] * grown < kPastF32) return Expectation::kNoOverflow;
  double positive = 0, negative = 0;
  for (const Key& key : keys_) {
    const double v = row.v[key.index * run_.width + static_cast<Index>(e)];
    (v > 0 ? positive : negative) += std::fabs(v);
  }
  const bool up = positive * grown >= kPastF32, down = negative * grown >= kPastF32;
  const double o = row.o[e];
  if (std::isnan(o)) return Expectation::kNoOverflow;
  if (std::isinf(o)) {
    return (o > 0 ? down : up) || vanishes ? Expectation::kNaN : Expectation::kNoOverflow;
  }
  std::uint8_t bits = Expectation::kNoOverflow;
  if (up) bits |= Expectation::kPlusInfinity;
  if (down) bits |= Expectation::kMinusInfinity;
  if ((up && down) || ((up || down) && vanishes)) bits |= Expectation::kNaN;
  return bits;
}

void AttentionBounds::set_overflow(const AttentionRow& row) {
  if (run_.dtype() == DType::kF64) return;
  const bool vanishes = may_vanish(row);
  for (std::size_t e = 0; e < row.o.size(); ++e) {
    out_.overflow[e] = column_overflow(row, e, vanishes);
  }
  if (!scores_overflow(run_, row, unit_)) return;
  for (std::uint8_t& bits : out_.overflow) bits |= Expectation::kNaN;
  out_.lse_overflow = Expectation::kNaN;
  if (run_.options.soft_cap) return;
  out_.lse_overflow |= Expectation::kPlusInfinity | Expectation::kMinusInfinity;
}

const RowBounds& AttentionBounds::operator()(const AttentionRow& row) {
  return (*this)(row, row.head / (run_.heads / run_.groups));
}

const RowBounds& AttentionBounds::operator()(const AttentionRow& row, Index kv_head) {
  kv_head_ = kv_head;
  out_.likely.assign(row.o.size(), 0.0);
  out_.worst.assign(row.o.size(), 0.0);
  out_.lse_likely = out_.lse_worst = 0;
  out_.overflow.assign(row.o.size(), Expectation::kNoOverflow);
  out_.lse_overflow = Expectation::kNoOverflow;
  columns_.clear(row.o.size());
  likely_ = worst_ = Total{};
  const bool softmax = row.kind == AttentionRow::Kind::kSoftmax;
  const bool uniform = row.kind == AttentionRow::Kind::kNoKey &&
                       run_.options.fully_masked == reference::FullyMasked::kUniform;
  if ((softmax && !std::isfinite(row.lse)) || !(softmax || uniform)) return out_;

  double squares = 0;
  if (softmax) {
    squares = errors_.squares(row);
    weigh(row);
  } else {
    squares = static_cast<double>(run_.keys) * static_cast<double>(run_.keys);
    weigh_uniformly();
  }
  sum_columns(row);
  bound_o(row, squares);
  bound_lse(row, squares);
  set_overflow(row);
  return out_;
}

}  // namespace kref
