// SPDX-License-Identifier: Apache-2.0
#include "golden/collective_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "golden/compared.h"
#include "golden/matmul_sums.h"
#include "golden/rounding.h"

namespace kref {
namespace {

constexpr double kHalfUlpOfF32 = 0x1p-24;

bool narrower_than_f32(DType type) { return unit_roundoff(type) > kHalfUlpOfF32; }

// Numbers from here on round to an infinity (e4m3fn: to NaN).
double overflow_limit(DType type) {
  if (type == DType::kF64) return std::numeric_limits<double>::max();
  const double past = past_range(type);
  return past - half_spacing(type, 0.75 * past);
}

std::uint8_t overflow_of(const TermSums& terms, DType type, double error) {
  const double limit = overflow_limit(type);
  const bool up = terms.positive() + error >= limit, down = terms.negative() + error >= limit;
  const auto value = static_cast<double>(terms.value());
  const std::uint8_t bits = overflow_bits(value, up, down);
  // e4m3fn has NaN in place of both infinities.
  return bits != 0 && type == DType::kF8E4M3 ? bits | Expectation::kNaN : bits;
}

// Of the sum itself.
double sum_bound(const TermSums& terms, DType type) {
  const double additions = static_cast<double>(terms.count() - 1);
  if (additions <= 0) return 0;
  // A result that is finite came of partial sums within the range.
  const double magnitude = std::min(terms.magnitude(), overflow_limit(type));
  double bound = additions * unit_roundoff(type) * magnitude;
  if (narrower_than_f32(type)) {
    const double wide = additions * kHalfUlpOfF32 * magnitude;
    const double v = std::min(std::fabs(static_cast<double>(terms.value())), magnitude);
    bound = std::max(bound, wide + half_spacing(type, v + wide));
  }
  const double tiny = additions * flush_limit(type);
  bound += std::min(terms.flushed() + tiny, magnitude);
  return bound + 0x1p-52 * magnitude;  // the value's own rounding, and that of this bound
}

// Of the mean, given the bound of the sum.
double mean_bound(const TermSums& terms, const SumRule& rule, double sum) {
  const auto n = static_cast<double>(rule.divisor);
  const double v = std::fabs(static_cast<double>(terms.value()));
  const double unit = unit_roundoff(rule.type);
  if (rule.of_integers) sum += half_spacing(rule.type, v);
  if (rule.divisor == 1) return sum;
  const bool exact_reciprocal = (rule.divisor & (rule.divisor - 1)) == 0;
  double bound = sum / n;
  // What is rounded: the mean, or, term by term, numbers whose sizes add up to S / n.
  double size = (v + sum) / n;
  if (rule.terms_divided) size = std::max(size, (terms.magnitude() + sum) / n);
  if (!exact_reciprocal) bound += size * unit;
  if (narrower_than_f32(rule.type)) bound += size * 2 * kHalfUlpOfF32;
  if (rule.terms_divided) {
    // Relative, but for terms that become subnormal.
    bound += size * unit + static_cast<double>(terms.count()) * half_spacing(rule.type, 1e-300);
  }
  return bound + half_spacing(rule.type, size * (1 + 2 * unit));
}

}  // namespace

void TermSums::add(double term, DType type) {
  value_ += term;
  ++count_;
  if (!std::isfinite(term)) return;
  const double size = std::fabs(term);
  (term > 0 ? positive_ : negative_) += size;
  if (size < flush_limit(type)) flushed_ += size;
}

TermSums TermSums::exact(double value) {
  TermSums out;
  out.value_ = value;
  (value > 0 ? out.positive_ : out.negative_) = std::fabs(value);
  out.count_ = 1;
  return out;
}

ExpectedSum expected_sum(const TermSums& terms, const SumRule& rule) {
  ExpectedSum out;
  out.value = static_cast<double>(terms.value() / static_cast<long double>(rule.divisor));
  const double sum = sum_bound(terms, rule.type);
  if (terms.count() > 1) out.overflow = overflow_of(terms, rule.type, sum);
  if (!std::isfinite(out.value)) return out;
  out.bound = mean_bound(terms, rule, sum);
  // A result below the smallest normal number may be zero; copies are not computed with.
  const bool computed = terms.count() > 1 || rule.divisor > 1;
  const double v = std::fabs(out.value);
  if (computed && v - out.bound < flush_limit(rule.type)) out.bound = std::max(out.bound, v);
  return out;
}

}  // namespace kref
