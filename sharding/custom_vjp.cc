// SPDX-License-Identifier: Apache-2.0
#include "sharding/custom_vjp.h"

#include <algorithm>

#include "sharding/block_view.h"
#include "sharding/graph.h"
#include "sharding/value_rules.h"

namespace kref {
namespace detail {
namespace {

// What would bring a cotangent's state to the expected one, for the message.
std::string hint(const Value& ct, const ValueState& expected) {
  std::vector<std::string> vary, reduce;
  const Mesh& mesh = ct.mesh();
  for (std::size_t k = 0; k < mesh.axes().size(); ++k) {
    const AxisState is = ct.state().axes[k], wanted = expected.axes[k];
    if (is == AxisState::kInvarying && wanted == AxisState::kVarying) {
      vary.push_back(mesh.axes()[k].name);
    }
    if (is == AxisState::kVarying && wanted == AxisState::kInvarying) {
      reduce.push_back(mesh.axes()[k].name);
    }
  }
  if (!vary.empty()) {
    return cat("; hint: give pcast(..., ", to_string(AxisNames(vary)), ", to='varying') of it");
  }
  if (!reduce.empty())
    return cat("; hint: give psum(..., ", to_string(AxisNames(reduce)), ") of it");
  return "";
}

// The result of fwd, whose cotangent goes to the arguments by bwd.
class CustomVjpPrimitive final : public Primitive {
 public:
  explicit CustomVjpPrimitive(std::function<std::vector<Value>(const Value&)> bwd)
      : bwd_(std::move(bwd)) {}
  std::string name() const override { return "custom_vjp"; }
  Array run(Device&, std::span<const Array> inputs, CallSite) const override { return inputs[0]; }

  Cotangents pull_back(const Value& ct, std::span<const Value> inputs, const Value&,
                       CallSite) const override {
    const std::vector<Value> each = bwd_(ct);
    const std::span<const Value> arguments = inputs.subspan(1);
    KREF_CHECK(each.size() == arguments.size(), "custom_vjp: bwd gave ", each.size(),
               " cotangents, but fwd has ", arguments.size(), " arguments");
    Cotangents out = {std::nullopt};  // y itself: how fwd made it does not count
    for (std::size_t i = 0; i < each.size(); ++i) {
      check(each[i], arguments[i], i);
      out.push_back(each[i]);
    }
    return out;
  }

 private:
  static void check(const Value& ct, const Value& argument, std::size_t i) {
    KREF_CHECK(ct.dtype() == argument.dtype(), "custom_vjp: for argument ", i, " bwd gave a ",
               "cotangent of type ", name_of(ct.dtype()), " (", ct.type(),
               "), expected the type of the argument, ", name_of(argument.dtype()), " (",
               argument.type(), ')');
    KREF_CHECK(std::ranges::equal(ct.shape(), argument.shape()), "custom_vjp: for argument ", i,
               " bwd gave a cotangent of shape ", shape_string(ct.shape()), " (", ct.type(),
               "), expected the shape of the argument, ", shape_string(argument.shape()), " (",
               argument.type(), ')');
    if (!ct.graph().checked()) return;
    const ValueState expected = cotangent(argument.state());
    KREF_CHECK(ct.state() == expected, "custom_vjp: for argument ", i, ", a ", argument.type(),
               ", bwd gave a cotangent ", ct.type(), ", expected ",
               type_string(argument.dtype(), argument.shape(), expected, argument.mesh()),
               hint(ct, expected));
  }

  std::function<std::vector<Value>(const Value&)> bwd_;
};

class DeviceCallPrimitive final : public Primitive {
 public:
  DeviceCallPrimitive(std::string name, DType dtype, std::vector<Index> shape, DeviceFunction run)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)), run_(std::move(run)) {}
  std::string name() const override { return name_; }
  Array run(Device& device, std::span<const Array> inputs, CallSite) const override {
    Array out = run_(device, inputs);
    check_has_memory(out, name_ + ": the result");
    KREF_CHECK(out.dtype() == dtype_ && std::ranges::equal(out.shape(), shape_), name_, " gave ",
               to_string(out.ref()), ", declared as ", name_of(dtype_), shape_string(shape_));
    return out;
  }

 private:
  std::string name_;
  DType dtype_;
  std::vector<Index> shape_;
  DeviceFunction run_;
};

}  // namespace

Value with_cotangents(const Value& y, std::span<const Value> arguments,
                      std::function<std::vector<Value>(const Value&)> bwd, CallSite where) {
  std::vector<Value> inputs = {y};
  inputs.insert(inputs.end(), arguments.begin(), arguments.end());
  return y.graph().add(std::make_shared<CustomVjpPrimitive>(std::move(bwd)), inputs, y.dtype(),
                       extents_of(y), y.state(), where);
}

Value device_call_as(const std::string& name, const std::vector<Value>& inputs, DType dtype,
                     const std::vector<Index>& shape, ValueState state, DeviceFunction run,
                     CallSite where) {
  return inputs[0].graph().add(
      std::make_shared<DeviceCallPrimitive>(name, dtype, shape, std::move(run)), inputs, dtype,
      shape, std::move(state), where);
}

}  // namespace detail

Value device_call(const std::string& name, const std::vector<Value>& inputs, DType dtype,
                  const std::vector<Index>& shape, DeviceFunction run, CallSite where) {
  KREF_CHECK(!inputs.empty(), name, ": device_call without an input");
  KREF_CHECK(run != nullptr, name, ": device_call without a function to run");
  const detail::Promoted all = detail::promoted(name, inputs, where);
  ValueState state =
      detail::result_state(Arithmetic::kNonlinear, name, all.states, inputs[0].graph());
  return detail::device_call_as(name, all.operands, dtype, shape, std::move(state), std::move(run),
                                where);
}

Array MegatronF::fwd(Device&, const Array& x) const { return x; }
Array MegatronF::bwd(Device& device, const Array& ct) const { return psum(device, ct, axis_name); }
Array MegatronG::fwd(Device& device, const Array& x) const { return psum(device, x, axis_name); }
Array MegatronG::bwd(Device&, const Array& ct) const { return ct; }

Value megatron_f(const Value& x, const AxisNames& axis_name, CallSite where) {
  KREF_CHECK(x.graph().checked(),
             "megatron_f needs check_vma: without, psum transposes to psum, "
             "and x itself is what megatron_f is");
  return pvary(x, axis_name, where);
}

Value megatron_g(const Value& x, const AxisNames& axis_name, CallSite where) {
  KREF_CHECK(x.graph().checked(),
             "megatron_g needs check_vma: without, psum transposes to psum, "
             "and psum is what megatron_g is");
  return psum(x, axis_name, {}, where);
}

}  // namespace kref
