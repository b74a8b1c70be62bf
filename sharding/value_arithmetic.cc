// SPDX-License-Identifier: Apache-2.0
// Element by element operations on Values, with their derivatives.
#include <algorithm>
#include <array>

#include "sharding/graph.h"
#include "sharding/local_math.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

// Records an operation of one operand that keeps the shape.
Value record_unary(std::shared_ptr<const Primitive> op, const Value& x, DType dtype,
                   ValueState state, CallSite where) {
  return x.graph().add(std::move(op), std::span(&x, 1), dtype, extents_of(x), std::move(state),
                       where);
}

class UnaryPrimitive final : public Primitive {
 public:
  explicit UnaryPrimitive(UnaryOp op) : op_(op) {}
  std::string name() const override { return to_string(op_); }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return unary(op_, inputs[0]);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value& result,
                       CallSite where) const override {
    const Value& x = inputs[0];
    switch (op_) {
      case UnaryOp::kNeg:
        return {neg(ct, where)};
      case UnaryOp::kSin:
        return {mul(ct, cos(x, where), where)};
      case UnaryOp::kCos:
        return {neg(mul(ct, sin(x, where), where), where)};
      case UnaryOp::kExp:
        return {mul(ct, result, where)};
      case UnaryOp::kLog:
        return {div(ct, x, where)};
      case UnaryOp::kTanh:
        break;
    }
    return {sub(ct, mul(ct, mul(result, result, where), where), where)};
  }

 private:
  UnaryOp op_;
};

class BinaryPrimitive final : public Primitive {
 public:
  explicit BinaryPrimitive(BinaryOp op) : op_(op) {}
  std::string name() const override { return to_string(op_); }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return binary(op_, inputs[0], inputs[1]);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value& result,
                       CallSite where) const override {
    const Value &a = inputs[0], &b = inputs[1];
    switch (op_) {
      case BinaryOp::kAdd:
        return {ct, ct};
      case BinaryOp::kSub:
        return {ct, neg(ct, where)};
      case BinaryOp::kMul:
        return {mul(ct, b, where), mul(ct, a, where)};
      case BinaryOp::kDiv:
        break;
    }
    // Of the denominator: -ct (a / b) / b, in an order in which an unreduced a stays the only one.
    return {div(ct, b, where), neg(mul(ct, div(result, b, where), where), where)};
  }

 private:
  BinaryOp op_;
};

class ScalePrimitive final : public Primitive {
 public:
  explicit ScalePrimitive(double factor) : factor_(factor) {}
  std::string name() const override { return "scale"; }
  std::string text() const override { return cat("scale(", factor_, ')'); }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return scaled(inputs[0], factor_);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value>, const Value&,
                       CallSite where) const override {
    // Not scale(): that refuses an unreduced value, which the cotangent of a reduced one is, since
    // whoever writes 2 * x rarely means it. Here it is meant.
    return {
        record_unary(std::make_shared<ScalePrimitive>(factor_), ct, ct.dtype(), ct.state(), where)};
  }

 private:
  double factor_;
};

// Not a scale by 1 / n, which would round twice.
class DividePrimitive final : public Primitive {
 public:
  explicit DividePrimitive(Index divisor) : divisor_(divisor) {}
  std::string name() const override { return "divide"; }
  std::string text() const override { return cat("divide(", divisor_, ')'); }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return divided(inputs[0], divisor_);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value>, const Value&,
                       CallSite where) const override {
    return {divided_by(ct, divisor_, where)};
  }

 private:
  Index divisor_;
};

class ConvertPrimitive final : public Primitive {
 public:
  ConvertPrimitive(DType from, DType to) : from_(from), to_(to) {}
  std::string name() const override { return "convert"; }
  std::string text() const override { return cat("convert(", name_of(to_), ')'); }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override {
    return converted(inputs[0], to_);
  }
  Cotangents pull_back(const Value& ct, std::span<const Value>, const Value&,
                       CallSite where) const override {
    if (!is_float(from_) || !is_float(to_)) return {std::nullopt};
    return {convert(ct, from_, where)};
  }

 private:
  DType from_, to_;
};

