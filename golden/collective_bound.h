// SPDX-License-Identifier: Apache-2.0
// How far an honest machine may be off in the sum of k floats of one type t over a group of n
// devices, or in their mean.
//
// Let S be the sum of the absolute values, u the unit of rounding of t, v the exact sum. Machines
// add in an order of their own; those that round each addition to t are off by at most
// (k - 1) u S (Jeannerod and Rump, 2013: no terms of higher order), those that add 16-bit and 8-bit
// floats in f32 and round once by e = (k - 1) 2^-24 S and half the distance of the neighbours of
// |v| + e in t. The bound is the larger of the two; of a single term it is 0. There is no likely
// bound beside this worst case: k is the size of a group of devices, and equal terms, which round
// alike, are common. Plus, each only where it occurs:
// - flush to zero, of f32, bf16 and f64: terms below the smallest normal number may count as zero,
//   and so may partial sums and the result;
// - a mean: division by n, or multiplication with the rounded 1 / n, before or after the addition;
// - a mean of integers: the exact sum is rounded to f32 first;
// - the rounding of the value itself to f64.
// Partial sums lie between -N and P, the sums of the negative and of the positive terms: where one
// of them passes the range of t, an honest machine may overflow.
#pragma once

#include "golden/expectation.h"

namespace kref {

// What is known of one sum.
class TermSums {
 public:
  void add(double term, DType type);
  // A sum that is known: of integers, which are added exactly.
  static TermSums exact(double value);

  long double value() const { return value_; }
  double positive() const { return positive_; }  // P and N, of the finite terms
  double negative() const { return negative_; }
  double magnitude() const { return positive_ + negative_; }
  double flushed() const { return flushed_; }  // sum of |t| over terms that may be flushed
  Index count() const { return count_; }

 private:
  long double value_ = 0;
  double positive_ = 0, negative_ = 0, flushed_ = 0;
  Index count_ = 0;
};

// What is done with a sum.
struct SumRule {
  DType type = DType::kF32;    // of the terms and of the result
  Index divisor = 1;           // n of a mean
  bool of_integers = false;    // the mean of integers: exact up to the division
  bool terms_divided = false;  // a machine may divide each term before it adds them
};

struct ExpectedSum {
  double value = 0, bound = 0;
  std::uint8_t overflow = Expectation::kNoOverflow;
};

ExpectedSum expected_sum(const TermSums& terms, const SumRule& rule);

}  // namespace kref
