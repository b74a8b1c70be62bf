// SPDX-License-Identifier: Apache-2.0
// Inexact: matrices of numbers that a chain of operations computes, with how far an honest machine
// may be off in each: what the bounds of operations of several steps are made of.
//
// Beside its exact value (of the real numbers, but where the operation itself rounds) each element
// has three errors:
// - worst: what no honest machine passes;
// - bias: what errors of one sign may add up to: those of functions like exp, numbers flushed to 0;
// - sigma: the scale of the rest, errors of mean zero given earlier ones (roundings of sums in any
//   order; a rounding to a narrow type that may fall to either side): sums of them exceed kLambda
//   times the root of the sum of squares with negligible probability (matmul_bound.h).
// likely() is the least of worst and bias + kLambda sigma.
#pragma once

#include <cstdint>
#include <vector>

#include "dsl/array.h"
#include "golden/expectation.h"

namespace kref {

// One number.
struct InexactNumber {
  double value = 0, sigma = 0, bias = 0, worst = 0;
  bool overflow = false;  // a machine may have left the range of F32 on the way

  double likely() const;
  bool exact() const { return worst == 0; }
};

class Inexact {
 public:
  Inexact() = default;
  Inexact(Index rows, Index columns);
  // The elements of a matrix; below the smallest normal number they may count as 0.
  explicit Inexact(const ArrayRef& matrix);

  Index rows() const { return rows_; }
  Index columns() const { return columns_; }
  Index size() const { return rows_ * columns_; }
  InexactNumber at(Index i) const;
  void set(Index i, const InexactNumber& number);
  Inexact transposed() const;

  // The product x y as F32 sums, in any order, over the columns of x;
  // `more` counts the other terms that are added to the same sums.
  friend Inexact product(const Inexact& x, const Inexact& y, Index more);
  friend Inexact sum(const Inexact& x, const Inexact& y);

 private:
  Index rows_ = 0, columns_ = 0;
  std::vector<double> value_, sigma_, bias_, worst_;
  std::vector<std::uint8_t> overflow_;
};

// A function of errors: f near x has slopes of at most `slope` where x may be; f(x) is `value`.
InexactNumber mapped(const InexactNumber& x, double value, double likely_slope, double worst_slope);
// x y, rounded to F32 once.
InexactNumber times(const InexactNumber& x, const InexactNumber& y);
// Rounded to a type no wider than F32: the value too, but of F32, where machines round once as they
// compute. Where all numbers within the error round alike the machine's is exact.
InexactNumber rounded(const InexactNumber& x, DType type);

// The expectation of an output of element type `type` that holds x, rounded once.
Expectation expectation_of(const char* output, const Inexact& x, DType type);

}  // namespace kref
