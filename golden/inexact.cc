// SPDX-License-Identifier: Apache-2.0
#include "golden/inexact.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "golden/compared.h"
#include "golden/matmul_bound.h"
#include "golden/matmul_sums.h"
#include "golden/repeats.h"
#include "golden/rounding.h"

namespace kref {
namespace {

constexpr double kUnit = 0x1p-24;                         // of F32
constexpr double kExactIntegers = 0x1p24;                 // sums of integers up to here are exact
const double kRange = past_range(DType::kF32) - 0x1p103;  // numbers from here on round to infinity

std::size_t at_index(Index i) { return static_cast<std::size_t>(i); }

bool all_integers(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return v == std::rint(v); });
}
bool any(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return v != 0; });
}

Array matrix(Index rows, Index columns, const std::vector<double>& values) {
  Array out = Array::unwritten(DType::kF64, std::vector<Index>{rows, columns});
  std::copy(values.begin(), values.end(), out.mutable_elements<double>().begin());
  return out;
}

// Sums of products in f64, with those of their absolute values.
ProductSums sums(const Array& x, const Array& y) {
  constexpr double kMostByLoops = 1 << 22;
  const double products = static_cast<double>(x.extent(0)) * static_cast<double>(x.extent(1)) *
                          static_cast<double>(y.extent(1));
  if (products > kMostByLoops) return sums_by_tiles(x, y, {});
  ProductSums out;
  reference::Sums plain = reference::matmul(x, y);
  out.value = std::move(plain.value), out.magnitude = std::move(plain.magnitude);
  return out;
}

// The products of the absolute values.
std::vector<double> magnitudes(Index m, Index k, Index n, const std::vector<double>& x,
                               const std::vector<double>& y) {
  if (!any(x) || !any(y)) return std::vector<double>(at_index(m * n));
  return sums(matrix(m, k, x), matrix(k, n, y)).magnitude;
}

std::vector<double> squared(const std::vector<double>& values) {
  std::vector<double> out = values;
  for (double& v : out) v *= v;
  return out;
}

// The most inexact numbers of one value along the contraction: their errors are one error. Along
// rows of x, or columns of y.
double largest_group(Index outer, Index k, Index outer_stride, Index k_stride,
                     const std::vector<double>& value, const std::vector<double>& sigma) {
  Index most = 1;
  std::vector<double> alike;
  for (Index o = 0; o < outer; ++o) {
    alike.clear();
    for (Index i = 0; i < k; ++i) {
      const std::size_t at = at_index(o * outer_stride + i * k_stride);
      if (sigma[at] != 0) alike.push_back(std::fabs(value[at]));
    }
    std::sort(alike.begin(), alike.end());
    Index run = 1;
    for (std::size_t i = 1; i < alike.size(); ++i) {
      run = alike[i] == alike[i - 1] ? run + 1 : 1;
      most = std::max(most, run);
    }
  }
  return static_cast<double>(most);
}

// May a finite number have become infinite?
bool passes_range(const InexactNumber& x) {
  return std::isfinite(x.value) && !(std::fabs(x.value) + x.worst < kRange);
}

// As F32, whose neighbours decide what rounds alike.
std::vector<Repeats> repeats_of(Index rows, Index columns, const std::vector<double>& values,
                                bool along_columns, Index k) {
  Array narrow = Array::unwritten(DType::kF32, std::vector<Index>{rows, columns});
  std::transform(values.begin(), values.end(), narrow.mutable_elements<float>().begin(),
                 [](double v) { return static_cast<float>(v); });
  return repeats(narrow, along_columns, k);
}

}  // namespace

double InexactNumber::likely() const { return std::min(worst, bias + kLambda * sigma); }

Inexact::Inexact(Index rows, Index columns)
    : rows_(rows),
      columns_(columns),
      value_(at_index(rows * columns)),
      sigma_(value_.size()),
      bias_(value_.size()),
      worst_(value_.size()),
      overflow_(value_.size()) {}

Inexact::Inexact(const ArrayRef& matrix) : Inexact(matrix.extents[0], matrix.extents[1]) {
  value_ = reference::values(matrix);
  const double limit = flush_limit(matrix.dtype);
  for (std::size_t i = 0; i < value_.size(); ++i) {
    if (std::fabs(value_[i]) < limit) bias_[i] = worst_[i] = std::fabs(value_[i]);
  }
}

