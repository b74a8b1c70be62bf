// SPDX-License-Identifier: Apache-2.0
// Which step of a placed product becomes a ring.
#include <algorithm>

#include "sharding/collective_matmul.h"

namespace kref {
namespace {

using Kind = MatmulStep::Kind;

bool names(const MatmulStep& step, const std::string& axis) {
  return std::ranges::count(step.axes, axis) > 0;
}

// All steps on one line.
std::string listed(const MatmulPlacement& placement) {
  std::string out;
  for (const MatmulStep& step : placement.steps) {
    out += (out.empty() ? "" : "; ") + to_string(step);
  }
  return out;
}

RingTraveller traveller_of(const MatmulStep& step) {
  if (step.operand == "z") {
    return step.dim.kind == MatmulDim::Kind::kRows ? RingTraveller::kZRows
                                                   : RingTraveller::kZColumns;
  }
  if (step.dim.kind == MatmulDim::Kind::kContraction) {
    return step.operand == "x" ? RingTraveller::kXContraction : RingTraveller::kYContraction;
  }
  return step.operand == "x" ? RingTraveller::kXRows : RingTraveller::kYColumns;
}

char operand_of(RingTraveller traveller) {
  switch (traveller) {
    case RingTraveller::kXContraction:
    case RingTraveller::kXRows:
      return 'x';
    case RingTraveller::kYContraction:
    case RingTraveller::kYColumns:
      return 'y';
    case RingTraveller::kZRows:
    case RingTraveller::kZColumns:
      break;
  }
  return 'z';
}

// The dimension that goes round.
Index& travelling_size(RingTraveller traveller, MatmulShape& shape) {
  switch (traveller) {
    case RingTraveller::kXContraction:
    case RingTraveller::kYContraction:
      return shape.k;
    case RingTraveller::kXRows:
    case RingTraveller::kZRows:
      return shape.m;
    case RingTraveller::kYColumns:
    case RingTraveller::kZColumns:
      break;
  }
  return shape.n;
}

}  // namespace

const char* name_of(MatmulForm form) {
  return form == MatmulForm::kAllGather ? "all_gather" : "reduce_scatter";
}

const char* name_of(RingDirection direction) {
  return direction == RingDirection::kOne ? "one" : "both";
}

const char* to_string(RingTraveller traveller) {
  switch (traveller) {
    case RingTraveller::kXContraction:
      return "x's contracting dimension";
    case RingTraveller::kYContraction:
      return "y's contracting dimension";
    case RingTraveller::kXRows:
      return "x's rows";
    case RingTraveller::kYColumns:
      return "y's columns";
    case RingTraveller::kZRows:
      return "z's rows";
    case RingTraveller::kZColumns:
      return "z's columns";
  }
  return "?";
}

RingPlan plan_ring(const MatmulPlacement& placement, const std::string& axis_name,
                   std::optional<MatmulForm> form, RingDirection direction) {
  KREF_CHECK(placement.shape.batch.empty(), "collective matmul of batches ",
             shape_string(placement.shape.batch), ", expected x [M, K] and y [K, N]");
  KREF_CHECK(placement.mesh.find(axis_name), "unbound axis name '", axis_name, "', the mesh has ",
             placement.mesh.axes().empty() ? "no axes" : to_string(placement.mesh));
  const auto of_axis = [&](const MatmulStep& step) { return names(step, axis_name); };
  const auto step = std::ranges::find_if(placement.steps, of_axis);
  KREF_CHECK(step != placement.steps.end(), "nothing is gathered or scattered over '", axis_name,
             "' (the steps are: ", listed(placement), ")");
  KREF_CHECK(std::ranges::count_if(placement.steps, of_axis) == 1, "more than one step is over '",
             axis_name, "', expected one gather or scatter (the steps are: ", listed(placement),
             ")");
  const std::string found = to_string(*step);
  KREF_CHECK(step->kind == Kind::kAllGather || step->kind == Kind::kPsumScatter, "the step over '",
             axis_name, "' is: ", found, "; expected a gather of x or y, or a scattered z");
  // The others are gathered before, being minor, or scattered after.
  KREF_CHECK(step->axes[0] == axis_name, "the step over '", axis_name, "' is: ", found,
             "; expected '", axis_name, "' first");
  RingPlan plan{
      placement,
      axis_name,
      step->kind == Kind::kAllGather ? MatmulForm::kAllGather : MatmulForm::kReduceScatter,
      direction,
      traveller_of(*step),
      placement};
  KREF_CHECK(!form || *form == plan.form, "form is ", name_of(*form), ", but these specs ",
             plan.form == MatmulForm::kAllGather ? "gather " : "scatter ",
             to_string(plan.traveller), " over '", axis_name, "', which is ", name_of(plan.form));
  if (plan.form == MatmulForm::kReduceScatter) {
    const auto same = [&](const MatmulStep& other) {
      return other.operand == "z" && other.dim == step->dim;
    };
    const auto first = std::ranges::find_if(placement.steps, same);
    KREF_CHECK(first == step, "z is cut over ", axes_string(first->axes), " before it is over '",
               axis_name, "' along its ", to_string(step->dim), "; expected '", axis_name,
               "' first");
    std::erase(plan.rest.contraction, axis_name);
  }
  const auto kept = plan.rest.steps.begin() + (step - placement.steps.begin());
  kept->axes.erase(kept->axes.begin());
  if (kept->axes.empty()) plan.rest.steps.erase(kept);
  return plan;
}

MatmulWork ring_work(const RingPlan& plan, DType dtype) {
  const Index n = plan.placement.mesh.size(plan.axis_name);
  const char traveller = operand_of(plan.traveller);
  // Outside the ring a device has one block of what goes round, and the rest as it multiplies it.
  MatmulPlacement block = plan.rest;
  travelling_size(plan.traveller, block.local) /= n;
  const MatmulWork whole = matmul_work(plan.rest, dtype), part = matmul_work(block, dtype);

  const bool gathers = plan.form == MatmulForm::kAllGather;
  const std::vector<Index> shape = traveller == 'x'   ? block.local.x()
                                   : traveller == 'y' ? block.local.y()
                                                      : block.local.z();
  const Index elements = detail::checked_product("block", shape.data(), shape.size());
  const std::size_t size = size_of(gathers ? dtype : accumulator_of(dtype));
  const MatmulWork::Transfer ring{
      detail::cat("ring(", plan.axis_name, ") of ", traveller),
      static_cast<double>(n - 1) * static_cast<double>(elements) * static_cast<double>(size),
      gathers ? Traffic::kAllGather : Traffic::kReduceScatter,
      {plan.axis_name}};
  MatmulWork out;
  out.flops = whole.flops;
  bool behind = false;
  for (std::size_t i = 0; i < whole.transfers.size(); ++i) {
    const char operand = whole.transfers[i].collective.back();
    if (operand == 'z' && !behind) out.transfers.push_back(ring);
    behind = behind || operand == 'z';
    out.transfers.push_back((operand == traveller ? part : whole).transfers[i]);
  }
  if (!behind) out.transfers.push_back(ring);
  return out;
}

std::string to_string(const RingPlan& plan) {
  return detail::cat("round ", plan.axis_name, ": ", to_string(plan.traveller), ", ",
                     name_of(plan.form), ", ", name_of(plan.direction), " direction",
                     plan.direction == RingDirection::kBoth ? "s" : "");
}

}  // namespace kref
