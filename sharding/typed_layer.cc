// SPDX-License-Identifier: Apache-2.0
#include "sharding/typed_layer.h"

#include <map>
#include <string>
#include <vector>

#include "sharding/custom_vjp.h"
#include "sharding/graph.h"
#include "sharding/layer_math.h"

namespace kref {
namespace {

using LayerNames = std::map<std::string, Value>;

std::vector<Index> extents(const Value& x) { return {x.shape().begin(), x.shape().end()}; }

// Records a list of steps, as layer_run.cc runs one.
class Recorder {
 public:
  Recorder(const LayerOptions& options, DType dtype, LayerNames& values, CallSite where)
      : options_(options), dtype_(dtype), values_(values), where_(where) {}

  void record(const std::vector<LayerStep>& steps) {
    for (const LayerStep& step : steps) record(step);
  }

 private:
  using Kind = LayerStep::Kind;

  DType hidden() const { return options_.hidden_dtype.value_or(dtype_); }
  void set(const std::string& name, const Value& value) { values_.insert_or_assign(name, value); }

  void record(const LayerStep& step) {
    const Value in = values_.at(step.in[0]);
    switch (step.kind) {
      case Kind::kCollective:
        return set(step.out, apply(step.collective, in, where_));
      case Kind::kProduct:
        return set(step.out, product(step));
      case Kind::kAddProduct: {
        const auto sum = values_.find(step.out);
        return set(step.out,
                   sum == values_.end() ? product(step) : add(sum->second, product(step), where_));
      }
      case Kind::kHidden:
        return set(step.out, device_call(
                                 "hidden", operands(step), hidden(), extents(in),
                                 [activation = options_.activation, type = hidden()](
                                     Device&, std::span<const Array> all) {
                                   return hidden_value(activation, all[0],
                                                       all.size() > 1 ? &all[1] : nullptr, type);
                                 },
                                 where_));
      case Kind::kHiddenCotangent:
        set("ct.a", hidden_cotangent(step, false));
        if (step.in.size() > 2) set("ct.g", hidden_cotangent(step, true));
        return;
      case Kind::kRound:
        return set(step.out, in.dtype() == dtype_ ? in : convert(in, dtype_, where_));
      case Kind::kDrop:
        values_.erase(step.in[0]);
        return;
    }
  }

  std::vector<Value> operands(const LayerStep& step) const {
    std::vector<Value> out;
    for (const std::string& name : step.in) out.push_back(values_.at(name));
    return out;
  }

  // A call gives one array: with a gate the slope is computed for each of the two.
  Value hidden_cotangent(const LayerStep& step, bool of_gate) const {
    return device_call(
        "hidden_cotangent", operands(step), DType::kF32, extents(values_.at(step.in[1])),
        [activation = options_.activation, type = hidden(), of_gate](Device&,
                                                                     std::span<const Array> all) {
          HiddenCotangents cts = hidden_cotangents(activation, of_type(all[0], type), all[1],
                                                   all.size() > 2 ? &all[2] : nullptr);
          return of_gate ? std::move(cts.g) : std::move(cts.a);
        },
        where_);
  }

  Value product(const LayerStep& step) const {
    const Value x = values_.at(step.in[0]), y = values_.at(step.in[1]);
    const std::size_t m = step.trans_x ? 1 : 0, n = step.trans_y ? 0 : 1;
    KREF_CHECK(x.shape()[1 - m] == y.shape()[1 - n], "mlp: ", to_string(step), ": ", step.in[0],
               " is ", x.type(), " and ", step.in[1], " is ", y.type(),
               ", expected blocks of layer_specs, whose contracted extents are equal");
    return device_call(
        "matmul", {x, y}, DType::kF32, {x.shape()[m], y.shape()[n]},
        [step](Device&, std::span<const Array> all) { return layer_product(step, all[0], all[1]); },
        where_);
  }

  const LayerOptions& options_;
  DType dtype_;
  LayerNames& values_;
  CallSite where_;
};

void check(const LayerValues& blocks, const LayerOptions& options) {
  KREF_CHECK(blocks.x.graph().checked(),
             "mlp of Values needs check_vma: without, psum transposes to psum, and the sums of the "
             "layer's backward pass would be added up twice");
  KREF_CHECK(options.microbatches == 1, "mlp of Values: microbatches is ", options.microbatches,
             ", expected 1: call it once for each part, and add up");
  KREF_CHECK(options.plan.gate == blocks.w_gate.has_value(), "mlp: the plan ",
             options.plan.gate ? "has a" : "has no", " gate, but w_gate is ",
             blocks.w_gate ? "given" : "missing");
  const DType dtype = blocks.x.dtype();
  KREF_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "mlp: x is ",
             blocks.x.type(), ", expected F32, BF16 or F16");
  const auto fits = [&](const char* name, const Value& value) {
    KREF_CHECK(value.shape().size() == 2 && value.dtype() == dtype, "mlp: ", name, " is ",
               value.type(), ", expected a matrix of the element type of x, ", name_of(dtype));
  };
  fits("x", blocks.x), fits("w_in", blocks.w_in), fits("w_out", blocks.w_out);
  if (blocks.w_gate) fits("w_gate", *blocks.w_gate);
}

// The layer of x, w_in, w_out and, where there is one, w_gate, with its derivative.
auto paired(const LayerOptions& options, CallSite where) {
  const auto fwd = [options, where](const Value& x, const Value& w_in, const Value& w_out,
                                    const auto&... w_gate) {
    LayerNames values = {{"x", x}, {"w_in", w_in}, {"w_out", w_out}};
    (values.emplace("w_gate", w_gate), ...);
    Recorder(options, x.dtype(), values, where).record(forward_steps(options.plan));
    const Value y = values.at("y");
    values.erase("y");
    return std::pair(y, values);
  };
  const auto bwd = [options, where](const LayerNames& saved, const Value& ct) {
    LayerNames values = saved;
    values.insert_or_assign("ct.y", ct);
    Recorder(options, ct.dtype(), values, where).record(backward_steps(options.plan));
    std::vector<Value> out = {values.at("ct.x"), values.at("ct.w_in"), values.at("ct.w_out")};
    if (options.plan.gate) out.push_back(values.at("ct.w_gate"));
    return out;
  };
  return custom_vjp(fwd, bwd);
}

}  // namespace

Value mlp(const LayerValues& blocks, const LayerOptions& options, CallSite where) {
  check(blocks, options);
  const auto layer = paired(options, where);
  return blocks.w_gate ? layer(blocks.x, blocks.w_in, blocks.w_out, *blocks.w_gate)
                       : layer(blocks.x, blocks.w_in, blocks.w_out);
}

}  // namespace kref