InexactNumber Inexact::at(Index i) const {
  const std::size_t e = at_index(i);
  return {value_[e], sigma_[e], bias_[e], worst_[e], overflow_[e] != 0};
}

void Inexact::set(Index i, const InexactNumber& number) {
  const std::size_t e = at_index(i);
  value_[e] = number.value, sigma_[e] = number.sigma, bias_[e] = number.bias;
  worst_[e] = number.worst;
  overflow_[e] = number.overflow ? 1 : 0;
}

Inexact Inexact::transposed() const {
  Inexact out(columns_, rows_);
  for (Index i = 0; i < rows_; ++i) {
    for (Index j = 0; j < columns_; ++j) out.set(j * rows_ + i, at(i * columns_ + j));
  }
  return out;
}

Inexact product(const Inexact& x, const Inexact& y, Index more) {
  const Index m = x.rows_, k = x.columns_, n = y.columns_;
  KREF_DCHECK(y.rows_ == k);
  Inexact out(m, n);
  ProductSums s = sums(matrix(m, k, x.value_), matrix(k, n, y.value_));
  out.value_ = std::move(s.value);
  const std::vector<double>& magnitude = s.magnitude;
  const auto propagated = [&](const std::vector<double>& of_x, const std::vector<double>& of_y) {
    std::vector<double> sum = magnitudes(m, k, n, of_x, y.value_);
    const std::vector<double> other = magnitudes(m, k, n, x.value_, of_y);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    return sum;
  };
  out.bias_ = propagated(x.bias_, y.bias_);
  out.worst_ = propagated(x.worst_, y.worst_);
  const std::vector<double> both = magnitudes(m, k, n, x.worst_, y.worst_);
  // Squares of the errors of the factors, by groups of those that are one error.
  const double x_group = largest_group(m, k, k, 1, x.value_, x.sigma_);
  const double y_group = largest_group(n, k, 1, n, y.value_, y.sigma_);
  const std::vector<double> x_squares = magnitudes(m, k, n, squared(x.sigma_), squared(y.value_));
  const std::vector<double> y_squares = magnitudes(m, k, n, squared(x.value_), squared(y.sigma_));
  const std::vector<Repeats> rows = repeats_of(m, k, x.value_, false, k);
  const std::vector<Repeats> columns = repeats_of(k, n, y.value_, true, k);
  const bool integers =
      all_integers(x.value_) && all_integers(y.value_) && !any(x.worst_) && !any(y.worst_);
  const auto steps = static_cast<double>(k + more);
  const double tiny = 2 * steps * flush_limit(DType::kF32);
  std::vector<std::uint8_t> x_over(at_index(m)), y_over(at_index(n));
  for (Index i = 0; i < m * k; ++i)
    x_over[at_index(i / std::max<Index>(k, 1))] |= x.overflow_[at_index(i)];
  for (Index i = 0; i < k * n; ++i)
    y_over[at_index(i % std::max<Index>(n, 1))] |= y.overflow_[at_index(i)];
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      const std::size_t e = at_index(i * n + j);
      const double size = std::min(magnitude[e] + out.worst_[e], kRange);
      double spread = x_group * x_squares[e] + y_group * y_squares[e];
      if (!(integers && magnitude[e] <= kExactIntegers)) {
        const double squares =
            std::min(rows[at_index(i)].squares[0], columns[at_index(j)].squares[0]) +
            static_cast<double>(more);
        spread += squares * kUnit * kUnit * size * size;
        out.worst_[e] += steps * kUnit * size + both[e] + std::min(tiny, size);
        out.bias_[e] += std::min(tiny, size) + steps * 0x1p-52 * size;
      }
      out.sigma_[e] = std::sqrt(spread);
      out.overflow_[e] = x_over[at_index(i)] | y_over[at_index(j)] |
                         (std::isfinite(magnitude[e]) && size >= kRange ? 1 : 0);
    }
  }
  return out;
}

