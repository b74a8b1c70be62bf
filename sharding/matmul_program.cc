// SPDX-License-Identifier: Apache-2.0
#include "sharding/matmul_program.h"

#include <algorithm>

namespace kref::detail {
namespace {

using Axes = std::vector<std::string>;
using Kind = MatmulStep::Kind;

MatmulAction slice_action(const MatmulShape& shape, const MatmulStep& step) {
  const auto d = static_cast<Index>(stored_dimension(shape, step));
  return {step.operand[0], OwnSlice{.axis_name = step.axes, .axis = d, .tiled = true}};
}

// What follows the product: sums over the axes of the contraction that z does not keep apart, and
// slices.
void add_sums(const MatmulPlacement& placement, const std::vector<MatmulStep>& after,
              std::vector<MatmulAction>& out) {
  const MatmulShape& shape = placement.shape;
  Axes summed;
  for (const std::string& axis : placement.contraction) {
    if (std::ranges::count(placement.out.unreduced, axis) == 0) summed.push_back(axis);
  }
  const auto scatters = std::ranges::count(after, Kind::kPsumScatter, &MatmulStep::kind);
  const auto slices = [&](auto begin) {
    for (auto step = begin; step != after.end(); ++step) {
      if (step->kind == Kind::kSlice) out.push_back(slice_action(shape, *step));
    }
  };
  if (summed.empty() || scatters == 0) {
    if (!summed.empty()) out.push_back({'z', Psum{.axis_name = summed}});
    slices(after.begin());
    return;
  }
  const auto first = std::ranges::find(after, Kind::kPsumScatter, &MatmulStep::kind);
  if (scatters == 1 && first->axes == summed) {
    out.push_back(
        {'z', PsumScatter{.axis_name = summed,
                          .scatter_dimension = static_cast<Index>(stored_dimension(shape, *first)),
                          .tiled = true}});
    slices(after.begin());
    return;
  }
  ScatterParts parts{PsumScatter{.axis_name = summed}, {}};
  for (const MatmulStep& step : after) {
    if (step.kind != Kind::kPsum && step.kind != Kind::kKeepPartial) parts.cuts.push_back(step);
  }
  out.push_back({'z', std::move(parts)});
}

}  // namespace

std::size_t stored_dimension(const MatmulShape& shape, const MatmulStep& step) {
  using Dim = MatmulDim::Kind;
  if (step.dim.kind == Dim::kBatch) return step.dim.batch;
  const std::size_t batch = step.operand == "y" && shape.shared_y ? 0 : shape.batch.size();
  if (step.operand == "z") return batch + (step.dim.kind == Dim::kRows ? 0 : 1);
  const bool transposed = step.operand == "x" ? shape.trans_x : shape.trans_y;
  // x is [rows, contraction], y is [contraction, columns].
  const bool second = step.dim.kind == (step.operand == "x" ? Dim::kContraction : Dim::kColumns);
  return batch + (second != transposed ? 1 : 0);
}

std::vector<MatmulAction> matmul_actions(const MatmulPlacement& placement) {
  std::vector<MatmulAction> out;
  std::vector<MatmulStep> after;
  bool multiplied = false;
  for (const MatmulStep& step : placement.steps) {
    if (step.kind == Kind::kMultiply) {
      multiplied = true;
      out.push_back({'z', LocalProduct{}});
    } else if (multiplied) {
      after.push_back(step);
    } else if (step.kind == Kind::kSlice) {
      out.push_back(slice_action(placement.shape, step));
    } else {
      const auto d = static_cast<Index>(stored_dimension(placement.shape, step));
      out.push_back({step.operand[0], AllGather{.axis_name = step.axes, .axis = d, .tiled = true}});
    }
  }
  add_sums(placement, after, out);
  return out;
}

}  // namespace kref::detail
