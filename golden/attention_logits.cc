// SPDX-License-Identifier: Apache-2.0
#include "golden/attention_logits.h"

#include <algorithm>
#include <cmath>

#include "golden/matmul_sums.h"

namespace kref {

using reference::AttentionRow;

double likely_steps(Index n, double squares) {
  return std::min(static_cast<double>(n), 4 * std::sqrt(squares));
}

std::vector<Repeats> row_repeats(const ArrayRef& a) { return repeats(a, false, a.extents[3]); }

// [B, G, S, E] or, with G and E as one, [B, S, G, E].
std::vector<Repeats> column_repeats(const ArrayRef& a, reference::Layout layout) {
  if (layout == reference::Layout::kBHTD) return repeats(a, true, a.extents[2]);
  const Index shape[] = {a.extents[0], a.extents[1], a.extents[2] * a.extents[3]};
  return repeats(ArrayRef(a.dtype, shape, a.data), true, a.extents[1]);
}

LogitErrors::LogitErrors(const AttentionRun& run)
    : run_(run),
      // F64: the expected value is summed in f64 too, and errs as much as what it judges.
      unit_(run.dtype() == DType::kF64 ? 2 * unit_roundoff(DType::kF64)
                                       : unit_roundoff(DType::kF32)),
      tiny_(smallest_normal(run.dtype() == DType::kF64 ? DType::kF64 : DType::kF32)),
      repeats_(std::make_shared<const RowRepeats>(
          RowRepeats{row_repeats(run.in.q), row_repeats(run.in.k)})) {}

LogitErrors::LogitErrors(const AttentionRun& run, const LogitErrors& same)
    : run_(run), unit_(same.unit_), tiny_(same.tiny_), repeats_(same.repeats_) {}

double LogitErrors::score(const AttentionRow::Key& key, double steps, double slack) const {
  return std::isfinite(key.score) ? (steps + 4 * slack) * unit_ * key.magnitude : 0;
}

double LogitErrors::logit(const AttentionRow::Key& key, double maximum, double score,
                          double slack) const {
  if (std::isinf(key.logit)) return 0;  // a bias of -infinity: the weight is 0 whatever else
  double error = score;
  if (run_.options.soft_cap) {
    const double nearest = std::max(0.0, std::fabs(key.score) - error) / *run_.options.soft_cap;
    const double slope = 1 / std::cosh(nearest);
    error = error * slope * slope + 8 * slack * unit_ * std::fabs(key.logit);
  }
  return error + 2 * slack * unit_ * std::fabs(key.logit - maximum);
}

const std::vector<LogitErrors::Error>& LogitErrors::operator()(const AttentionRow& row,
                                                               Index kv_head) {
  const auto squares = [&](const std::vector<Repeats>& repeats, Index heads, Index h, Index rows,
                           Index r) {
    const Index at = reference::row_index(run_.options.layout, row.batch, heads, h, rows, r);
    return repeats[static_cast<std::size_t>(at)].squares[0];
  };
  const auto depth = static_cast<double>(run_.depth);
  const double q_squares = squares(repeats_->q, run_.heads, row.head, run_.queries, row.query);
  errors_.clear();
  for (const AttentionRow::Key& key : row.keys) {
    const double k_squares = squares(repeats_->k, run_.groups, kv_head, run_.keys, key.index);
    Error e;
    e.score_likely = score(key, likely_steps(run_.depth, std::min(q_squares, k_squares)), 1);
    e.score_worst = score(key, depth, 2);
    e.likely = logit(key, row.maximum, e.score_likely, 1);
    e.worst = logit(key, row.maximum, e.score_worst, 2);
    errors_.push_back(e);
  }
  return errors_;
}

LogitErrors::Error LogitErrors::sink(const AttentionRow& row) const {
  Error e;
  if (std::isinf(row.sink)) return e;
  e.likely = 2 * unit_ * std::fabs(row.sink - row.maximum);
  e.worst = 2 * e.likely;
  return e;
}

// Weights are alike when their logits are closer than the share of a magnitude that makes them so.
double LogitErrors::squares(const AttentionRow& row) {
  sorted_.clear();
  for (const AttentionRow::Key& key : row.keys) {
    if (std::isfinite(key.logit)) sorted_.push_back(key.logit);  // else a weight of 0, or no bound
  }
  std::sort(sorted_.begin(), sorted_.end());
  const double share = alike_share(run_.dtype(), static_cast<Index>(sorted_.size()));
  double squares = 0;
  for (std::size_t first = 0, next = 0; first < sorted_.size(); first = next) {
    while (next < sorted_.size() && sorted_[next] - sorted_[first] <= share) ++next;
    squares += static_cast<double>((next - first) * (next - first));
  }
  return squares;
}

}  // namespace kref
