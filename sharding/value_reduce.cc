// SPDX-License-Identifier: Apache-2.0
// Sums and repetitions of Values, which transpose to each other.
#include <algorithm>
#include <array>
#include <numeric>

#include "sharding/block_view.h"
#include "sharding/graph.h"
#include "sharding/local_math.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

class BroadcastPrimitive final : public Primitive {
 public:
  explicit BroadcastPrimitive(std::vector<Index> shape) : shape_(std::move(shape)) {}
  std::string name() const override { return "broadcast"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    const std::vector<Index> from = dense_strides_of(inputs[0].shape());
    std::vector<Index> strides(shape_.size(), 0);
    const std::size_t lead = shape_.size() - from.size();
    for (std::size_t d = 0; d < from.size(); ++d) {
      if (inputs[0].extent(d) != 1) strides[d + lead] = from[d];
    }
    return gathered(inputs[0], shape_, strides, 0);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    const Value& x = inputs[0];
    const std::size_t lead = shape_.size() - x.rank();
    std::vector<Index> repeated;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      if (d < lead || (x.extent(d - lead) == 1 && shape_[d] != 1)) {
        repeated.push_back(static_cast<Index>(d));
      }
    }
    return {reshape(sum(ct, repeated, where), extents_of(x), where)};
  }

 private:
  std::vector<Index> shape_;
};

class SumPrimitive final : public Primitive {
 public:
  explicit SumPrimitive(std::vector<Index> dimensions) : dimensions_(std::move(dimensions)) {}
  std::string name() const override { return "reduce_sum"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return sum_over(inputs[0], dimensions_);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    std::vector<Index> ones = extents_of(inputs[0]);
    for (const Index d : dimensions_) ones[static_cast<std::size_t>(d)] = 1;
    return {broadcast_to(reshape(ct, ones, where), extents_of(inputs[0]), where)};
  }

 private:
  std::vector<Index> dimensions_;
};

}  // namespace
}  // namespace detail

Value broadcast_to(const Value& x, const std::vector<Index>& shape, CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    if (std::ranges::equal(shape, x.shape())) return x;
    bool fits = x.rank() <= shape.size();
    for (std::size_t d = 0; fits && d < x.rank(); ++d) {
      const Index wanted = shape[d + shape.size() - x.rank()];
      fits = x.extent(d) == wanted || x.extent(d) == 1;
    }
    KREF_CHECK(fits, "broadcast_to: ", x.type(), " to ", shape_string(shape));
    return detail::record_linear(std::make_shared<detail::BroadcastPrimitive>(shape), x, shape,
                                 where);
  });
}

Value sum(const Value& x, const std::vector<Index>& dimensions, CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    std::vector<Index> sorted, shape;
    for (const Index d : dimensions) {
      sorted.push_back(static_cast<Index>(detail::dimension("sum", x, d)));
    }
    std::ranges::sort(sorted);
    KREF_CHECK(std::ranges::adjacent_find(sorted) == sorted.end(), "sum: dimensions ",
               shape_string(dimensions), " of ", x.type(), ": one is named twice");
    if (sorted.empty()) return x;
    for (std::size_t d = 0; d < x.rank(); ++d) {
      if (!std::ranges::binary_search(sorted, static_cast<Index>(d))) shape.push_back(x.extent(d));
    }
    ValueState state =
        detail::result_state(Arithmetic::kReduceSum, "sum", std::array{x.state()}, x.graph());
    return x.graph().add(std::make_shared<detail::SumPrimitive>(sorted), std::span(&x, 1),
                         x.dtype(), shape, std::move(state), where);
  });
}

Value sum(const Value& x, CallSite where) {
  std::vector<Index> all(x.rank());
  std::iota(all.begin(), all.end(), Index{0});
  return sum(x, all, where);
}

}  // namespace kref
