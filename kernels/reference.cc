// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kref::reference {
namespace {

// Where element i of the row-major order stands.
Index offset_of(const ArrayRef& x, Index i) {
  Index offset = 0;
  for (std::size_t d = x.rank; d-- > 0;) {
    offset += i % x.extents[d] * x.strides[d];
    i /= x.extents[d];
  }
  return offset;
}

double element(const ArrayRef& x, Index i) {
  const Index at = offset_of(x, i);
  return with_dtype(
      x.dtype, [&]<class T>() { return static_cast<double>(static_cast<const T*>(x.data)[at]); });
}

Index last_extent(const char* what, const ArrayRef& x) {
  KREF_CHECK(x.rank >= 1, "reference::", what, ": x is ", to_string(x),
             ", expected rank 1 or more");
  return x.extents[x.rank - 1];
}

// The sizes of a product and how its operands are stored.
struct Product {
  Index batches = 1, m = 0, n = 0, k = 0;
  bool shared_y = false, trans_x = false, trans_y = false;

  std::size_t x_at(Index b, Index i, Index t) const {
    return b * m * k + (trans_x ? t * m + i : i * k + t);
  }
  std::size_t y_at(Index b, Index t, Index j) const {
    return static_cast<std::size_t>((shared_y ? 0 : b * k * n) + (trans_y ? j * k + t : t * n + j));
  }
};

Product product_of(const ArrayRef& x, const ArrayRef& y, const MatmulOptions& options) {
  const bool fits = x.rank >= 2 && (y.rank == x.rank || y.rank == 2);
  KREF_CHECK(fits, "reference::matmul: x is ", to_string(x), ", y is ", to_string(y),
             ", expected [*B, M, K] and [*B, K, N] or [K, N]");
  KREF_CHECK(x.dtype == y.dtype, "reference::matmul: x is ", to_string(x), ", y is ", to_string(y),
             ", expected one element type");
  Product p;
  p.trans_x = options.trans_x, p.trans_y = options.trans_y;
  p.shared_y = y.rank != x.rank;
  for (std::size_t d = 0; d + 2 < x.rank; ++d) {
    p.batches *= x.extents[d];
    KREF_CHECK(p.shared_y || x.extents[d] == y.extents[d], "reference::matmul: x is ", to_string(x),
               ", y is ", to_string(y), ", expected equal batch dimensions");
  }
  p.m = x.extents[x.rank - (p.trans_x ? 1 : 2)];
  p.k = x.extents[x.rank - (p.trans_x ? 2 : 1)];
  p.n = y.extents[y.rank - (p.trans_y ? 2 : 1)];
  const Index depth = y.extents[y.rank - (p.trans_y ? 1 : 2)];
  KREF_CHECK(depth == p.k, "reference::matmul: x is ", to_string(x), ", y is ", to_string(y),
             ": x contracts ", p.k, " elements, y ", depth);
  return p;
}

// The operand as the arrays of its parts; the product of x and y is the sum of all products of part
// e of x with part f of y where e + f is less than the number of parts.
std::vector<std::vector<double>> split(const ArrayRef& x, Parts parts) {
  std::vector<double> rest = values(x);
  if (parts == Parts::kAll) return {rest};
  const int count = parts == Parts::kBF16 ? 1 : parts == Parts::kBF16x3 ? 2 : 3;
  std::vector<std::vector<double>> out;
  for (int e = 0; e < count; ++e) {
    out.push_back(rest);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      out.back()[i] = static_cast<double>(bf16(rest[i]));
      rest[i] -= out.back()[i];  // exact: what is left are the lower bits of an f32
    }
  }
  return out;
}

// Calls f with the number of the first element of each row of the last dimension.
template <class F>
void for_each_row(const ArrayRef& x, Index cols, F&& f) {
  Index rows = 1;
  for (std::size_t d = 0; d + 1 < x.rank; ++d) rows *= x.extents[d];
  for (Index r = 0; r < rows; ++r) f(r * cols);
}

// The larger of a and b by sign * value; NaN wins, the zeros are told apart.
double further(double a, double b, double sign) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a * sign) ? b : a;
  return a * sign > b * sign ? a : b;
}

std::vector<double> row_extreme(const char* what, const ArrayRef& x, double sign) {
  const Index cols = last_extent(what, x);
  std::vector<double> out;
  for_each_row(x, cols, [&](Index first) {
    KREF_CHECK(cols > 0, "reference::", what, ": x is ", to_string(x),
               ", an empty row has no extreme element");
    double best = element(x, first);
    for (Index j = 1; j < cols; ++j) best = further(best, element(x, first + j), sign);
    out.push_back(best);
  });
  return out;
}

