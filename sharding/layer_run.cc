// SPDX-License-Identifier: Apache-2.0
// One device's part of a layer: its steps, one after the other.
#include "sharding/layer_run.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "dsl/work_meter.h"
#include "sharding/layer_math.h"
#include "sharding/local_math.h"
#include "sharding/product_sum.h"

namespace kref {
namespace {

// Runs a list of steps on one device's arrays. alike: all devices of the launch run the same.
class Runner {
 public:
  Runner(Device& device, const LayerOptions& options, LayerArrays& arrays, LayerMeter* meter,
         CallSite where, bool alike)
      : alike_(alike),
        device_(device),
        options_(options),
        arrays_(arrays),
        meter_(meter),
        where_(where),
        dtype_(arrays.at("x").dtype()) {}

  void run(const std::vector<LayerStep>& steps) {
    leave_products(steps);
    measure();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (options_.overlap) start_background(steps, i);
      if (waits(steps[i], i)) {
        late_.push_back(i);
        continue;
      }
      for (const std::string& name : steps[i].in) take(steps, name);
      perform(steps[i], i);
      measure();
    }
    while (!late_.empty()) {
      const std::size_t first = late_.front();
      late_.erase(late_.begin());
      late_names_.erase(steps[first].out);
      perform(steps[first], first);
      measure();
    }
  }

 private:
  using Kind = LayerStep::Kind;

  // Starts those whose operand is there and is not made anew before they come, unless a step that
  // others wait for is to use the same links first.
  void start_background(const std::vector<LayerStep>& steps, std::size_t now) {
    std::set<std::string> taken;
    for (std::size_t i = now; i < steps.size(); ++i) {
      const LayerStep& step = steps[i];
      if (step.kind != Kind::kCollective || started_.contains(i)) continue;
      const std::vector<std::string>& axes = axis_name(step.collective).names;
      if (step.critical) taken.insert(axes.begin(), axes.end());
      const auto busy = [&](const std::string& axis) { return taken.contains(axis); };
      if (std::any_of(axes.begin(), axes.end(), busy)) continue;
      const auto makes = [&](const LayerStep& other) { return other.out == step.in[0]; };
      const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(now),
                 end = steps.begin() + static_cast<std::ptrdiff_t>(i);
      const bool made = arrays_.contains(step.in[0]) && !late_names_.contains(step.in[0]);
      if (!made || std::any_of(begin, end, makes)) continue;
      started_.emplace(i, start(step));
    }
  }

  Pending start(const LayerStep& step) {
    const Array& in = arrays_.at(step.in[0]);
    if (const auto left = factors_.extract(step.in[0])) {
      return detail::start_product_sum(step.collective, device_, in, std::move(left.mapped()),
                                       where_);
    }
    return std::visit([&](const auto& op) { return op.start(device_, in, where_); },
                      step.collective);
  }

  // Finds the products of which nothing is asked but their sum over devices.
  void leave_products(const std::vector<LayerStep>& steps) {
    for (std::size_t i = 0; alike_ && i + 2 < steps.size(); ++i) {
      const LayerStep &sum = steps[i + 1], &drop = steps[i + 2];
      if (steps[i].kind != Kind::kProduct || sum.kind != Kind::kCollective ||
          drop.kind != Kind::kDrop || sum.in != drop.in || sum.in[0] != steps[i].out) {
        continue;
      }
      summed_.emplace(i, &sum.collective);
    }
  }

  // What nothing needs yet: the end of what runs in the background, and what is done with that.
  bool waits(const LayerStep& step, std::size_t i) {
    const bool follows = late_names_.contains(step.in[0]) &&
                         (step.kind == Kind::kRound || step.kind == Kind::kDrop ||
                          (step.kind == Kind::kCollective && !step.critical));
    if (!follows && !started_.contains(i)) return false;
    if (!step.out.empty()) late_names_.insert(step.out);
    return true;
  }

  // Makes an array that is still to come.
  void take(const std::vector<LayerStep>& steps, const std::string& name) {
    if (!late_names_.contains(name)) return;
    const auto makes = [&](std::size_t i) { return steps[i].out == name; };
    const auto found = std::find_if(late_.begin(), late_.end(), makes);
    const std::size_t i = *found;
    late_.erase(found);
    late_names_.erase(name);
    take(steps, steps[i].in[0]);
    perform(steps[i], i);
    measure();
  }

  void perform(const LayerStep& step, std::size_t i) {
    if (const auto pending = started_.find(i); pending != started_.end()) {
      if (meter_ != nullptr) meter_->collectives.push_back(to_string(step));
      arrays_[step.out] = pending->second.done();
      started_.erase(pending);
      return;
    }
    const Array& in = arrays_.at(step.in[0]);
    switch (step.kind) {
      case Kind::kCollective:
        if (meter_ != nullptr) meter_->collectives.push_back(to_string(step));
        arrays_[step.out] = start(step).done();
        return;
      case Kind::kProduct:
        arrays_[step.out] =
            summed_.contains(i) ? summed_product(step, *summed_.at(i)) : product(step);
        return;
      case Kind::kAddProduct: {
        Array& sum = arrays_[step.out];
        sum = sum.rank() == 0 ? product(step) : binary(BinaryOp::kAdd, sum, product(step));
        return;
      }
      case Kind::kHidden:
        arrays_[step.out] = hidden_value(options_.activation, in, gate(step, 1),
                                         options_.hidden_dtype.value_or(dtype_));
        return;
      case Kind::kHiddenCotangent: {
        // ct.h was summed in F32.
        const Array ct = of_type(in, options_.hidden_dtype.value_or(dtype_));
        HiddenCotangents cts =
            hidden_cotangents(options_.activation, ct, arrays_.at(step.in[1]), gate(step, 2));
        arrays_["ct.a"] = std::move(cts.a);
        if (step.in.size() > 2) arrays_["ct.g"] = std::move(cts.g);
        return;
      }
      case Kind::kRound:
        arrays_[step.out] = of_type(in, dtype_);
        return;
      case Kind::kDrop:
        arrays_.erase(step.in[0]);
        return;
    }
  }

