// SPDX-License-Identifier: Apache-2.0
// The gradients of attention as the judge adds them up, row by row, with their bounds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "golden/attention_vjp_bound.h"

namespace kref {

// One gradient while rows add to it: vectors of `width` elements, each a sum of terms.
class GradientSum {
 public:
  GradientSum(std::string name, DType type, Index vectors, Index width);

  // Vector `at` += factor from, with the error of the factor; wild: it may be anything.
  void add(Index at, double factor, const GradientError& error, const double* from, bool wild);

  // steps(element): those of its sum, if fewer than its terms. scale: what terms are multiplied by
  // before or after they are added, 0: by nothing.
  Expectation expectation(const AttentionVjpBounds::Accumulator& accumulator, double scale,
                          const std::function<double(std::size_t)>& steps) const;

 private:
  std::string name_;
  DType type_;
  Index width_;
  std::vector<double> value_, magnitude_, likely_, worst_;
  std::vector<double> terms_;  // of each vector
  std::vector<std::uint8_t> wild_;
};

// The gradients that a run carries, or one of them.
class GradientSums {
 public:
  // `run` is that of `given`, or a wrong one of the same arrays; both must outlive it. output: ""
  // or the one that is wanted.
  GradientSums(const Run& given, const AttentionVjpRun& run, const std::string& output = "");

  // A row that reads that kv head, and its errors.
  void add(const reference::AttentionRow& row, const reference::AttentionRowGradient& gradient,
           const RowGradientErrors& errors, Index kv_head);

  std::vector<Expectation> expectations(const AttentionVjpBounds::Accumulator& accumulator) const;

 private:
  using Steps = std::function<double(std::size_t)>;
  // Those of the sums of ct.q, and of ct.k and ct.v: over the rows of `heads` (q or ct.o).
  Steps steps_over_keys() const;
  Steps steps_over_rows(const ArrayRef& heads) const;
  Blocks blocks(std::vector<std::string> axes, std::vector<Index> extents,
                const std::string& steps) const;
  Index column(std::size_t element, Index heads, Index rows, Index width) const;

  const AttentionVjpRun& run_;
  std::vector<Index> bias_shape_;
  std::optional<GradientSum> q_, k_, v_, bias_, sinks_;
};

}  // namespace kref
