// SPDX-License-Identifier: Apache-2.0
// How far an honest machine may be off in one row of attention.
//
// Let u be the unit roundoff of the accumulator (f32; f64 for F64 inputs), s_j the logits, m their
// maximum, w_j the weights exp(s_j - m) / l of the n keys the row sees, o = sum w_j v_j. Let
// A_j = |scale| sum |q||k_j| + |bias_j|: what the rounding errors of a score are proportional to.
//
// A logit is off by at most
//     d_j = c ((steps(D) + 4) u A_j) + 8 u |s_j| [under a soft cap only] + 2 u |s_j - m|:
// the sum over D, then scale and bias; what the cap's slope c = 1 - tanh^2 lets through and its own
// error; and the argument of exp, in any base. Weights that are off by factors exp(+-d_j) move o by
// at most
//     sum w_j (exp(d_j) - 1) |v_j - o| / sum w_j exp(-d_j),
// because sum w_j (v_j - o) = 0; and never by more than the largest |v_j - o|, since o stays a mean
// of the values. A sink is one more key whose value is 0. Errors that all logits share (in m, in a
// rescaling of numerator and denominator) cancel.
//
// To it are added
// - (steps(n) + 8) u sum w|v| + steps(n) u |o|: both sums over keys, exp, the division, rescaling;
// - p_dtype: its unit roundoff times sum w|v|, and half its subnormal spacing times sum |v|;
// - numbers below the smallest normal one of f32 that count as 0 (TPU and XLA flush);
// - half the distance of the output type's neighbours at |o| + all of this.
// lse is off by log(sum w_j exp(d_j)) or -log(sum w_j exp(-d_j)), neither more than the largest
// d_j, the sum's own (steps(n) + 8) u, and the roundings of m, log l, their sum and the change of
// base. Bounds are always finite.
//
// steps(n) is n in `worst`. In `likely` it is min(n, 4 sqrt(q)) with q as in matmul_bound.h: n, or
// more where terms are so alike that they may round alike (repeats.h). 4 sqrt(n) is nine standard
// deviations of the error of a growing sum (each rounding uniform), and 6.7 of one whose first term
// outweighs the others, the worst order there is.
//
// Overflow of f32, each output by itself:
// - a score: where |scale| sum |q||k_j| + |bias_j|, or the sum over D before it is scaled, passes
//   the range, some order of the sum gives an infinity or NaN. The row's softmax may then be NaN in
//   all of o; lse may be NaN or, without a soft cap, infinite;
// - an element of o: a kernel keeps sum exp(s_j - m') v_j for the maximum m' so far, which may come
//   to the sum of the positive v_j, and of the negative ones. Where one of them passes the range
//   that element may become infinite on that side; NaN where both do, and where a later maximum
//   lies so far above that exp(m' - m) is 0. Other elements of the row, and lse, are as ever.
//
// Issue 5's first form, (2 sqrt(D) u max A + (sqrt(n) + 8) u) sum w|v|, is the same bound with
// every A_j as large as the largest and |v_j - o| replaced by |v_j|: the form here is tight where a
// row sees few keys or its large scores have no weight, which is where wrong masks hide.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "golden/attention_logits.h"
#include "golden/expectation.h"

namespace kref {

// The bounds of one row.
struct RowBounds {
  std::vector<double> likely, worst;  // of o, E of them; 0 where o is not finite or exactly 0
  double lse_likely = 0, lse_worst = 0;
  // Expectation::Overflow bits, of o and of lse.
  std::vector<std::uint8_t> overflow;
  std::uint8_t lse_overflow = 0;
};

class AttentionBounds {
 public:
  // `run` must outlive it.
  explicit AttentionBounds(const AttentionRun& run);
  // Of a run of the arrays q, k and v that `same` is of, under other options.
  AttentionBounds(const AttentionRun& run, const AttentionBounds& same);

  // `row` as attention_rows hands it out for `run` without p_dtype.
  const RowBounds& operator()(const reference::AttentionRow& row);
  // The same where the row reads that kv head, right or wrong.
  const RowBounds& operator()(const reference::AttentionRow& row, Index kv_head);

 private:
  struct Key {
    Index index;
    double weight, likely, worst;  // w_j, w_j (exp(d_j) - 1) of both kinds
  };
  // Of one kind of bound.
  struct Total {
    double up = 0;    // sum w (exp(d) - 1)
    double down = 0;  // sum w exp(-d)
    double most = 0;  // the largest d
  };
  // Sums over the keys, one entry an element of o: w |v|, |v|, the largest |v - o|, and |v - o|
  // times the factors of both kinds.
  struct Columns {
    std::vector<double> magnitude, values, spread, likely, worst;
    void clear(std::size_t width);
  };

  void weigh(const reference::AttentionRow& row);
  void weigh_uniformly();
  void sum_columns(const reference::AttentionRow& row);
  void bound_o(const reference::AttentionRow& row, double squares);
  void bound_lse(const reference::AttentionRow& row, double squares);
  bool may_vanish(const reference::AttentionRow& row) const;
  std::uint8_t column_overflow(const reference::AttentionRow& row, std::size_t e,
                               bool vanishes) const;
  void set_overflow(const reference::AttentionRow& row);

  const AttentionRun& run_;
  LogitErrors errors_;
  double unit_, tiny_;  // unit roundoff of the accumulator, its smallest normal number
  std::shared_ptr<const std::vector<Repeats>> v_repeats_;  // of the columns
  Index kv_head_ = 0;                                      // of the row
  std::vector<Key> keys_;
  Columns columns_;
  Total likely_, worst_;
  double sink_ = 0;  // weight of the sink
  RowBounds out_;
};

// The bound on an output of that type, given that on the value before its rounding.
double output_bound(double value, double error, DType type);
// May a score of the row leave the range of f32?
bool scores_overflow(const AttentionRun& run, const reference::AttentionRow& row, double unit);
// What rounds to infinity in f32.
inline constexpr double kPastF32 = 0x1.ffffffp127;

// The blocks along an axis as a report names them: "ik=0..3"; "" when there is none.
std::string attention_steps(const char* axis, Index size, Index block);

// The expectations of a validated run's outputs.
std::vector<Expectation> expect_attention(const Run& run);

}  // namespace kref
