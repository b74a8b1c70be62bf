// SPDX-License-Identifier: Apache-2.0
// Placed matmuls in words.
#include "dsl/array.h"
#include "sharding/matmul_placement.h"

namespace kref {

std::string to_string(MatmulCase which) {
  switch (which) {
    case MatmulCase::kNoContraction:
      return "case 1 (no contraction sharded)";
    case MatmulCase::kOneSide:
      return "case 2 (contraction sharded on one side)";
    case MatmulCase::kBothSides:
      return "case 3 (contraction sharded on both sides)";
    case MatmulCase::kFreeConflict:
      return "case 4 (an axis on free dimensions of both sides)";
  }
  return "?";
}

std::string to_string(const MatmulDim& dim) {
  switch (dim.kind) {
    case MatmulDim::Kind::kNone:
      return "";
    case MatmulDim::Kind::kBatch:
      return detail::cat("batch ", dim.batch);
    case MatmulDim::Kind::kRows:
      return "rows";
    case MatmulDim::Kind::kContraction:
      return "contraction";
    case MatmulDim::Kind::kColumns:
      return "columns";
  }
  return "?";
}

std::string to_string(const MatmulStep& step) {
  const bool whole = step.dim.kind == MatmulDim::Kind::kNone;
  const std::string along = whole ? "" : detail::cat(" along ", to_string(step.dim));
  const std::string over = axes_string(step.axes);
  switch (step.kind) {
    case MatmulStep::Kind::kAllGather:
      return detail::cat("all_gather ", step.operand, along, " over ", over);
    case MatmulStep::Kind::kSlice:
      return detail::cat("slice ", step.operand, along, " over ", over);
    case MatmulStep::Kind::kMultiply:
      return "multiply";
    case MatmulStep::Kind::kPsumScatter:
      return detail::cat("psum_scatter ", step.operand, along, " over ", over);
    case MatmulStep::Kind::kPsum:
      return detail::cat("psum ", step.operand, " over ", over);
    case MatmulStep::Kind::kKeepPartial:
      return detail::cat("keep the partial sums over ", over);
  }
  return "?";
}

std::string to_string(const MatmulPlacement& placement) {
  std::string out = to_string(placement.which);
  for (const MatmulStep& step : placement.steps) {
    out += detail::cat("\n  ", to_string(step));
    if (step.kind != MatmulStep::Kind::kMultiply) continue;
    MatmulShape local = placement.local;
    local.trans_x = local.trans_y = false;
    out += detail::cat(" ", shape_string(local.x()), " by ", shape_string(local.y()));
  }
  return out;
}

}  // namespace kref
