// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "golden/compared.h"
#include "golden/distinct.h"
#include "golden/matmul_op.h"
#include "golden/matmul_sums.h"
#include "golden/rounding.h"

namespace kref {
namespace {

// What the bounds of all elements have in common.
class Bounds {
 public:
  Bounds(DType in, const Product& product, Index k, const ProductSums& sums)
      : accumulator_(in == DType::kF64 ? DType::kF64 : DType::kF32),
        n_(static_cast<double>(k * products_per_pair(product.options.parts))),
        unit_(unit_roundoff(accumulator_)),
        sum_unit_(sums.as_machine ? 2 * unit_ : unit_),
        value_error_(sums.value_error),
        // Every product and every partial sum may be flushed.
        tiny_(2 * n_ * flush_limit(accumulator_)),
        result_limit_(flush_limit(product.out_dtype)),
        overflow_(accumulator_ == DType::kF64 ? std::numeric_limits<double>::max()
                                              : past_range(DType::kF32) - 0x1p103),
        out_(product.out_dtype),
        rounds_(unit_roundoff(out_) > unit_) {}

  // steps: n r, the square of what the likely bound grows with.
  double likely_steps(double repeats) const {
    return std::min(n_, kLambda * std::sqrt(n_ * repeats));
  }
  double worst_steps() const { return n_; }

  // The bound on the sum before it is rounded to the output's type.
  double sum(double steps, double magnitude, double flushed) const {
    if (magnitude == 0) return 0;
    return (steps * sum_unit_ + value_error_) * magnitude + std::min(tiny_ + flushed, magnitude);
  }
  // The bound on the output, given that on the sum.
  double output(double value, double sum) const {
    const double v = std::fabs(value);
    double bound = rounds_ ? sum + half_spacing(out_, v + sum) : sum;
    if (v - sum < result_limit_) bound = std::max(bound, v);
    return bound;
  }
  std::uint8_t overflow(double value, double magnitude, double flushed, double worst) const {
    std::uint8_t bits = Expectation::kNoOverflow;
    if (!std::isfinite(value)) {
      // An infinity times a factor flushed to zero is NaN.
      if (flushed > 1e200 && accumulator_ == DType::kF32) bits = Expectation::kNaN;
      return bits;
    }
    if (0.5 * magnitude + 0.5 * value + worst >= overflow_) bits |= Expectation::kPlusInfinity;
    if (0.5 * magnitude - 0.5 * value + worst >= overflow_) bits |= Expectation::kMinusInfinity;
    const std::uint8_t both = Expectation::kPlusInfinity | Expectation::kMinusInfinity;
    return bits == both ? static_cast<std::uint8_t>(both | Expectation::kNaN) : bits;
  }

 private:
  DType accumulator_;
  double n_, unit_, sum_unit_, value_error_, tiny_, result_limit_, overflow_;
  DType out_;
  bool rounds_;  // the output is narrower than the accumulator
};

ProductSums sums(const Array& x, const Array& y, const Product& product, Evaluation evaluation) {
  constexpr double kMostByLoops = 1 << 22;
  const ProductSizes p(x, y, product.options);
  const double products = static_cast<double>(p.batches) * static_cast<double>(p.m) *
                          static_cast<double>(p.n) * static_cast<double>(p.k) *
                          products_per_pair(product.options.parts);
  const bool loops = evaluation == Evaluation::kLoops ||
                     (evaluation == Evaluation::kAuto && products <= kMostByLoops);
  return loops ? sums_by_loops(x, y, product.options) : sums_by_tiles(x, y, product.options);
}

// Turns the sums into the bounds of e, in place where possible: outputs may have 10^8 elements.
void set_bounds(const Array& x, const Array& y, const Product& product, ProductSums&& s,
                Expectation& e) {
  const ProductSizes p(x, y, product.options);
  const Bounds bounds(x.dtype(), product, p.k, s);
  const std::vector<Index> rows = distinct_magnitudes(x, product.options.trans_x, p.k);
  const std::vector<Index> columns = distinct_magnitudes(y, !product.options.trans_y, p.k);
  e.value = std::move(s.value);
  e.worst = std::move(s.magnitude);
  e.likely.resize(e.value.size());
  const double worst_steps = bounds.worst_steps();
  const double plain_steps = bounds.likely_steps(1);
  std::size_t at = 0;
  for (Index b = 0; b < p.batches; ++b) {
    for (Index i = 0; i < p.m; ++i) {
      const Index row = rows[static_cast<std::size_t>(b * p.m + i)];
      for (Index j = 0; j < p.n; ++j, ++at) {
        const Index column = columns[static_cast<std::size_t>((p.shared_y ? 0 : b * p.n) + j)];
        const double groups = static_cast<double>(row) * static_cast<double>(column);
        const auto k = static_cast<double>(p.k);
        const double steps = groups >= k ? plain_steps : bounds.likely_steps(k / groups);
        const double value = e.value[at], magnitude = e.worst[at];
        const double flushed = s.flushed.empty() ? 0 : s.flushed[at];
        double worst = 0, likely = 0;
        if (std::isfinite(value)) {
          worst = bounds.sum(worst_steps, magnitude, flushed);
          likely = bounds.sum(steps, magnitude, flushed);
        }
        const std::uint8_t overflow = bounds.overflow(value, magnitude, flushed, worst);
        if (overflow != Expectation::kNoOverflow && e.overflow.empty()) {
          e.overflow.assign(e.value.size(), Expectation::kNoOverflow);
        }
        if (!e.overflow.empty()) e.overflow[at] = overflow;
        e.worst[at] = std::isfinite(value) ? bounds.output(value, worst) : 0;
        e.likely[at] = std::isfinite(value) ? bounds.output(value, likely) : 0;
      }
    }
  }
}

Blocks blocks_of(const ArrayRef& x, const Product& product, Index k) {
  Blocks blocks;
  for (std::size_t d = 0; d + 2 < x.rank; ++d) {
    blocks.axes.push_back(std::to_string(d).insert(0, 1, 'b'));
    blocks.extents.push_back(1);
  }
  blocks.axes.insert(blocks.axes.end(), {"i", "j"});
  blocks.extents.insert(blocks.extents.end(), {product.tile.m, product.tile.n});
  const Index last = cdiv(k, product.tile.k) - 1;
  if (last >= 0) blocks.steps.append("k=0");
  if (last > 0) blocks.steps.append("..").append(std::to_string(last));
  return blocks;
}

// The sum of one element cut short: choice c stops after c + 1 of the k products.
class ShortSums {
 public:
  ShortSums(const Array& x, const Array& y, const Product& product)
      : x_(x), y_(y), options_(product.options), p_(x, y, product.options) {}

