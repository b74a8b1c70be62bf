// SPDX-License-Identifier: Apache-2.0
// Outputs made by hand, for tests of the judge.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "golden/judge.h"

namespace kref {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
Array array(std::vector<Index> shape, const std::vector<double>& values) {
  Array a(dtype_of<T>, shape);
  REQUIRE(a.size() == static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) a.mutable_elements<T>()[i] = T(values[i]);
  return a;
}

// A row of elements, each with the same bound.
inline Expectation expect(const std::vector<double>& values, double bound) {
  Expectation e;
  e.output += "z";
  e.value = values;
  e.likely.assign(values.size(), bound);
  e.worst.assign(values.size(), 4 * bound);
  return e;
}

// z [2, 5, 7] in tiles of 1 x 2 x 3, no two elements alike.
struct Sheet {
  Expectation e;
  std::vector<double> z;
  static constexpr Index kRows = 5, kColumns = 7;

  Sheet() {
    for (int i = 0; i < 2 * kRows * kColumns; ++i) z.push_back(100 * std::sin(1.0 + i));
    for (double& v : z) v = static_cast<float>(v);
    e = expect(z, 1e-4);
    e.blocks = {.axes = {"b", "i", "j"}, .extents = {1, 2, 3}, .steps = "k=0..3"};
    e.owner.device = [](Index i) { return i < kRows * kColumns ? "(X=0)" : "(X=1)"; };
  }
  double& at(Index b, Index i, Index j) {
    return z[static_cast<std::size_t>((b * kRows + i) * kColumns + j)];
  }
  Verdict verdict() const { return judge(e, array<float>({2, kRows, kColumns}, z)); }
};

}  // namespace kref