  const Array* gate(const LayerStep& step, std::size_t i) const {
    return step.in.size() > i ? &arrays_.at(step.in[i]) : nullptr;
  }

  Array product(const LayerStep& step) const {
    return layer_product(step, arrays_.at(step.in[0]), arrays_.at(step.in[1]));
  }

  // A product for that collective: shape and type alone, as it is counted here and takes memory on
  // the device that this one stands for, where the collective is to make its sum from the factors.
  Array summed_product(const LayerStep& step, const LinearCollective& sum) {
    const Array &x = arrays_.at(step.in[0]), &y = arrays_.at(step.in[1]);
    const Index m = x.extent(step.trans_x ? 1 : 0), n = y.extent(step.trans_y ? 0 : 1);
    const Index k = x.extent(step.trans_x ? 0 : 1);
    if (!detail::sums_products(sum, device_, m, n, k)) return product(step);
    const DType type = product_type(x, y);
    factors_[step.out] = {of_type(x, type), of_type(y, type), step.trans_x, step.trans_y};
    const ShapesOnly unmade;
    return product(step);
  }

  void measure() {
    if (meter_ == nullptr) return;
    std::size_t bytes = 0;
    for (const auto& entry : arrays_) bytes += entry.second.bytes();
    meter_->peak_bytes = std::max(meter_->peak_bytes, bytes);
  }

  const bool alike_;
  Device& device_;
  const LayerOptions& options_;
  LayerArrays& arrays_;
  LayerMeter* meter_;
  CallSite where_;
  DType dtype_;
  std::map<std::size_t, Pending> started_;  // by the step, in the background
  std::vector<std::size_t> late_;           // steps that were put off, in order
  std::set<std::string> late_names_;        // what they make
  // Products that their sums are made without: the collectives, by the step; and while one of them
  // is still to start, what it is a product of, by name.
  std::map<std::size_t, const LinearCollective*> summed_;
  std::map<std::string, detail::Factors> factors_;
};

// Rows begin .. end - 1, which view `x`.
Array rows_of(const Array& x, Index begin, Index end) {
  const auto row = static_cast<std::size_t>(x.extent(1)) * size_of(x.dtype());
  if (x.data() == nullptr) {
    return Array(x.dtype(), std::vector<Index>{end - begin, x.extent(1)}, nullptr, nullptr);
  }
  return Array(x.dtype(), std::vector<Index>{end - begin, x.extent(1)}, x.owner(),
               static_cast<const char*>(x.data()) + static_cast<std::size_t>(begin) * row);
}

}  // namespace

void detail::layer_pass(Device& device, const LayerOptions& options,
                        const std::vector<LayerStep>& steps, LayerArrays& arrays, LayerMeter* meter,
                        CallSite where) {
  Runner(device, options, arrays, meter, where, true).run(steps);
}

void detail::layer_accumulate(Device& device, const LayerOptions& options, LayerArrays& arrays,
                              LayerMeter* meter, CallSite where) {
  const std::vector<LayerStep> forward = forward_steps(options.plan),
                               part_steps = accumulation_steps(options.plan);
  const Array x = arrays.at("x"), ct_y = arrays.at("ct.y");
  Array ct_x = Array::unwritten(x.dtype(), x.shape());
  const Index part = x.extent(0) / options.microbatches;
  for (Index m = 0; m < options.microbatches; ++m) {
    arrays["x"] = rows_of(x, m * part, (m + 1) * part);
    arrays["ct.y"] = rows_of(ct_y, m * part, (m + 1) * part);
    Runner(device, options, arrays, nullptr, where, true).run(forward);
    Runner(device, options, arrays, meter, where, true).run(part_steps);
    const Array& made = arrays.at("ct.x");
    if (made.bytes() > 0 && made.data() != nullptr) {
      std::memcpy(
          static_cast<char*>(ct_x.mutable_data()) + static_cast<std::size_t>(m) * made.bytes(),
          made.data(), made.bytes());
    }
  }
  Runner(device, options, arrays, meter, where, true).run(reduction_steps(options.plan));
  arrays["ct.x"] = std::move(ct_x);
}

void layer_forward(Device& device, const LayerOptions& options, LayerArrays& arrays,
                   LayerMeter* meter, CallSite where) {
  Runner(device, options, arrays, meter, where, false).run(forward_steps(options.plan));
}

void layer_backward(Device& device, const LayerOptions& options, LayerArrays& arrays,
                    LayerMeter* meter, CallSite where) {
  Runner(device, options, arrays, meter, where, false).run(backward_steps(options.plan));
}

}  // namespace kref
