// SPDX-License-Identifier: Apache-2.0
// Tensors of numbers that are easy to tell apart, and of random ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <type_traits>

#include "dsl/tensor.h"

namespace kref {

// 0, 1, 2, ... row-major.
template <std::size_t R>
Tensor<std::int32_t, R> counted(const Shape<R>& shape) {
  Tensor<std::int32_t, R> x(shape);
  std::iota(x.data(), x.data() + x.size(), 0);
  return x;
}

// Whether every element is this one.
template <class T, std::size_t R>
bool all(const Tensor<T, R>& x, T value) {
  return std::all_of(x.data(), x.data() + x.size(), [value](T v) { return v == value; });
}

// Whole numbers of 2 most + 1 neighbours round 0, of unsigned types from 0 on: no conversion of a
// float gives those a negative number. most = 0: normal ones.
template <class T, std::size_t R>
Tensor<T, R> random_block(const Shape<R>& shape, unsigned seed, unsigned most) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  const double low = std::is_unsigned_v<T> ? 0 : -static_cast<double>(most);
  Tensor<T, R> x(shape);
  for (Index i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<T>(most > 0 ? static_cast<double>(bits() % (2 * most + 1)) + low
                                          : normal(bits));
  }
  return x;
}

}  // namespace kref
