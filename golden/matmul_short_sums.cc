// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_short_sums.h"

#include "golden/matmul_compute.h"
#include "golden/matmul_sums.h"

namespace kref {
namespace {

class ShortSums {
 public:
  ShortSums(const Array& x, const Array& y, const Product& product)
      : x_(x), y_(y), options_(product.options), p_(x, y, product.options) {}

  Index choices() const { return p_.k - 1; }

  // One element under every choice.
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
      values.push_back(wraps ? wrapped_i32(sum) : sum);
    }
  }

  // Every element under one choice: a product of operands cut short.
  std::vector<double> all(Index choice) const {
    const std::vector<ContractionRange> head = {{0, choice + 1}};
    ProductSums sums =
        sums_by_tiles(contraction_copy(x_, !options_.trans_x, head),
                      contraction_copy(y_, options_.trans_y, head), options_, SumsWanted::kValue);
    if (!is_float(x_.dtype())) {
      for (double& v : sums.value) v = wrapped_i32(v);
    }
    return std::move(sums.value);
  }

 private:
  Array x_, y_;
  reference::MatmulOptions options_;
  ProductSizes p_;
};

}  // namespace

double wrapped_i32(double v) {
  return static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(v)));
}

Hypothesis last_block_dropped(const Array& x, const Array& y, const Product& product) {
  const ShortSums sums(x, y, product);
  const Index k = sums.choices() + 1, block = product.tile.k;
  Hypothesis h;
  h.pattern = "last k block dropped";
  h.values = sums;
  h.all = [sums](Index choice) { return sums.all(choice); };
  h.detail = [k](Index choice) {
    return "the sums stop at k = " + std::to_string(choice + 1) + " of " + std::to_string(k);
  };
  if (k > block) h.preferred.push_back((cdiv(k, block) - 1) * block - 1);
  return h;
}

}  // namespace kref