// Element i of x as T. What is exact in f64 goes through it; a 64-bit integer is not.
template <class T>
double cast_element(const ArrayRef& x, Index i, bool saturate) {
  constexpr bool kNarrow = !std::is_arithmetic_v<T>;
  if (x.dtype == DType::kI64 && !(kNarrow && saturate)) {
    const auto v = static_cast<const std::int64_t*>(x.data)[offset_of(x, i)];
    return static_cast<double>(static_cast<T>(v));
  }
  const double v = element(x, i);
  if constexpr (std::is_same_v<T, bool>) {
    return v != 0 ? 1 : 0;
  } else if constexpr (std::is_integral_v<T>) {
    if (!is_float(x.dtype))
      return static_cast<double>(static_cast<T>(static_cast<std::int64_t>(v)));
    if (std::isnan(v)) return 0;
    const double lo = static_cast<double>(std::numeric_limits<T>::min());
    const double hi = static_cast<double>(std::numeric_limits<T>::max());
    return std::clamp(std::trunc(v), lo, hi) + 0.0;  // not -0
  } else if constexpr (!kNarrow) {
    return static_cast<double>(static_cast<T>(v));
  } else {
    return static_cast<double>(saturate ? T::saturated(v) : T(v));
  }
}

}  // namespace

Sums matmul(const ArrayRef& x, const ArrayRef& y, const MatmulOptions& options) {
  KREF_CHECK(is_float(x.dtype), "reference::matmul: x is ", to_string(x),
             ", expected a float type");
  KREF_CHECK(options.parts == Parts::kAll || x.dtype == DType::kF32, "reference::matmul: x is ",
             to_string(x), ", bf16 parts are defined for F32");
  const Product p = product_of(x, y, options);
  const auto xs = split(x, options.parts), ys = split(y, options.parts);
  Sums sums;
  for (Index b = 0; b < p.batches; ++b) {
    for (Index i = 0; i < p.m; ++i) {
      for (Index j = 0; j < p.n; ++j) {
        double value = 0, magnitude = 0;
        for (Index t = 0; t < p.k; ++t) {
          for (std::size_t e = 0; e < xs.size(); ++e) {
            for (std::size_t f = 0; e + f < xs.size(); ++f) {
              const double product = xs[e][p.x_at(b, i, t)] * ys[f][p.y_at(b, t, j)];
              value += product;
              magnitude += std::abs(product);
            }
          }
        }
        sums.value.push_back(value);
        sums.magnitude.push_back(magnitude);
      }
    }
  }
  return sums;
}

std::vector<std::int32_t> matmul_int(const ArrayRef& x, const ArrayRef& y,
                                     const MatmulOptions& options) {
  KREF_CHECK(x.dtype == DType::kI8 || x.dtype == DType::kU8, "reference::matmul_int: x is ",
             to_string(x), ", expected I8 or U8");
  KREF_CHECK(options.parts == Parts::kAll, "reference::matmul_int: bf16 parts are defined for F32");
  const Product p = product_of(x, y, options);
  const std::vector<double> xs = values(x), ys = values(y);
  std::vector<std::int32_t> out;
  for (Index b = 0; b < p.batches; ++b) {
    for (Index i = 0; i < p.m; ++i) {
      for (Index j = 0; j < p.n; ++j) {
        std::int64_t sum = 0;
        for (Index t = 0; t < p.k; ++t) {
          sum +=
              static_cast<std::int64_t>(element(x, p.x_at(b, i, t)) * element(y, p.y_at(b, t, j)));
        }
        out.push_back(static_cast<std::int32_t>(sum));
      }
    }
  }
  return out;
}

std::vector<double> values(const ArrayRef& x) {
  std::vector<double> out;
  for (Index i = 0; i < x.size(); ++i) out.push_back(element(x, i));
  return out;
}

Sums row_sum(const ArrayRef& x) {
  const Index cols = last_extent("row_sum", x);
  Sums sums;
  for_each_row(x, cols, [&](Index first) {
    double value = 0, magnitude = 0;
    for (Index j = 0; j < cols; ++j) {
      value += element(x, first + j);
      magnitude += std::abs(element(x, first + j));
    }
    sums.value.push_back(value);
    sums.magnitude.push_back(magnitude);
  });
  return sums;
}

std::vector<double> row_max(const ArrayRef& x) { return row_extreme("row_max", x, 1); }
std::vector<double> row_min(const ArrayRef& x) { return row_extreme("row_min", x, -1); }

std::vector<double> exp(const ArrayRef& x) {
  std::vector<double> out = values(x);
  for (double& v : out) v = std::exp(v);
  return out;
}

std::vector<double> softmax(const ArrayRef& x) {
  const Index cols = last_extent("softmax", x);
  std::vector<double> out = values(x);
  if (out.empty()) return out;
  const std::vector<double> max = row_max(x);
  for_each_row(x, cols, [&](Index first) {
    double sum = 0;
    for (Index j = first; j < first + cols; ++j) {
      const auto at = static_cast<std::size_t>(j);
      out[at] = std::exp(out[at] - max[static_cast<std::size_t>(first / cols)]);
      sum += out[at];
    }
    for (Index j = first; j < first + cols; ++j) out[static_cast<std::size_t>(j)] /= sum;
  });
  return out;
}

std::vector<double> cast(const ArrayRef& x, DType type, bool saturate) {
  std::vector<double> out;
  for (Index i = 0; i < x.size(); ++i) {
    with_dtype(type, [&]<class T>() { out.push_back(cast_element<T>(x, i, saturate)); });
  }
  return out;
}

}  // namespace kref::reference
