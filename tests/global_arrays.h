// SPDX-License-Identifier: Apache-2.0
// Global arrays through one collective, for tests of the behaviours of sharding_semantics
// section 9.
#pragma once

#include <functional>
#include <vector>

#include "sharding/collective_calls.h"
#include "sharding/shard_map.h"

namespace kref {

using Extents = std::vector<Index>;
using Values = std::vector<double>;

inline Array array_of(const Extents& shape, const Values& values, DType type = DType::kF32) {
  Array out(type, shape);
  with_dtype(type, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      out.mutable_elements<T>()[i] = static_cast<T>(values[i]);
    }
  });
  return out;
}

inline Array arange(const Extents& shape, DType type = DType::kF32) {
  Array out(type, shape);
  Values values;
  for (Index i = 0; i < out.size(); ++i) values.push_back(static_cast<double>(i));
  return array_of(shape, values, type);
}

inline Values values_of(const Array& x) {
  Values out;
  for (Index i = 0; i < x.size(); ++i) out.push_back(x.at(i));
  return out;
}

using Body = std::function<Array(Device&, const Array&)>;
// shard_map of one argument.
inline Array mapped(const Mesh& mesh, const PartitionSpec& in, const PartitionSpec& out,
                    const Array& x, const Body& body) {
  return shard_map(mesh, {.in_specs = in, .out_specs = out}, body)(x);
}

inline const Mesh kCube = Mesh::parse("x=2,y=2,z=2");
inline const Mesh kEight = Mesh::parse("x=8"), kFour = Mesh::parse("x=4");
inline const AxisIndexGroups kParity = {{0, 2, 4, 6}, {1, 3, 5, 7}};

}  // namespace kref
