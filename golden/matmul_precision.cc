// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_precision.h"

#include <cmath>
#include <memory>

#include "golden/matmul_bound.h"
#include "golden/matmul_op.h"
#include "golden/matmul_sharded.h"
#include "golden/matmul_sums.h"

namespace kref {
namespace {

// One element of a product by itself, under any precision.
class OneElement {
 public:
  OneElement(const Run& run, const MatmulRun& request)
      : x_(run.in.at("x")), y_(run.in.at("y")), request_(request) {}

  bool plausible(Index element, double actual, Precision precision) const {
    const Index j = element % request_.n, i = element / request_.n % request_.m;
    const Index b = element / request_.n / request_.m;
    const Index k = request_.k, yb = request_.shared_y ? 0 : b;
    const Index row[] = {1, k}, column[] = {k, 1};
    Array x(DType::kF32, row), y(DType::kF32, column);
    const auto xs = x.mutable_elements<float>(), ys = y.mutable_elements<float>();
    const auto from_x = x_.elements<float>(), from_y = y_.elements<float>();
    for (Index t = 0; t < k; ++t) {
      const Index at_x =
          request_.trans_x ? (b * k + t) * request_.m + i : (b * request_.m + i) * k + t;
      const Index at_y =
          request_.trans_y ? (yb * request_.n + j) * k + t : (yb * k + t) * request_.n + j;
      const auto to = static_cast<std::size_t>(t);
      xs[to] = from_x[static_cast<std::size_t>(at_x)];
      ys[to] = from_y[static_cast<std::size_t>(at_y)];
    }
    Product product;
    product.options.parts = parts_for(precision);
    product.out_dtype = request_.out_dtype;
    const Expectation e = expect_product(x, y, product);
    // What is not finite is left to the judge.
    return !std::isfinite(actual) || !std::isfinite(e.value[0]) || e.overflow.size() > 0 ||
           std::fabs(actual - e.value[0]) <= e.likely[0];
  }

 private:
  Array x_, y_;
  MatmulRun request_;
};

}  // namespace

std::vector<Alternative> other_precisions(const Run& run) {
  std::vector<Alternative> out;
  if (run.in.at("x").dtype() != DType::kF32) return out;
  const MatmulRun request = read_matmul(run);
  const auto one = std::make_shared<const OneElement>(run, request);
  // A partial sum of an unreduced output is not one whole row by one column.
  const bool whole = !request.placement || request.placement->out.unreduced.empty();
  for (const Precision precision : kPrecisions) {
    if (precision == request.precision) continue;
    Alternative other;
    other.name = std::string("precision ") + name_of(precision);
    if (whole) {
      other.plausible = [one, precision](Index element, double actual) {
        return one->plausible(element, actual, precision);
      };
    }
    other.expect = [run, precision](const Array&) {
      Run changed = run;
      changed.set["precision"] = name_of(precision);
      return std::move(expect_sharded_matmul(changed).at(0));
    };
    out.push_back(std::move(other));
  }
  return out;
}

}  // namespace kref
