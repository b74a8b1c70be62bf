// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "golden/compared.h"
#include "golden/matmul_op.h"
#include "golden/matmul_short_sums.h"
#include "golden/matmul_sums.h"
#include "golden/repeats.h"
#include "golden/rounding.h"

namespace kref {
namespace {

// What the bounds of all elements have in common.
class Bounds {
 public:
  Bounds(DType in, const Product& product, Index k, const ProductSums& sums)
      : accumulator_(accumulator_of(in)),
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
        rounds_(unit_roundoff(out_) > unit_),
        parts_(static_cast<std::size_t>(part_count(product.options.parts))) {}

  // What the bounds grow with, in units of u S.
  double likely_steps(const Repeats& x, const Repeats& y) const {
    double squares = 0;
    for (std::size_t e = 0; e < parts_; ++e) {
      for (std::size_t f = 0; e + f < parts_; ++f) squares += std::min(x.squares[e], y.squares[f]);
    }
    return std::min(n_, kLambda * std::sqrt(squares));
  }
  double worst_steps() const { return n_; }

  // The bound on the sum before it is rounded to the output's type; finite.
  double sum(double steps, double magnitude, double flushed) const {
    if (magnitude == 0) return 0;
    // No product of a finite result is past the range either, which limits the value's own error.
    return steps * sum_unit_ * std::min(magnitude, overflow_) +
           n_ * value_error_ * std::min(magnitude / n_, overflow_) +
           std::min(tiny_ + flushed, magnitude);
  }
  // The bound on the output, given that on the sum.
  double output(double value, double sum) const {
    const double v = std::fabs(value);
    double bound = rounds_ ? sum + half_spacing(out_, v + sum) : sum;
    if (v - sum < result_limit_) bound = std::max(bound, v);
    return bound;
  }
  // positive, negative: P and N of the finite products; error: how far partial sums may be off.
  std::uint8_t overflow(double value, double positive, double negative, double flushed,
                        double error) const {
    const bool up = positive + error >= overflow_, down = negative + error >= overflow_;
    return overflow_bits(value, up, down, flushed > 1e200 && accumulator_ == DType::kF32);
  }

 private:
  DType accumulator_;
  double n_, unit_, sum_unit_, value_error_, tiny_, result_limit_, overflow_;
  DType out_;
  bool rounds_;  // the output is narrower than the accumulator
  std::size_t parts_;
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
  const auto parts = product.options.parts;
  const std::vector<Repeats> rows = repeats(x, product.options.trans_x, p.k, parts);
  const std::vector<Repeats> columns = repeats(y, !product.options.trans_y, p.k, parts);
  e.value = std::move(s.value);
  e.worst = std::move(s.magnitude);
  e.likely.resize(e.value.size());
  // P and N of the finite products. Without infinite factors only f64 overflows, past all bounds.
  const auto finite = [&](std::size_t at, double magnitude, double value) {
    if (!std::isfinite(value) || !std::isfinite(magnitude)) {
      if (s.finite_value.empty()) return std::array{magnitude, magnitude};
      magnitude = s.finite_magnitude[at], value = s.finite_value[at];
      if (!std::isfinite(magnitude)) return std::array{magnitude, magnitude};
    }
    return std::array{0.5 * magnitude + 0.5 * value, 0.5 * magnitude - 0.5 * value};
  };
  const double worst_steps = bounds.worst_steps();
  std::size_t at = 0;
  for (Index b = 0; b < p.batches; ++b) {
    for (Index i = 0; i < p.m; ++i) {
      const Repeats& row = rows[static_cast<std::size_t>(b * p.m + i)];
      for (Index j = 0; j < p.n; ++j, ++at) {
        const Repeats& column = columns[static_cast<std::size_t>((p.shared_y ? 0 : b * p.n) + j)];
        const double value = e.value[at], magnitude = e.worst[at];
        const double flushed = s.flushed.empty() ? 0 : s.flushed[at];
        const auto [positive, negative] = finite(at, magnitude, value);
        const double worst = bounds.sum(worst_steps, magnitude, flushed);
        const double likely = bounds.sum(bounds.likely_steps(row, column), magnitude, flushed);
        const std::uint8_t overflow = bounds.overflow(
            value, positive, negative, flushed, bounds.sum(worst_steps, positive + negative, 0));
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
    blocks.axes.emplace_back(1, 'b');  // one axis over all batch dimensions, as in the kernel
    blocks.extents.push_back(1);
  }
  blocks.axes.insert(blocks.axes.end(), {"i", "j"});
  blocks.extents.insert(blocks.extents.end(), {product.tile.m, product.tile.n});
  const Index last = cdiv(k, product.tile.k) - 1;
  if (last >= 0) blocks.steps.append("k=0");
  if (last > 0) blocks.steps.append("..").append(std::to_string(last));
  return blocks;
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
    for (double& v : e.value) v = wrapped_i32(v);
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
  product.options.parts = parts_for(request.precision);
  product.out_dtype = request.out_dtype;
  product.tile = {request.tile[0], request.tile[1], request.tile[2]};
  std::vector<Expectation> out;
  out.push_back(expect_product(run.in.at("x"), run.in.at("y"), product));
  return out;
}

}  // namespace kref
