// SPDX-License-Identifier: Apache-2.0
// How far an honest machine may be off in the gradients of attention.
//
// In one row, with u, w_j, d_j, steps() as in attention_bound.h and attention_logits.h, and dp_j,
// delta, ds_j as in kernels/reference_attention_vjp.h:
// - a weight, recomputed from lse: by the factor exp(d_j + L) - 1, L the error of lse:
//       L = log sum w exp(d) + (steps(n) + 8) u + 2 u (|m| + |log l| + |lse|);
//   by no more than what makes it 0 or 1, however little f32 knows of its logit;
// - dp_j: (steps(E) + 2) u sum |do||v_j|;
// - delta, as do . o or as sum w dp: the weights move it by
//       sum w_j (exp(d_j) - 1) |dp_j - delta| / sum w exp(-d)
//   and no farther than to one of the dp_j; weights that were recomputed from lse and do not add up
//   to 1 by another L |delta|; the sums by (steps(n) + steps(E) + 8) u sum_j w_j sum |do||v_j| and
//   weights exp(s - m - log l) by 2 u |log l| |delta|; an o that was stored in out_dtype by half
//   the distance of its neighbours times |do|;
// - ds_j = w_j (dp_j - delta + dlse): the error of the weight times |dp_j - delta + dlse|, and the
//   weight times those of dp_j and delta and 4 u (|dp_j| + |delta| + |dlse|). It is here that
//   numbers cancel: where one key has all the weight ds is 0 and its error is not;
// - the slope 1 - tanh^2 of a soft cap c: 2 slope c_j / c + 16 u, c_j the error of the score;
// - rounding: weights and ds of 16-bit inputs may be rounded to their type before a product (of
//   8-bit ones to bf16), as the published kernels for TPU do. Half the distance of neighbours.
// An element of a gradient is a sum of N such terms: it is off by the sum of their errors,
// (steps(N) + 8) u times that of their absolute values, numbers below the smallest normal one of
// f32 that count as 0, and half the distance of the output type's neighbours.
//
// What no row sees is 0, exactly. Where a score, a dp or a sum may leave the range of f32 an
// honest machine may give NaN or infinities: in every gradient that the row goes into.
#pragma once

#include <cstdint>
#include <vector>

#include "golden/attention_logits.h"
#include "golden/attention_vjp_op.h"
#include "golden/expectation.h"

namespace kref {

// A bound of both kinds.
struct GradientError {
  double likely = 0, worst = 0;
};

// The errors of one row.
struct RowGradientErrors {
  // Of the key of the same place in AttentionRow::keys.
  struct Key {
    GradientError weight;   // as dv multiplies it
    GradientError score;    // of the cotangent of the score: after the cap, before the scale
    GradientError rounded;  // the same as dq and dk multiply it
  };
  std::vector<Key> keys;
  GradientError sink;
  bool overflow = false;  // may numbers leave the range of f32?
};

class AttentionVjpBounds {
 public:
  // `run` must outlive it.
  explicit AttentionVjpBounds(const AttentionVjpRun& run);

  // Of a run of the same arrays, under other options.
  AttentionVjpBounds(const AttentionVjpRun& run, const AttentionVjpBounds& same);

  // Row and gradient as attention_vjp_rows hands them out for `run`, where the row reads that kv
  // head. Until the next call.
  const RowGradientErrors& operator()(const reference::AttentionRow& row,
                                      const reference::AttentionRowGradient& gradient,
                                      Index kv_head);

  // In which sums are taken.
  struct Accumulator {
    double unit, tiny;  // unit roundoff, smallest normal number
    bool wide;          // f64, not f32
  };
  Accumulator accumulator() const {
    return {logits_.unit(), logits_.tiny(), run_.primal.dtype() == DType::kF64};
  }

 private:
  // What the keys of a row have in common, of one kind of bound.
  struct Shared {
    double slack = 1;        // 2 in `worst`
    double lse = 0;          // L
    double delta = 0;        // error of delta
    double differences = 0;  // 4 u (|delta| + |dlse|)
    double log_denominator = 0;
  };

  Shared shared(const reference::AttentionRow& row, const reference::AttentionRowGradient& gradient,
                bool likely);
  double dp_steps(const reference::AttentionRow& row, Index key, bool likely) const;
  bool overflows(const reference::AttentionRow& row,
                 const reference::AttentionRowGradient& gradient) const;
  double half_narrow(double value) const;  // how far off a weight or ds is when it is rounded
  double slope_error(const reference::AttentionRow::Key& key, double score_error,
                     double slack) const;
  void key_errors(const reference::AttentionRow& row,
                  const reference::AttentionRowGradient& gradient, std::size_t j, const Shared& s,
                  bool likely);
  double sink_error(const reference::AttentionRow& row,
                    const reference::AttentionRowGradient& gradient, const Shared& s,
                    bool likely) const;

  const AttentionVjpRun& run_;
  LogitErrors logits_;
  DType narrow_;  // what weights and ds may be rounded to; F32: nothing
  std::vector<Repeats> ct_repeats_, v_repeats_;  // of the rows
  std::vector<double> largest_v_;                // of each batch and kv head
  Index kv_head_ = 0;                            // of the row
  const std::vector<LogitErrors::Error>* errors_ = nullptr;
  double weight_steps_ = 0;
  RowGradientErrors out_;
};

// The expectations of a validated run's outputs.
std::vector<Expectation> expect_attention_vjp(const Run& run);

}  // namespace kref
