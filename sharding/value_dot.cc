// SPDX-License-Identifier: Apache-2.0
// The matrix product of Values, with its derivative.
#include <algorithm>

#include "kernels/matmul.h"
#include "sharding/graph.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

class DotPrimitive final : public Primitive {
 public:
  explicit DotPrimitive(DotValueOptions options) : options_(options) {}
  std::string name() const override { return "dot"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return matmul(inputs[0], inputs[1], {.trans_x = options_.trans_x, .trans_y = options_.trans_y});
  }
  // With z = op(x) op(y): dop(x) = dz op(y)^T, dop(y) = op(x)^T dz, each stored as its operand is.
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    const Value &x = inputs[0], &y = inputs[1];
    const bool tx = options_.trans_x, ty = options_.trans_y;
    const Value dy = ty ? dot(ct, x, {true, tx}, where) : dot(x, ct, {!tx, false}, where);
    if (x.rank() == y.rank()) {
      return {tx ? dot(y, ct, {ty, true}, where) : dot(ct, y, {false, !ty}, where), dy};
    }
    // A y that the batch shares gets the sum over it.
    std::vector<Index> batch, swapped;
    for (std::size_t d = 0; d + 2 < x.rank(); ++d) batch.push_back(static_cast<Index>(d));
    const Value dx = dot(ct, y, {false, !ty}, where);
    if (!tx) return {dx, sum(dy, batch, where)};
    swapped = batch;
    swapped.push_back(static_cast<Index>(x.rank()) - 1);
    swapped.push_back(static_cast<Index>(x.rank()) - 2);
    return {transpose(dx, swapped, where), sum(dy, batch, where)};
  }

 private:
  DotValueOptions options_;
};

}  // namespace
}  // namespace detail

Value dot(const Value& x, const Value& y, const DotValueOptions& options, CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    const MatmulSizes sizes = matmul_sizes(ArrayRef(x.dtype(), x.shape(), nullptr),
                                           ArrayRef(y.dtype(), y.shape(), nullptr), options.trans_x,
                                           options.trans_y, "dot: ");
    KREF_CHECK(x.dtype() == y.dtype() && has_product(x.dtype()), "dot: ", x.type(), " and ",
               y.type(), ": expected one element type that has a product");
    std::vector<Index> shape(x.shape().begin(), x.shape().end() - 2);
    shape.push_back(sizes.m);
    shape.push_back(sizes.n);
    const detail::Promoted all = detail::promoted("dot_general", std::array{x, y}, where);
    ValueState state = detail::result_state(Arithmetic::kDot, "dot_general", all.states, x.graph());
    return x.graph().add(std::make_shared<detail::DotPrimitive>(options), all.operands,
                         is_float(x.dtype()) ? x.dtype() : DType::kI32, shape, std::move(state),
                         where);
  });
}

}  // namespace kref
