// SPDX-License-Identifier: Apache-2.0
// One device's part of a layer: its steps, one after the other.
#include "sharding/layer_run.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "sharding/layer_math.h"
#include "sharding/local_math.h"

namespace kref {
namespace {

// Runs a list of steps on one device's arrays.
class Runner {
 public:
  Runner(Device& device, const LayerOptions& options, LayerArrays& arrays, LayerMeter* meter,
         CallSite where)
      : device_(device),
        options_(options),
        arrays_(arrays),
        meter_(meter),
        where_(where),
        dtype_(arrays.at("x").dtype()) {}

  void run(const std::vector<LayerStep>& steps) {
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
      started_.emplace(
          i, std::visit(
                 [&](const auto& op) { return op.start(device_, arrays_.at(step.in[0]), where_); },
                 step.collective));
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
        arrays_[step.out] = apply(step.collective, device_, in, where_);
        return;
      case Kind::kProduct:
        arrays_[step.out] = product(step);
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

  void measure() {
    if (meter_ == nullptr) return;
    std::size_t bytes = 0;
    for (const auto& entry : arrays_) bytes += entry.second.bytes();
    meter_->peak_bytes = std::max(meter_->peak_bytes, bytes);
  }

  Device& device_;
  const LayerOptions& options_;
  LayerArrays& arrays_;
  LayerMeter* meter_;
  CallSite where_;
  DType dtype_;
  std::map<std::size_t, Pending> started_;  // by the step, in the background
  std::vector<std::size_t> late_;           // steps that were put off, in order
  std::set<std::string> late_names_;        // what they make
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
    Runner(device, options, arrays, nullptr, where).run(forward);
    Runner(device, options, arrays, meter, where).run(part_steps);
    const Array& made = arrays.at("ct.x");
    if (made.bytes() > 0 && made.data() != nullptr) {
      std::memcpy(
          static_cast<char*>(ct_x.mutable_data()) + static_cast<std::size_t>(m) * made.bytes(),
          made.data(), made.bytes());
    }
  }
  Runner(device, options, arrays, meter, where).run(reduction_steps(options.plan));
  arrays["ct.x"] = std::move(ct_x);
}

void layer_forward(Device& device, const LayerOptions& options, LayerArrays& arrays,
                   LayerMeter* meter, CallSite where) {
  Runner(device, options, arrays, meter, where).run(forward_steps(options.plan));
}

void layer_backward(Device& device, const LayerOptions& options, LayerArrays& arrays,
                    LayerMeter* meter, CallSite where) {
  Runner(device, options, arrays, meter, where).run(backward_steps(options.plan));
}

}  // namespace kref