  Index choices() const { return p_.k - 1; }

  void operator()(Index element, std::vector<double>& values) const {
    const Index j = element % p_.n, i = element / p_.n % p_.m, b = element / p_.n / p_.m;
    const Index xb = b * p_.m * p_.k, yb = p_.shared_y ? 0 : b * p_.k * p_.n;
    const bool wraps = !is_float(x_.dtype());
    double sum = 0, xs[3], ys[3];
    for (Index t = 0; t + 1 < p_.k; ++t) {
      const double xv = x_.at(xb + (options_.trans_x ? t * p_.m + i : i * p_.k + t));
      const double yv = y_.at(yb + (options_.trans_y ? j * p_.k + t : t * p_.n + j));
      const int count = parts_of(xv, options_.parts, xs);
      parts_of(yv, options_.parts, ys);
      for (int e = 0; e < count; ++e) {
        for (int f = 0; e + f < count; ++f) sum += xs[e] * ys[f];
      }
      values.push_back(wraps ? wrapped(sum) : sum);
    }
  }

  // An integer of at most 53 bits taken modulo 2^32 into the range of I32.
  static double wrapped(double v) {
    return static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(v)));
  }

 private:
  Array x_, y_;
  reference::MatmulOptions options_;
  ProductSizes p_;
};

Hypothesis last_block_dropped(const Array& x, const Array& y, const Product& product) {
  const ShortSums sums(x, y, product);
  const Index k = sums.choices() + 1, block = product.tile.k;
  Hypothesis h;
  h.pattern = "last k block dropped";
  h.values = sums;
  h.detail = [k](Index choice) {
    return "the sums stop at k = " + std::to_string(choice + 1) + " of " + std::to_string(k);
  };
  if (k > block) h.preferred.push_back((cdiv(k, block) - 1) * block - 1);
  return h;
}

}  // namespace

Expectation expect_product(const Array& x, const Array& y, const Product& asked,
                           Evaluation evaluation) {
  const ProductSizes p(x, y, asked.options);
  Product product = asked;
  if (product.tile == MatmulTile{}) product.tile = default_matmul_tile(x.dtype(), p.m, p.n, p.k);
  Expectation e;
  e.output.assign(1, 'z');
  ProductSums s = sums(x, y, product, evaluation);
  if (is_float(x.dtype())) {
    set_bounds(x, y, product, std::move(s), e);
  } else {
    e.value = std::move(s.value);
    for (double& v : e.value) v = ShortSums::wrapped(v);
  }
  e.blocks = blocks_of(x, product, p.k);
  if (p.k > 1) e.hypotheses.push_back(last_block_dropped(x, y, product));
  return e;
}

std::vector<Expectation> expect_matmul(const Run& run) {
  const MatmulRun request = read_matmul(run);
  Product product;
  product.options.trans_x = request.trans_x;
  product.options.trans_y = request.trans_y;
  product.options.parts = request.precision == "bf16"      ? reference::Parts::kBF16
                          : request.precision == "bf16_x3" ? reference::Parts::kBF16x3
                          : request.precision == "bf16_x6" ? reference::Parts::kBF16x6
                                                           : reference::Parts::kAll;
  product.out_dtype = request.out_dtype;
  product.tile = {request.tile[0], request.tile[1], request.tile[2]};
  std::vector<Expectation> out;
  out.push_back(expect_product(run.in.at("x"), run.in.at("y"), product));
  return out;
}

}  // namespace kref
