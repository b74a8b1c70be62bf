// SPDX-License-Identifier: Apache-2.0
// Honest machines: dot products in f32 or f64 in the orders that real ones use, for tests of the
// bounds.
#pragma once

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace kref {

enum class Order { kForward, kFused, kBackward, kPairwise, kBlocked, kLanes };
inline constexpr std::array kOrders{Order::kForward,  Order::kFused,   Order::kBackward,
                                    Order::kPairwise, Order::kBlocked, Order::kLanes};

// Sum of p[0..n) by halves.
template <class T>
T pairwise_sum(const T* p, std::size_t n) {
  if (n == 0) return 0;
  if (n == 1) return p[0];
  return pairwise_sum(p, n / 2) + pairwise_sum(p + n / 2, n - n / 2);
}

// x . y in T; every operation rounds to T.
template <class T>
T machine_dot(const std::vector<T>& x, const std::vector<T>& y, Order order) {
  const std::size_t n = x.size();
  T sum = 0;
  if (order == Order::kFused) {
    for (std::size_t k = 0; k < n; ++k) sum = std::fma(x[k], y[k], sum);
    return sum;
  }
  std::vector<T> p(n);
  for (std::size_t k = 0; k < n; ++k) p[k] = x[k] * y[k];
  switch (order) {
    case Order::kBackward:
      for (std::size_t k = n; k-- > 0;) sum += p[k];
      return sum;
    case Order::kPairwise:
      return pairwise_sum(p.data(), n);
    case Order::kBlocked:
      for (std::size_t k = 0; k < n; k += 32) {
        T block = 0;
        for (std::size_t j = k; j < std::min(n, k + 32); ++j) block += p[j];
        sum += block;
      }
      return sum;
    case Order::kLanes: {
      T lanes[8] = {};
      for (std::size_t k = 0; k < n; ++k) lanes[k % 8] += p[k];
      return pairwise_sum(lanes, 8);
    }
    default:
      for (std::size_t k = 0; k < n; ++k) sum += p[k];
      return sum;
  }
}

// What fills a matrix; each a way in which real data differs from random numbers.
enum class Fill { kNormal, kPositive, kConstant, kFew, kWide, kIntegers, kNear, kHalf, kPeriod };
inline constexpr std::array kFills{Fill::kNormal, Fill::kPositive, Fill::kConstant,
                                   Fill::kFew,    Fill::kWide,     Fill::kIntegers,
                                   Fill::kNear,   Fill::kHalf,     Fill::kPeriod};

// Element i of a row.
inline double fill_value(Fill fill, std::size_t i, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> unit;
  switch (fill) {
    case Fill::kNormal:
      return normal(random);
    case Fill::kPositive:
      return unit(random);
    case Fill::kConstant:
      return 0.1;
    case Fill::kFew:
      return std::array{0.1, 0.3, 0.7, 1.1}[i % 4];
    case Fill::kWide:
      return std::exp2(10 * normal(random)) * normal(random);
    case Fill::kNear:  // all different, but hardly: one constant to bf16, and to a long f32 sum
      return 0.1 * (1 + 1e-5 * unit(random));
    case Fill::kHalf:  // half of it a default
      return i % 2 == 0 ? 0.1 : unit(random);
    case Fill::kPeriod: {  // 150 values over and over: rows and columns run in step
      const double spread = static_cast<double>(i % 150) * 0.6180339887498949;
      return 0.5 + (spread - std::floor(spread));
    }
    default:
      return std::floor(19 * unit(random)) - 9;
  }
}

}  // namespace kref
