// SPDX-License-Identifier: Apache-2.0
// Changes of the shape of Values, with their transposes: linear, so that the state stays.
#include <algorithm>
#include <numeric>

#include "sharding/block_view.h"
#include "sharding/graph.h"
#include "sharding/local_math.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

class ReshapePrimitive final : public Primitive {
 public:
  explicit ReshapePrimitive(std::vector<Index> shape) : shape_(std::move(shape)) {}
  std::string name() const override { return "reshape"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return Array(inputs[0].dtype(), shape_, inputs[0].owner(), inputs[0].data());
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    return {reshape(ct, extents_of(inputs[0]), where)};
  }

 private:
  std::vector<Index> shape_;
};

class TransposePrimitive final : public Primitive {
 public:
  explicit TransposePrimitive(std::vector<Index> permutation)
      : permutation_(std::move(permutation)) {}
  std::string name() const override { return "transpose"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    const std::vector<Index> from = dense_strides_of(inputs[0].shape());
    std::vector<Index> shape, strides;
    for (const Index d : permutation_) {
      shape.push_back(inputs[0].extent(static_cast<std::size_t>(d)));
      strides.push_back(from[static_cast<std::size_t>(d)]);
    }
    return gathered(inputs[0], shape, strides, 0);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value>, const Value&,
                       CallSite where) const override {
    std::vector<Index> inverse(permutation_.size());
    for (std::size_t d = 0; d < inverse.size(); ++d) {
      inverse[static_cast<std::size_t>(permutation_[d])] = static_cast<Index>(d);
    }
    return {transpose(ct, inverse, where)};
  }

 private:
  std::vector<Index> permutation_;
};

class SlicePrimitive final : public Primitive {
 public:
  SlicePrimitive(std::vector<Index> start, std::vector<Index> shape)
      : start_(std::move(start)), shape_(std::move(shape)) {}
  std::string name() const override { return "slice"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    const std::vector<Index> strides = dense_strides_of(inputs[0].shape());
    return gathered(inputs[0], shape_, strides,
                    std::inner_product(start_.begin(), start_.end(), strides.begin(), Index{0}));
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    std::vector<Index> high(start_.size());
    for (std::size_t d = 0; d < high.size(); ++d) {
      high[d] = inputs[0].extent(d) - start_[d] - shape_[d];
    }
    return {pad(ct, start_, high, where)};
  }

 private:
  std::vector<Index> start_, shape_;
};

class PadPrimitive final : public Primitive {
 public:
  PadPrimitive(std::vector<Index> low, std::vector<Index> shape)
      : low_(std::move(low)), shape_(std::move(shape)) {}
  std::string name() const override { return "pad"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    Array out(inputs[0].dtype(), shape_);
    MutableArrayRef inside = out.mutable_ref();
    Index offset = 0;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      inside.extents[d] = inputs[0].extent(d);
      offset += low_[d] * inside.strides[d];
    }
    inside.data =
        static_cast<char*>(inside.data) + offset * static_cast<Index>(size_of(out.dtype()));
    copy_elements(inputs[0], inside);
    return out;
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    std::vector<Index> limit = low_;
    for (std::size_t d = 0; d < limit.size(); ++d) limit[d] += inputs[0].extent(d);
    return {slice(ct, low_, limit, where)};
  }

 private:
  std::vector<Index> low_, shape_;
};

class ConcatenatePrimitive final : public Primitive {
 public:
  explicit ConcatenatePrimitive(std::size_t dimension) : dimension_(dimension) {}
  std::string name() const override { return "concatenate"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    std::vector<Index> shape(inputs[0].shape().begin(), inputs[0].shape().end());
    shape[dimension_] = 0;
    for (const Array& part : inputs) shape[dimension_] += part.extent(dimension_);
    Array out = Array::unwritten(inputs[0].dtype(), shape);
    MutableArrayRef place = out.mutable_ref();
    for (const Array& part : inputs) {
      place.extents[dimension_] = part.extent(dimension_);
      copy_elements(part, place);
      place.data = static_cast<char*>(place.data) + part.extent(dimension_) *
                                                        place.strides[dimension_] *
                                                        static_cast<Index>(size_of(out.dtype()));
    }
    return out;
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite where) const override {
    Cotangents out;
    std::vector<Index> start(ct.rank(), 0), limit = extents_of(ct);
    for (const Value& part : inputs) {
      limit[dimension_] = start[dimension_] + part.extent(dimension_);
      out.push_back(slice(ct, start, limit, where));
      start[dimension_] = limit[dimension_];
    }
    return out;
  }