Value record_unlocated(BinaryOp op, Value a, Value b, CallSite where) {
  const char* name = to_string(op);
  KREF_CHECK(a.dtype() == b.dtype(), name, ": ", a.type(), " and ", b.type(),
             ": the element types differ");
  if (a.rank() == 0 && b.rank() != 0) a = broadcast_to(a, extents_of(b), where);
  if (b.rank() == 0 && a.rank() != 0) b = broadcast_to(b, extents_of(a), where);
  KREF_CHECK(std::ranges::equal(a.shape(), b.shape()), name, ": ", a.type(), " and ", b.type(),
             ": the shapes differ");
  const Promoted all = promoted(name, std::array{a, b}, where);
  const Arithmetic rule = op == BinaryOp::kMul   ? Arithmetic::kMul
                          : op == BinaryOp::kDiv ? Arithmetic::kDiv
                                                 : Arithmetic::kAdd;
  ValueState state = result_state(rule, name, all.states, a.graph());
  return a.graph().add(std::make_shared<BinaryPrimitive>(op), all.operands, a.dtype(),
                       extents_of(a), std::move(state), where);
}

Value record_binary(BinaryOp op, const Value& a, const Value& b, CallSite where) {
  return at_line(where, [&] { return record_unlocated(op, a, b, where); });
}

Value record_nonlinear(UnaryOp op, const Value& x, CallSite where) {
  return at_line(where, [&] {
    KREF_CHECK(is_float(x.dtype()), to_string(op), ": ", x.type(), ", expected a float type");
    return record_unary(
        std::make_shared<UnaryPrimitive>(op), x, x.dtype(),
        result_state(Arithmetic::kNonlinear, to_string(op), std::array{x.state()}, x.graph()),
        where);
  });
}

}  // namespace

Value divided_by(const Value& x, Index divisor, CallSite where) {
  return record_unary(std::make_shared<DividePrimitive>(divisor), x, x.dtype(), x.state(), where);
}

}  // namespace detail

Value add(const Value& a, const Value& b, CallSite where) {
  return detail::record_binary(BinaryOp::kAdd, a, b, where);
}
Value sub(const Value& a, const Value& b, CallSite where) {
  return detail::record_binary(BinaryOp::kSub, a, b, where);
}
Value mul(const Value& a, const Value& b, CallSite where) {
  return detail::record_binary(BinaryOp::kMul, a, b, where);
}
Value div(const Value& a, const Value& b, CallSite where) {
  KREF_CHECK(is_float(a.dtype()), "div: ", a.type(), ", expected a float type");
  return detail::record_binary(BinaryOp::kDiv, a, b, where);
}
Value scale(const Value& x, double factor, CallSite where) {
  return detail::at_line(where, [&] {
    check_factor(x.dtype(), factor);
    return detail::record_unary(std::make_shared<detail::ScalePrimitive>(factor), x, x.dtype(),
                                detail::scaled_state(x), where);
  });
}
Value neg(const Value& x, CallSite where) {
  // Linear, so of terms of a sum: the negated terms of a maximum are those of a minimum.
  return detail::at_line(where, [&] {
    return detail::record_unary(
        std::make_shared<detail::UnaryPrimitive>(UnaryOp::kNeg), x, x.dtype(),
        detail::result_state(Arithmetic::kAdd, "neg", std::array{x.state()}, x.graph()), where);
  });
}
Value sin(const Value& x, CallSite where) {
  return detail::record_nonlinear(UnaryOp::kSin, x, where);
}
Value cos(const Value& x, CallSite where) {
  return detail::record_nonlinear(UnaryOp::kCos, x, where);
}
Value exp(const Value& x, CallSite where) {
  return detail::record_nonlinear(UnaryOp::kExp, x, where);
}
Value log(const Value& x, CallSite where) {
  return detail::record_nonlinear(UnaryOp::kLog, x, where);
}
Value tanh(const Value& x, CallSite where) {
  return detail::record_nonlinear(UnaryOp::kTanh, x, where);
}
Value convert(const Value& x, DType dtype, CallSite where) {
  if (dtype == x.dtype()) return x;
  return detail::record_unary(std::make_shared<detail::ConvertPrimitive>(x.dtype(), dtype), x,
                              dtype, x.state(), where);
}

}  // namespace kref
