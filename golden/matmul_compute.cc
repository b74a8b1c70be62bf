// SPDX-License-Identifier: Apache-2.0
#include "golden/matmul_compute.h"

#include <algorithm>
#include <cstring>

#include "kernels/matmul.h"

namespace kref {
namespace {

// sum += part, in the accumulator's arithmetic; integers wrap.
void add(const Array& part, Array& sum) {
  if (part.dtype() == DType::kI32) {
    const auto from = part.elements<std::int32_t>();
    const auto to = sum.mutable_elements<std::int32_t>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(to[i]) +
                                        static_cast<std::uint32_t>(from[i]));
    }
  } else if (part.dtype() == DType::kF64) {
    const auto from = part.elements<double>();
    const auto to = sum.mutable_elements<double>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  } else {
    const auto from = part.elements<float>();
    const auto to = sum.mutable_elements<float>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }
}

// Rounds `sum` into z from its element `at` on.
void round_into(const Array& sum, Array& z, Index at) {
  with_dtype(z.dtype(), [&]<class T>() {
    const auto to = z.mutable_elements<T>().subspan(static_cast<std::size_t>(at));
    for (Index i = 0; i < sum.size(); ++i)
      to[static_cast<std::size_t>(i)] = static_cast<T>(sum.at(i));
  });
}

}  // namespace

ArrayRef contraction_view(const ArrayRef& operand, bool k_last, ContractionRange range) {
  ArrayRef view = operand;
  const std::size_t d = operand.rank - (k_last ? 1 : 2);
  const auto offset = static_cast<std::size_t>(range.begin * view.strides[d]);
  view.extents[d] = range.end - range.begin;
  view.data = static_cast<const unsigned char*>(operand.data) + offset * size_of(operand.dtype);
  return view;
}

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
  Array z(request.out_dtype, request.z_shape());
  const MatmulOptions options{request.trans_x,
                              request.trans_y,
                              request.precision,
                              {request.tile[0], request.tile[1], request.tile[2]}};
  const auto parts = request.placement ? contraction_parts(*request.placement)
                                       : std::vector<std::vector<ContractionRange>>();
  if (parts.empty() || (parts.size() == 1 && parts[0].size() == 1)) {
    matmul(x, y, z.mutable_ref(), options);
  } else {
    const std::vector<Index> shape = request.placement->shape.z();
    const DType type = accumulator_of(x.dtype());
    Array sum(type, shape), part(type, shape);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (std::size_t r = 0; r < parts[p].size(); ++r) {
        matmul(contraction_view(x, !request.trans_x, parts[p][r]),
               contraction_view(y, request.trans_y, parts[p][r]),
               (r == 0 ? sum : part).mutable_ref(), options);
        if (r > 0) add(part, sum);
      }
      round_into(sum, z, static_cast<Index>(p) * sum.size());
    }
  }
  std::map<std::string, Array> out;
  out.emplace("z", std::move(z));
  return out;
}

}  // namespace kref