 private:
  std::size_t dimension_;
};

}  // namespace
}  // namespace detail

Value reshape(const Value& x, const std::vector<Index>& shape, CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    if (std::ranges::equal(shape, x.shape())) return x;
    KREF_CHECK(detail::checked_product("reshape", shape.data(), shape.size()) == x.size(),
               "reshape: ", x.type(), " to ", shape_string(shape), ": the sizes differ");
    return detail::record_linear(std::make_shared<detail::ReshapePrimitive>(shape), x, shape,
                                 where);
  });
}

Value transpose(const Value& x, const std::vector<Index>& permutation, CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    std::vector<Index> shape, places(x.rank());
    std::iota(places.begin(), places.end(), Index{0});
    std::vector<Index> from = permutation;
    for (Index& d : from) d = static_cast<Index>(detail::dimension("transpose", x, d));
    KREF_CHECK(std::ranges::is_permutation(from, places), "transpose: ", shape_string(permutation),
               " is not a permutation of the dimensions of ", x.type());
    for (const Index d : from) shape.push_back(x.extent(static_cast<std::size_t>(d)));
    return detail::record_linear(std::make_shared<detail::TransposePrimitive>(from), x, shape,
                                 where);
  });
}

Value slice(const Value& x, const std::vector<Index>& start, const std::vector<Index>& limit,
            CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    KREF_CHECK(start.size() == x.rank() && limit.size() == x.rank(), "slice: ", x.type(), " from ",
               shape_string(start), " to ", shape_string(limit), ": the ranks differ");
    std::vector<Index> shape(x.rank());
    for (std::size_t d = 0; d < shape.size(); ++d) {
      KREF_CHECK(start[d] >= 0 && start[d] <= limit[d] && limit[d] <= x.extent(d),
                 "slice: ", start[d], ':', limit[d], " of dimension ", d, " of ", x.type());
      shape[d] = limit[d] - start[d];
    }
    return detail::record_linear(std::make_shared<detail::SlicePrimitive>(start, shape), x, shape,
                                 where);
  });
}

Value pad(const Value& x, const std::vector<Index>& low, const std::vector<Index>& high,
          CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    KREF_CHECK(low.size() == x.rank() && high.size() == x.rank(), "pad: ", x.type(), " by ",
               shape_string(low), " and ", shape_string(high), ": the ranks differ");
    std::vector<Index> shape(x.rank());
    for (std::size_t d = 0; d < shape.size(); ++d) {
      KREF_CHECK(low[d] >= 0 && high[d] >= 0, "pad: by ", low[d], " and ", high[d],
                 ", expected 0 or more");
      const bool fits = !__builtin_add_overflow(low[d], x.extent(d), &shape[d]) &&
                        !__builtin_add_overflow(shape[d], high[d], &shape[d]);
      KREF_CHECK(fits, "pad: dimension ", d, " of ", x.type(), " by ", low[d], " and ", high[d],
                 " gets more than 2^63 - 1 elements");
    }
    return detail::record_linear(std::make_shared<detail::PadPrimitive>(low, shape), x, shape,
                                 where);
  });
}

Value concatenate(const std::vector<Value>& parts, Index dimension, CallSite where) {
  return detail::at_line(where, [&]() -> Value {
    KREF_CHECK(!parts.empty(), "concatenate: no operand");
    const std::size_t d = detail::dimension("concatenate", parts[0], dimension);
    std::vector<Index> shape = detail::extents_of(parts[0]);
    shape[d] = 0;
    for (const Value& part : parts) {
      bool fits = part.rank() == shape.size() && part.dtype() == parts[0].dtype();
      for (std::size_t e = 0; fits && e < shape.size(); ++e) {
        fits = e == d || part.extent(e) == shape[e];
      }
      KREF_CHECK(fits, "concatenate: ", part.type(), " and ", parts[0].type(), " along dimension ",
                 d);
      KREF_CHECK(!__builtin_add_overflow(shape[d], part.extent(d), &shape[d]),
                 "concatenate: dimension ", d, " gets more than 2^63 - 1 elements");
    }
    const detail::Promoted all = detail::promoted("concatenate", parts, where);
    ValueState state =
        detail::result_state(Arithmetic::kMove, "concatenate", all.states, parts[0].graph());
    return parts[0].graph().add(std::make_shared<detail::ConcatenatePrimitive>(d), all.operands,
                                parts[0].dtype(), shape, std::move(state), where);
  });
}

}  // namespace kref
