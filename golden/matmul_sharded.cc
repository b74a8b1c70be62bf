// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_sharded.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "golden/matmul_bound.h"
#include "golden/matmul_compute.h"

namespace kref {
namespace {

using Ranges = std::vector<ContractionRange>;

// The ranges of the contracting dimension side by side: a dense copy.
Array slice(const Array& operand, bool k_last, const Ranges& ranges) {
  Index k = 0;
  for (const ContractionRange& range : ranges) k += range.end - range.begin;
  std::vector<Index> shape(operand.shape().begin(), operand.shape().end());
  const std::size_t d = shape.size() - (k_last ? 1 : 2);
  const Index inner = k_last ? 1 : shape.back();
  Index outer = 1;
  for (std::size_t e = 0; e < d; ++e) outer *= shape[e];
  const Index whole = shape[d];
  shape[d] = k;
  Array out(operand.dtype(), shape);
  const std::size_t element = size_of(operand.dtype());
  auto* to = static_cast<unsigned char*>(out.mutable_data());
  const auto* from = static_cast<const unsigned char*>(operand.data());
  for (Index o = 0; o < outer; ++o) {
    for (const ContractionRange& range : ranges) {
      const auto start = static_cast<std::size_t>((o * whole + range.begin) * inner) * element;
      const auto bytes = static_cast<std::size_t>((range.end - range.begin) * inner) * element;
      if (bytes > 0) std::memcpy(to, from + start, bytes);
      to += bytes;
    }
  }
  return out;
}

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
  out.blocks.axes.insert(out.blocks.axes.begin(), spec.unreduced.begin(), spec.unreduced.end());
  out.blocks.extents.insert(out.blocks.extents.begin(), spec.unreduced.size(), 1);
  // Every part has equally many products, so equally many choices.
  for (std::size_t h = 0; h < parts[0].hypotheses.size(); ++h) {
    out.hypotheses.push_back(joined(parts, h, part_size));
  }
  return out;
}

std::vector<Index> unravel(Index element, const std::vector<Index>& shape) {
  std::vector<Index> at(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    at[d] = element % shape[d];
    element /= shape[d];
  }
  return at;
}

// The blocks of one device's grid over the global array.
void cut_blocks(const MatmulRun& request, Blocks& blocks) {
  const MatmulPlacement& placement = *request.placement;
  const std::vector<Index> shard =
      local_shape(placement.out.spec, placement.shape.z(), placement.mesh);
  const std::size_t leading = blocks.extents.size() - shard.size();
  for (std::size_t d = 0; d < shard.size(); ++d) {
    Index& extent = blocks.extents[leading + d];
    if (extent > shard[d] || shard[d] % extent != 0) extent = std::max<Index>(shard[d], 1);
  }
  const Index last = cdiv(placement.local.k, request.tile[2]) - 1;
  blocks.steps = last < 0 ? "" : last == 0 ? "k=0" : "k=0.." + std::to_string(last);
}

}  // namespace

std::vector<Expectation> expect_sharded_matmul(const Run& run) {
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
      one.in.at("x") = slice(run.in.at("x"), !request.trans_x, part);
      one.in.at("y") = slice(run.in.at("y"), request.trans_y, part);
    }
    parts.push_back(std::move(expect_matmul(one).at(0)));
  }
  Index part_size = 1;
  for (const Index extent : placement.shape.z()) part_size *= extent;
  std::vector<Expectation> out;
  out.push_back(stacked(std::move(parts), part_size, placement.out));
  cut_blocks(request, out[0].blocks);
  out[0].owner.device = [spec = placement.out, shape = placement.output_shape(),
                         mesh = placement.mesh](Index element) {
    return owner_name(spec, shape, mesh, unravel(element, shape));
  };
  return out;
}

}  // namespace kref
