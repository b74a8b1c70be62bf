// SPDX-License-Identifier: Apache-2.0
// Arrays of small integers for the tests of sharded code, and what they hold.
#pragma once

#include <initializer_list>
#include <vector>

#include "dsl/array.h"
#include "dsl/flat_index.h"
#include "sharding/mesh.h"
#include "sharding/partition_spec.h"

namespace kref {

// 0, 1, 2, ... plus `first`, row-major.
inline Array iota(const std::vector<Index>& shape, Index first = 0, DType type = DType::kF32) {
  Array out = Array::unwritten(type, shape);
  with_dtype(type, [&]<class T>() {
    Index next = first;
    for (T& v : out.mutable_elements<T>()) v = static_cast<T>(static_cast<float>(next++));
  });
  return out;
}

// The same value everywhere.
inline Array full(const std::vector<Index>& shape, float value) {
  Array out = Array::unwritten(DType::kF32, shape);
  for (float& v : out.mutable_elements<float>()) v = value;
  return out;
}

// Small integers of both signs without a pattern that a mistake in an index would keep.
inline Array mixed(const std::vector<Index>& shape, unsigned seed, DType type = DType::kF32) {
  Array out = Array::unwritten(type, shape);
  unsigned state = seed * 2654435761u + 1;
  with_dtype(type, [&]<class T>() {
    for (T& v : out.mutable_elements<T>()) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<T>(static_cast<float>(static_cast<int>(state >> 24) % 9 - 4));
    }
  });
  return out;
}

inline Array array_of(const std::vector<Index>& shape, const std::vector<float>& values) {
  Array out = Array::unwritten(DType::kF32, shape);
  std::copy(values.begin(), values.end(), out.mutable_elements<float>().begin());
  return out;
}

inline std::vector<double> values(const Array& array) {
  std::vector<double> out;
  for (Index i = 0; i < array.size(); ++i) out.push_back(array.at(i));
  return out;
}

inline std::vector<Index> shape_of(const Array& array) {
  return {array.shape().begin(), array.shape().end()};
}

}  // namespace kref
