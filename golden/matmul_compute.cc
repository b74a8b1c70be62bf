// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_compute.h"

#include <algorithm>
#include <cstring>

#include "golden/run_launch.h"
#include "kernels/matmul.h"
#include "sharding/sharded_matmul.h"

namespace kref {
Array contraction_copy(const Array& operand, bool k_last,
                       const std::vector<ContractionRange>& ranges) {
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

std::map<std::string, Array> compute_matmul(const Run& run) {
  const MatmulRun request = read_matmul(run);
  const Array &x = run.in.at("x"), &y = run.in.at("y");
  // One that is chosen says nothing of a TPU: the grid chooses the same.
  MatmulTile tile;
  if (run.set.contains("tile")) tile = {request.tile[0], request.tile[1], request.tile[2]};
  Array z;
  if (request.placement) {
    const MatmulSpecs specs{spec_of(run.in_specs, "x"), spec_of(run.in_specs, "y"),
                            spec_of(run.out_specs, "z")};
    z = sharded_matmul(*run.mesh, specs, x, y,
                       {.trans_x = request.trans_x,
                        .trans_y = request.trans_y,
                        .precision = request.precision,
                        .out_dtype = request.out_dtype,
                        .tile = tile,
                        .launch = run_launch()});
  } else {
    z = Array::unwritten(request.out_dtype, request.z_shape());
    matmul(x, y, z.mutable_ref(), {request.trans_x, request.trans_y, request.precision, tile});
  }
  std::map<std::string, Array> out;
  out.emplace("z", std::move(z));
  return out;
}

}  // namespace kref
