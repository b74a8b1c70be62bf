// SPDX-License-Identifier: Apache-2.0
// What a placed matmul costs each device: flops, and bytes by collective.
#include <cstdio>

#include "sharding/collective_traits.h"
#include "sharding/matmul_program.h"
#include "sharding/sharded_matmul.h"

namespace kref {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// Follows the shapes of a device's arrays through the actions.
class Pricer {
 public:
  Pricer(const MatmulPlacement& placement, DType dtype)
      : placement_(placement), types_{dtype, dtype, accumulator_of(dtype)} {
    // From the sizes behind the gathers and slices back to the blocks.
    shapes_[2] = placement.local.z();
    shapes_[0] = placement.local.x();
    shapes_[1] = placement.local.y();
  }

  MatmulWork price() {
    const std::vector<detail::MatmulAction> actions = detail::matmul_actions(placement_);
    const MatmulShape& local = placement_.local;
    work_.flops = 2.0 * static_cast<double>(local.m) * static_cast<double>(local.n) *
                  static_cast<double>(local.k);
    for (const Index b : local.batch) work_.flops *= static_cast<double>(b);
    // The operands as they are stored: undo what is done to them before the product.
    for (std::size_t i = actions.size(); i-- > 0;) {
      if (const auto* gather = std::get_if<AllGather>(&actions[i].what)) {
        extent(actions[i].operand, gather->axis) /= size(gather->axis_name);
      } else if (const auto* slice = std::get_if<OwnSlice>(&actions[i].what)) {
        if (actions[i].operand != 'z') {
          extent(actions[i].operand, slice->axis) *= size(slice->axis_name);
        }
      }
    }
    for (const detail::MatmulAction& action : actions) step(action);
    return std::move(work_);
  }

 private:
  Index size(const AxisNames& axes) const { return axis_size(placement_.mesh, axes); }
  std::vector<Index>& shape(char operand) { return shapes_[operand - 'x']; }
  Index& extent(char operand, Index d) { return shape(operand)[static_cast<std::size_t>(d)]; }

  template <class Op>
  void transfer(const Op& op, char operand, const std::vector<Index>& in) {
    const Index n = size(op.axis_name);
    const auto bytes = static_cast<double>(op.sent_bytes(in, types_[operand - 'x'], n));
    if constexpr (!std::is_same_v<Op, OwnSlice>) {
      work_.transfers.push_back({to_string(LinearCollective(op)) + " of " + operand, bytes,
                                 *detail::traffic_of(op), op.axis_name.names});
    }
  }

  void step(const detail::MatmulAction& action) {
    const char operand = action.operand;
    if (std::holds_alternative<detail::LocalProduct>(action.what)) return;
    if (const auto* parts = std::get_if<detail::ScatterParts>(&action.what)) {
      std::vector<Index> part = shape(operand);
      for (const MatmulStep& cut : parts->cuts) {
        part[detail::stored_dimension(placement_.shape, cut)] /=
            block_count(cut.axes, placement_.mesh);
      }
      const Index elements = detail::checked_product("z", part.data(), part.size());
      transfer(parts->sum, operand, {size(parts->sum.axis_name), elements});
      shape(operand) = part;
      return;
    }
    const auto one = [&](const auto& op) {
      transfer(op, operand, shape(operand));
      shape(operand) = op.result_shape(shape(operand), size(op.axis_name));
    };
    if (const auto* gather = std::get_if<AllGather>(&action.what)) one(*gather);
    if (const auto* slice = std::get_if<OwnSlice>(&action.what)) one(*slice);
    if (const auto* sum = std::get_if<Psum>(&action.what)) one(*sum);
    if (const auto* scatter = std::get_if<PsumScatter>(&action.what)) one(*scatter);
  }

  const MatmulPlacement& placement_;
  DType types_[3];
  std::vector<Index> shapes_[3];
  MatmulWork work_;
};

}  // namespace

double MatmulWork::bytes() const {
  double sum = 0;
  for (const Transfer& one : transfers) sum += one.bytes;
  return sum;
}

MatmulWork matmul_work(const MatmulPlacement& placement, DType dtype) {
  return Pricer(placement, dtype).price();
}

std::string to_string(const MatmulWork& work) {
  std::string out = number(work.flops) + " flops a device";
  for (const MatmulWork::Transfer& one : work.transfers) {
    out += "\n  " + one.collective + ": " + number(one.bytes) + " bytes sent by a device";
  }
  if (work.transfers.empty()) out += "\n  nothing is sent";
  return out;
}

}  // namespace kref
