// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kref {

ProductSizes::ProductSizes(const ArrayRef& x, const ArrayRef& y,
                           const reference::MatmulOptions& options)
    : MatmulSizes(matmul_sizes(x, y, options.trans_x, options.trans_y)) {
  for (std::size_t d = 0; d + 2 < x.rank; ++d) batches *= x.extents[d];
}

reference::Parts parts_for(Precision precision) {
  switch (precision) {
    case Precision::kBF16:
      return reference::Parts::kBF16;
    case Precision::kBF16x3:
      return reference::Parts::kBF16x3;
    case Precision::kBF16x6:
      return reference::Parts::kBF16x6;
    case Precision::kF32:
      break;
  }
  return reference::Parts::kAll;
}

int part_count(reference::Parts parts) {
  switch (parts) {
    case reference::Parts::kBF16x3:
      return 2;
    case reference::Parts::kBF16x6:
      return 3;
    default:
      return 1;
  }
}

int products_per_pair(reference::Parts parts) {
  const int count = part_count(parts);
  return count * (count + 1) / 2;
}

int parts_of(double v, reference::Parts parts, double (&out)[3]) {
  if (parts == reference::Parts::kAll) {
    out[0] = v;
    return 1;
  }
  const int count = part_count(parts);
  // In f32, where an element comes from and where its parts are exact.
  auto rest = static_cast<float>(v);
  for (int e = 0; e < count; ++e) {
    const float part = static_cast<float>(bf16(rest));
    out[e] = part;
    rest -= part;
  }
  return count;
}

double flush_limit(DType type) {
  const bool flushed = type == DType::kF64 || type == DType::kF32 || type == DType::kBF16;
  return flushed ? smallest_normal(type) : 0;
}

double flushed_part(double v, reference::Parts parts, double limit) {
  // The input itself may be flushed before it is cut into parts.
  if (std::fabs(v) < limit) return std::fabs(v);
  double part[3], sum = 0;
  const int count = parts_of(v, parts, part);
  for (int e = 0; e < count; ++e) {
    if (std::fabs(part[e]) < limit) sum += std::fabs(part[e]);
  }
  return sum;
}

double finite_magnitude(double v, reference::Parts parts) {
  double part[3], sum = 0;
  const int count = parts_of(v, parts, part);
  for (int e = 0; e < count; ++e) {
    const double a = std::fabs(part[e]);
    sum += std::isnan(a) ? 0 : std::isinf(a) ? 1e300 : a;
  }
  return sum;
}

bool any_flushed(const ArrayRef& x, reference::Parts parts) {
  const double limit = flush_limit(x.dtype);
  if (limit == 0) return false;
  // Only small values have small parts: the lowest part is at least 2^-24 of its value.
  const double look = parts == reference::Parts::kAll ? limit : limit * 0x1p25;
  return with_dtype(x.dtype, [&]<class T>() {
    const auto* data = static_cast<const T*>(x.data);
    for (Index i = 0; i < x.size(); ++i) {
      const double a = std::fabs(static_cast<double>(data[i]));
      if (a < look && a > 0 && flushed_part(a, parts, limit) > 0) return true;
    }
    return false;
  });
}

namespace {

// Do all parts of v stay finite? bf16 rounds the largest F32 values up to infinity.
bool finite_parts(double v, reference::Parts parts) {
  double part[3];
  const int count = parts_of(v, parts, part);
  return std::all_of(part, part + count, [](double p) { return std::isfinite(p); });
}

}  // namespace

Array finite_only(const ArrayRef& x, reference::Parts parts) {
  Array out(x.dtype, x.shape());
  with_dtype(x.dtype, [&]<class T>() {
    const auto* from = static_cast<const T*>(x.data);
    const std::span<T> to = out.mutable_elements<T>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = finite_parts(static_cast<double>(from[i]), parts) ? from[i] : T(0.0);
    }
  });
  return out;
}

bool any_infinite(const ArrayRef& x, reference::Parts parts) {
  // Below it no part of an F32 is infinite.
  const double look =
      parts == reference::Parts::kAll ? std::numeric_limits<double>::infinity() : 0x1.fep127;
  return with_dtype(x.dtype, [&]<class T>() {
    const auto* data = static_cast<const T*>(x.data);
    return std::any_of(data, data + x.size(), [&](const T& element) {
      const auto v = static_cast<double>(element);
      return std::fabs(v) >= look && !finite_parts(v, parts);
    });
  });
}

