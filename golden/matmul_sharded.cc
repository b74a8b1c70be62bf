// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_sharded.h"

#include <algorithm>
#include <memory>

#include "dsl/flat_index.h"
#include "golden/matmul_bound.h"
#include "golden/matmul_compute.h"
#include "golden/matmul_precision.h"

namespace kref {
namespace {

using Ranges = std::vector<ContractionRange>;

// Appends the parts' elements, one part after the other.
template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// One hypothesis over all parts: each element asks the part it lies in.
Hypothesis joined(const std::vector<Expectation>& parts, std::size_t which, Index part_size) {
  auto each = std::make_shared<std::vector<Hypothesis>>();
  for (const Expectation& part : parts) each->push_back(part.hypotheses[which]);
  Hypothesis out = each->front();
  out.all = [each](Index choice) {
    std::vector<double> values;
    for (const Hypothesis& one : *each) append(values, one.all(choice));
    return values;
  };
  out.values = [each, part_size](Index element, std::vector<double>& values) {
    (*each)[static_cast<std::size_t>(element / part_size)].values(element % part_size, values);
  };
  return out;
}

// The parts of an unreduced output as one expectation; `leading` dimensions are in front.
Expectation stacked(std::vector<Expectation> parts, Index part_size, const OutSpec& spec) {
  if (parts.size() == 1 && spec.unreduced.empty()) return std::move(parts[0]);
  Expectation out;
  out.output = parts[0].output;
  const bool overflow = std::any_of(parts.begin(), parts.end(),
                                    [](const Expectation& e) { return !e.overflow.empty(); });
  for (Expectation& part : parts) {
    append(out.value, part.value);
    append(out.likely, part.likely);
    append(out.worst, part.worst);
    if (overflow) {
      part.overflow.resize(part.value.size(), Expectation::kNoOverflow);
      append(out.overflow, part.overflow);
    }
  }
  out.blocks = parts[0].blocks;
  // The device says which of them it is.
  out.blocks.axes.insert(out.blocks.axes.begin(), spec.unreduced.size(), std::string());
  out.blocks.extents.insert(out.blocks.extents.begin(), spec.unreduced.size(), 1);
  // Every part has equally many products, so equally many choices.
  for (std::size_t h = 0; h < parts[0].hypotheses.size(); ++h) {
    out.hypotheses.push_back(joined(parts, h, part_size));
  }
  return out;
}

// Sets what one device's grid runs over: the part of z that it multiplies. (Where partial sums are
// scattered, it keeps less than that.)
void set_shards(const MatmulRun& request, Blocks& blocks) {
  const MatmulPlacement& placement = *request.placement;
  const std::vector<Index> shard = placement.local.z();
  blocks.shards.assign(blocks.extents.size() - shard.size(), 1);
  blocks.shards.insert(blocks.shards.end(), shard.begin(), shard.end());
  const Index last = cdiv(placement.local.k, request.tile[2]) - 1;
  blocks.steps = last < 0 ? "" : last == 0 ? "k=0" : "k=0.." + std::to_string(last);
}

std::vector<Expectation> expect_parts(const Run& run) {
  const MatmulRun request = read_matmul(run);
  if (!request.placement) return expect_matmul(run);
  const MatmulPlacement& placement = *request.placement;
  const std::vector<Ranges> ranges = contraction_parts(placement);
  // One device's run of the same product over the ranges of each part.
  Run one = run;
  one.mesh.reset();
  one.in_specs.clear();
  one.out_specs.clear();
  one.set["tile"] = request.tile;
  std::vector<Expectation> parts;
  for (const Ranges& part : ranges) {
    if (ranges.size() > 1) {
      one.in.at("x") = contraction_copy(run.in.at("x"), !request.trans_x, part);
      one.in.at("y") = contraction_copy(run.in.at("y"), request.trans_y, part);
    }
    parts.push_back(std::move(expect_matmul(one).at(0)));
  }
  Index part_size = 1;
  for (const Index extent : placement.shape.z()) part_size *= extent;
  std::vector<Expectation> out;
  out.push_back(stacked(std::move(parts), part_size, placement.out));
  set_shards(request, out[0].blocks);
  out[0].owner.shard = local_shape(placement.out.spec, placement.shape.z(), placement.mesh);
  out[0].owner.shard.insert(out[0].owner.shard.begin(), placement.out.unreduced.size(), 1);
  for (Index& extent : out[0].owner.shard) extent = std::max<Index>(1, extent);
  out[0].owner.device = [spec = placement.out, shape = placement.output_shape(),
                         mesh = placement.mesh](Index element) {
    return owner_name(spec, shape, mesh, unravel(element, shape));
  };
  return out;
}

}  // namespace

std::vector<Expectation> expect_sharded_matmul(const Run& run) {
  std::vector<Expectation> out = expect_parts(run);
  out[0].alternatives = other_precisions(run);
  return out;
}

}  // namespace kref
