// SPDX-License-Identifier: Apache-2.0
// How far an honest machine may be off in the logits of one row of attention: what the bounds of
// its outputs (attention_bound.h) and of its gradients (attention_vjp_bound.h) begin with.
//
// With u, s_j, m and A_j as in attention_bound.h, score j is off by at most c_j = (steps(D) + 4) u
// A_j, and logit j by
//     d_j = slope c_j + 8 u |s_j| [both under a soft cap only, else c_j] + 2 u |s_j - m|.
#pragma once

#include <memory>
#include <vector>

#include "golden/attention_op.h"
#include "golden/repeats.h"

namespace kref {

// The steps of a sum of n terms with `squares` as in repeats.h, see attention_bound.h.
double likely_steps(Index n, double squares);

// Of the rows of an array [.., T, D] or [.., T, H, D].
std::vector<Repeats> row_repeats(const ArrayRef& a);
// Along the rows, for each batch, head and element of an array in that layout.
std::vector<Repeats> column_repeats(const ArrayRef& a, reference::Layout layout);

class LogitErrors {
 public:
  struct Error {
    double score_likely = 0, score_worst = 0;  // before the soft cap
    double likely = 0, worst = 0;              // d_j
  };

  // `run` must outlive it.
  explicit LogitErrors(const AttentionRun& run);
  // Of a run of the same q and k, under other options.
  LogitErrors(const AttentionRun& run, const LogitErrors& same);

  // Of the keys of `row`, which reads that kv head, in their order; until the next call. `row` as
  // attention_rows hands it out for the run.
  const std::vector<Error>& operator()(const reference::AttentionRow& row, Index kv_head);
  const std::vector<Error>& operator()(const reference::AttentionRow& row) {
    return (*this)(row, row.head / (run_.heads / run_.groups));
  }
  // Of its sink.
  Error sink(const reference::AttentionRow& row) const;

  // How alike the weights of the row are, as Repeats has it.
  double squares(const reference::AttentionRow& row);

  double unit() const { return unit_; }  // unit roundoff of the accumulator
  double tiny() const { return tiny_; }  // its smallest normal number

 private:
  // slack: 1 in `likely`, 2 in `worst`.
  double score(const reference::AttentionRow::Key& key, double steps, double slack) const;
  double logit(const reference::AttentionRow::Key& key, double maximum, double score,
               double slack) const;

  const AttentionRun& run_;
  double unit_, tiny_;
  struct RowRepeats {
    std::vector<Repeats> q, k;
  };
  std::shared_ptr<const RowRepeats> repeats_;
  std::vector<Error> errors_;
  std::vector<double> sorted_;
};

}  // namespace kref
