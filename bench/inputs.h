// SPDX-License-Identifier: Apache-2.0
// Inputs of the benchmarks, and the check that comes before the timing.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "dsl/tensor.h"

namespace kref::bench {

// Values in (-1, 1) for floats: nothing a product could skip; all of -128..127 for s8.
template <class T>
Tensor<T, 2> random_matrix(Index rows, Index columns, unsigned seed) {
  Tensor<T, 2> out({rows, columns});
  std::minstd_rand random(seed);
  for (Index i = 0; i < out.size(); ++i) {
    const auto r = static_cast<std::int32_t>(random() >> 8 & 0xFFFF) - 0x8000;
    if constexpr (std::is_integral_v<T>) {
      out.data()[i] = static_cast<T>(r / 256);
    } else {
      out.data()[i] = static_cast<T>(static_cast<float>(r) / 32768.0f);
    }
  }
  return out;
}

// Holds z against x y without forming the product: z t and x (y t) for a random t (Freivalds), and
// says how far apart they are as a fraction of what rounding can do. 0 means equal; wrong is > 1.
template <class T, class Z>
double product_error(const Tensor<T, 2>& x, const Tensor<T, 2>& y, const Tensor<Z, 2>& z) {
  const Index m = x.extent(0), k = x.extent(1), n = y.extent(1);
  std::minstd_rand random(7);
  std::vector<double> t(static_cast<std::size_t>(n)), yt(static_cast<std::size_t>(k)), size(yt);
  for (double& v : t) v = static_cast<double>(random() % 7) - 3.0;
  for (Index r = 0; r < k; ++r) {
    double sum = 0, magnitude = 0;
    for (Index c = 0; c < n; ++c) {
      const double v = static_cast<double>(y(r, c)) * t[static_cast<std::size_t>(c)];
      sum += v, magnitude += std::abs(v);
    }
    yt[static_cast<std::size_t>(r)] = sum, size[static_cast<std::size_t>(r)] = magnitude;
  }
  double worst = 0;
  for (Index i = 0; i < m; ++i) {
    double expected = 0, magnitude = 0, actual = 0;
    for (Index r = 0; r < k; ++r) {
      expected += static_cast<double>(x(i, r)) * yt[static_cast<std::size_t>(r)];
      magnitude += std::abs(static_cast<double>(x(i, r))) * size[static_cast<std::size_t>(r)];
    }
    for (Index c = 0; c < n; ++c)
      actual += static_cast<double>(z(i, c)) * t[static_cast<std::size_t>(c)];
    // Rounding in f32, sqrt(k) of it with some to spare; an integer product is exact.
    const double bound =
        std::is_integral_v<Z> ? 0.5 : 8 * std::sqrt(static_cast<double>(k)) * 0x1p-24 * magnitude;
    const double ratio = std::abs(actual - expected) / bound;
    if (!(ratio <= worst)) worst = ratio;  // a NaN stays
  }
  return worst;
}

}  // namespace kref::bench