namespace {

// f of each element, as an array of the same shape.
template <class F>
Array mapped(const ArrayRef& x, F&& f) {
  Array out(DType::kF64, x.shape());
  const std::vector<double> in = reference::values(x);
  const auto to = out.mutable_elements<double>();
  for (std::size_t i = 0; i < in.size(); ++i) to[i] = f(in[i]);
  return out;
}

void add_flushed(const ArrayRef& x, const ArrayRef& y, const reference::MatmulOptions& options,
                 std::vector<double>& flushed) {
  const double limit = flush_limit(x.dtype);
  const auto small = [&](double v) { return flushed_part(v, options.parts, limit); };
  const auto all = [&](double v) { return finite_magnitude(v, options.parts); };
  const reference::MatmulOptions plain{.trans_x = options.trans_x, .trans_y = options.trans_y};
  for (const bool of_x : {true, false}) {
    if (!any_flushed(of_x ? x : y, options.parts)) continue;
    const Array a = of_x ? mapped(x, small) : mapped(x, all);
    const Array b = of_x ? mapped(y, all) : mapped(y, small);
    const std::vector<double> more = reference::matmul(a, b, plain).value;
    if (flushed.empty()) flushed.assign(more.size(), 0);
    for (std::size_t i = 0; i < more.size(); ++i) flushed[i] += more[i];
  }
}

// F64 inputs are judged against sums in f64, so their value is summed in something wider: 64 bits
// of mantissa on x86. Where long double is no wider than double, value_error says so.
ProductSums wide_sums(const ArrayRef& x, const ArrayRef& y,
                      const reference::MatmulOptions& options) {
  const ProductSizes p(x, y, options);
  ProductSums out;
  const auto* xs = static_cast<const double*>(x.data);
  const auto* ys = static_cast<const double*>(y.data);
  for (Index b = 0; b < p.batches; ++b) {
    const double* xb = xs + b * p.m * p.k;
    const double* yb = ys + (p.shared_y ? 0 : b * p.k * p.n);
    for (Index i = 0; i < p.m; ++i) {
      for (Index j = 0; j < p.n; ++j) {
        long double value = 0, magnitude = 0;
        for (Index t = 0; t < p.k; ++t) {
          const long double a = xb[options.trans_x ? t * p.m + i : i * p.k + t];
          const long double product = a * yb[options.trans_y ? j * p.k + t : t * p.n + j];
          value += product;
          magnitude += std::fabs(product);
        }
        out.value.push_back(static_cast<double>(value));
        out.magnitude.push_back(static_cast<double>(magnitude));
      }
    }
  }
  const double unit = 0.5 * static_cast<double>(std::numeric_limits<long double>::epsilon());
  out.value_error = static_cast<double>(p.k) * unit + 0x1p-53;
  return out;
}

}  // namespace

ProductSums sums_by_loops(const ArrayRef& x, const ArrayRef& y,
                          const reference::MatmulOptions& options) {
  ProductSums out;
  if (!is_float(x.dtype)) {
    const std::vector<std::int32_t> sums = reference::matmul_int(x, y, options);
    out.value.assign(sums.begin(), sums.end());
    return out;
  }
  if (x.dtype == DType::kF64) {
    out = wide_sums(x, y, options);
  } else {
    reference::Sums sums = reference::matmul(x, y, options);
    out.value = std::move(sums.value);
    out.magnitude = std::move(sums.magnitude);
    const Index n = ProductSizes(x, y, options).k * products_per_pair(options.parts);
    out.value_error = static_cast<double>(n) * 0x1p-53;
  }
  add_flushed(x, y, options, out.flushed);
  if (any_infinite(x, options.parts) || any_infinite(y, options.parts)) {
    ProductSums finite =
        sums_by_loops(finite_only(x, options.parts), finite_only(y, options.parts), options);
    out.finite_value = std::move(finite.value);
    out.finite_magnitude = std::move(finite.magnitude);
  }
  return out;
}

}  // namespace kref
