// SPDX-License-Identifier: Apache-2.0
// What one device computes and sends in each step of a layer: its shapes, followed through the
// list.
#include <map>

#include "kernels/dot.h"
#include "sharding/collective_traits.h"
#include "sharding/layer_steps.h"

namespace kref {
namespace {

struct Shaped {
  std::vector<Index> shape;
  DType dtype;
};

// The shapes of all arrays that a device has.
class Follower {
 public:
  Follower(const Mesh& mesh, DType dtype, DType hidden)
      : mesh_(mesh), dtype_(dtype), hidden_(hidden) {}

  void set(const std::string& name, std::vector<Index> shape, DType dtype) {
    all_[name] = {std::move(shape), dtype};
  }

  LayerStepWork follow(const LayerStep& step) {
    using Kind = LayerStep::Kind;
    const Shaped& in = all_.at(step.in[0]);
    switch (step.kind) {
      case Kind::kCollective:
        return collect(step, in);
      case Kind::kProduct:
      case Kind::kAddProduct:
        return multiply(step, in);
      case Kind::kHidden:
        set(step.out, in.shape, hidden_);
        break;
      case Kind::kHiddenCotangent:
        set("ct.a", in.shape, DType::kF32);
        set("ct.g", in.shape, DType::kF32);
        break;
      case Kind::kRound:
        set(step.out, in.shape, dtype_);
        break;
      case Kind::kDrop:
        break;
    }
    return {};
  }

 private:
  LayerStepWork collect(const LayerStep& step, const Shaped& in) {
    const Index n = axis_size(mesh_, axis_name(step.collective));
    return std::visit(
        [&](const auto& op) {
          const auto bytes = static_cast<double>(op.sent_bytes(in.shape, in.dtype, n));
          set(step.out, op.result_shape(in.shape, n), op.result_dtype(in.dtype));
          LayerStepWork work{0, bytes};
          // Those that move nothing say nothing.
          work.traffic = detail::traffic_of(op).value_or(Traffic::kAllGather);
          work.axes = op.axis_name.names;
          work.whole = static_cast<double>(
              detail::checked_product("array", in.shape.data(), in.shape.size()));
          if (work.traffic == Traffic::kAllGather) work.whole *= static_cast<double>(n);
          return work;
        },
        step.collective);
  }

  LayerStepWork multiply(const LayerStep& step, const Shaped& x) {
    const Shaped& y = all_.at(step.in[1]);
    const Index m = x.shape[step.trans_x ? 1 : 0], k = x.shape[step.trans_x ? 0 : 1];
    const Index n = y.shape[step.trans_y ? 0 : 1];
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    set(step.out, {m, n}, DType::kF32);
    return {flops, 0, m, n, k};
  }

  const Mesh& mesh_;
  DType dtype_, hidden_;
  std::map<std::string, Shaped> all_;
};

}  // namespace

std::vector<LayerStepWork> layer_work(const LayerPlan& plan, const std::vector<LayerStep>& steps,
                                      const Mesh& mesh, Index b, Index d, Index f, DType dtype,
                                      DType hidden) {
  const LayerSpecs specs = layer_specs(plan);
  Follower follower(mesh, dtype, hidden);
  const auto local = [&](const PartitionSpec& spec, Index rows, Index columns) {
    return local_shape(spec, std::vector<Index>{rows, columns}, mesh);
  };
  follower.set("x", local(specs.x, b, d), dtype);
  follower.set("ct.y", local(specs.x, b, d), dtype);
  follower.set("w_in", local(specs.w_in, d, f), dtype);
  follower.set("w_gate", local(specs.w_in, d, f), dtype);
  follower.set("w_out", local(specs.w_out, f, d), dtype);
  // What forward leaves to backward.
  std::vector<std::string> rows;
  if (!plan.slice_axis.empty()) rows.push_back(plan.slice_axis);
  if (uses_data_axis(plan.strategy)) rows.push_back(plan.data_axis);
  const SpecEntry model = uses_model_axis(plan.strategy) ? SpecEntry(plan.model_axis) : none;
  // Features that stay apart.
  const SpecEntry part = splits_features(plan.strategy) ? SpecEntry(plan.data_axis) : none;
  const P tile = {SpecEntry(rows), model}, whole = {SpecEntry(rows), part};
  follower.set("a", local(tile, b, f), DType::kF32);
  follower.set("g", local(tile, b, f), DType::kF32);
  follower.set("h", local(tile, b, f), hidden);
  follower.set("x_all", local(whole, b, d), dtype);
  // The sums that are reduced after accumulation.
  const P in_sum = {part, model}, out_sum = {model, part};
  follower.set("ct.w_in_sum", local(in_sum, d, f), DType::kF32);
  follower.set("ct.w_gate_sum", local(in_sum, d, f), DType::kF32);
  follower.set("ct.w_out_sum", local(out_sum, f, d), DType::kF32);
  std::vector<LayerStepWork> out;
  for (const LayerStep& step : steps) out.push_back(follower.follow(step));
  return out;
}

}  // namespace kref
