// SPDX-License-Identifier: Apache-2.0
// Small attention inputs whose answer is known by hand, for the tests of its definition.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "dsl/tensor.h"
#include "kernels/reference_attention.h"

namespace kref::reference {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

template <std::size_t R>
Tensor<float, R> tensor(const Shape<R>& shape, const std::vector<float>& values) {
  Tensor<float, R> t(shape);
  REQUIRE(t.size() == static_cast<Index>(values.size()));
  std::copy(values.begin(), values.end(), t.data());
  return t;
}
inline Tensor<std::int32_t, 1> ints(const std::vector<std::int32_t>& values) {
  Tensor<std::int32_t, 1> t({static_cast<Index>(values.size())});
  std::copy(values.begin(), values.end(), t.data());
  return t;
}
template <class T, std::size_t R>
ArrayRef view(const Tensor<T, R>& t) {
  return ArrayRef(t.ref());
}

// One head of one sequence, D = 1, q = k = 0, v given: E = 1. Every visible key weighs the same, so
// a row is the mean of the values it sees.
struct Means {
  Tensor<float, 4> q, k, v;
  AttentionInputs in;

  Means(Index rows, const std::vector<float>& values)
      : q({1, 1, rows, 1}, 0.0f),
        k({1, 1, static_cast<Index>(values.size()), 1}, 0.0f),
        v(tensor<4>({1, 1, static_cast<Index>(values.size()), 1}, values)),
        in{.q = view(q), .k = view(k), .v = view(v)} {}
  AttentionResult operator()(const AttentionOptions& options) const {
    return attention(in, options);
  }
};

inline std::vector<float> ramp(Index n, float first = 0) {
  std::vector<float> out;
  for (Index i = 0; i < n; ++i) out.push_back(first + static_cast<float>(i));
  return out;
}

inline constexpr Causal kAll = Causal::kNone, kTop = Causal::kTopLeft,
                        kBottom = Causal::kBottomRight;

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
inline void check_row(const std::vector<double>& got, const std::vector<double>& expected,
                      double slack = 0) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CAPTURE(got[i]);
    CAPTURE(expected[i]);
    CHECK((same(got[i], expected[i]) || std::fabs(got[i] - expected[i]) <= slack));
  }
}

}  // namespace kref::reference