Inexact sum(const Inexact& x, const Inexact& y) {
  Inexact out(x.rows_, x.columns_);
  for (Index i = 0; i < x.size(); ++i) {
    const InexactNumber a = x.at(i), b = y.at(i);
    InexactNumber s{a.value + b.value, std::hypot(a.sigma, b.sigma), a.bias + b.bias,
                    a.worst + b.worst, a.overflow || b.overflow};
    const bool integers = a.exact() && b.exact() && a.value == std::rint(a.value) &&
                          b.value == std::rint(b.value) &&
                          std::fabs(a.value) + std::fabs(b.value) <= kExactIntegers;
    if (!integers) {
      const double step = kUnit * (std::fabs(s.value) + s.worst);
      s.sigma = std::hypot(s.sigma, step);
      s.worst += step;
    }
    s.overflow = s.overflow || passes_range(s);
    out.set(i, s);
  }
  return out;
}

InexactNumber mapped(const InexactNumber& x, double value, double likely_slope,
                     double worst_slope) {
  return {value, x.sigma * likely_slope, x.bias * likely_slope, x.worst * worst_slope, x.overflow};
}

InexactNumber times(const InexactNumber& x, const InexactNumber& y) {
  const double a = std::fabs(x.value), b = std::fabs(y.value);
  InexactNumber out{x.value * y.value, a * y.sigma + b * x.sigma, a * y.bias + b * x.bias,
                    a * y.worst + b * x.worst + x.worst * y.worst, x.overflow || y.overflow};
  const bool representable = static_cast<double>(static_cast<float>(out.value)) == out.value;
  if (x.exact() && y.exact() && representable) return out;
  const double size = std::fabs(out.value) + out.worst;
  double step = kUnit * size;
  if (size > 0 && size < flush_limit(DType::kF32)) step = size;
  out.bias += step, out.worst += step;
  out.overflow = out.overflow || passes_range(out);
  return out;
}

InexactNumber rounded(const InexactNumber& x, DType type) {
  if (unit_roundoff(type) <= kUnit || !std::isfinite(x.value)) return x;
  const auto round = [&](double v) {
    return with_dtype(type, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        return v;
      } else {
        return static_cast<double>(static_cast<T>(v));
      }
    });
  };
  InexactNumber out;
  out.value = round(x.value);
  out.overflow = x.overflow;
  const auto reach = [&](double error) {
    const double low = round(x.value - error), high = round(x.value + error);
    double most = std::max(std::fabs(high - out.value), std::fabs(out.value - low));
    if (std::fabs(x.value) - error < flush_limit(type)) most = std::max(most, std::fabs(out.value));
    return most;
  };
  out.worst = reach(x.worst);
  out.sigma = reach(x.likely());
  if (!std::isfinite(out.worst) || !std::isfinite(out.value)) {
    out.overflow = true;
    out.worst = out.sigma = 0;
  }
  return out;
}

Expectation expectation_of(const char* output, const Inexact& x, DType type) {
  Expectation e;
  e.output = output;
  const auto size = at_index(x.size());
  e.value.resize(size), e.likely.resize(size), e.worst.resize(size);
  const bool rounds = unit_roundoff(type) > kUnit;
  const double limit = flush_limit(type);
  const double range = rounds ? past_range(type) : kRange;
  for (Index i = 0; i < x.size(); ++i) {
    const InexactNumber n = x.at(i);
    const std::size_t at = at_index(i);
    e.value[at] = n.value;
    const auto bound = [&](double error) {
      if (!std::isfinite(n.value) || !std::isfinite(error)) return 0.0;
      const double v = std::fabs(n.value);
      double out = error;
      // A number that the type holds and no error moves stays as it is.
      const bool held = error == 0 && rounded({n.value}, type).value == n.value;
      if (rounds && !held) out += half_spacing(type, v + error);
      if (v - error < limit) out = std::max(out, v);
      return out;
    };
    e.likely[at] = bound(n.likely()), e.worst[at] = bound(n.worst);
    const double size_of_it = std::fabs(n.value) + n.worst;
    if (n.overflow || (std::isfinite(n.value) && !(size_of_it < range))) {
      if (e.overflow.empty()) e.overflow.assign(size, Expectation::kNoOverflow);
      e.overflow[at] = Expectation::kPlusInfinity | Expectation::kMinusInfinity | Expectation::kNaN;
    }
  }
  return e;
}

}  // namespace kref
