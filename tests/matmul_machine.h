// SPDX-License-Identifier: Apache-2.0
// Products by honest machines, for tests of the bounds.
#pragma once

#include <doctest/doctest.h>

#include "golden/matmul_bound.h"
#include "golden/matmul_sums.h"
#include "tests/honest_machine.h"

namespace kref {

template <class T>
Array matrix_of(Index rows, Index columns, const std::vector<double>& values) {
  const Index shape[] = {rows, columns};
  Array a(dtype_of<T>, shape);
  REQUIRE(a.size() == static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) a.mutable_elements<T>()[i] = T(values[i]);
  return a;
}

template <class T>
Array filled(Index rows, Index columns, Fill fill, std::mt19937& random) {
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows * columns); ++i) {
    values.push_back(fill_value(fill, i % static_cast<std::size_t>(columns), random));
  }
  return matrix_of<T>(rows, columns, values);
}

// x y^T in the accumulator A by an honest machine, rounded to the type O: x [m, k], y [n, k].
template <class A, class O>
Array multiplied(const Array& x, const Array& y, Order order) {
  const Index m = x.extent(0), n = y.extent(0), k = x.extent(1);
  std::vector<double> z;
  std::vector<A> xs(static_cast<std::size_t>(k)), ys(xs);
  for (Index i = 0; i < m; ++i) {
    for (Index t = 0; t < k; ++t) xs[static_cast<std::size_t>(t)] = static_cast<A>(x.at(i * k + t));
    for (Index j = 0; j < n; ++j) {
      for (Index t = 0; t < k; ++t)
        ys[static_cast<std::size_t>(t)] = static_cast<A>(y.at(j * k + t));
      z.push_back(static_cast<double>(machine_dot(xs, ys, order)));
    }
  }
  return matrix_of<O>(m, n, z);
}

inline Product transposed_y(DType out) {
  Product p;
  p.options.trans_y = true;
  p.out_dtype = out;
  return p;
}

// x y^T of F32 in a precision mode: products of bf16 parts summed in f32. Together: those of one
// pair of elements after the other; else a pass for each pair of parts, the small ones first, as
// XLA does it, into one accumulator.
inline Array multiplied_parts(const Array& x, const Array& y, Order order, reference::Parts parts,
                              bool together) {
  const Index m = x.extent(0), n = y.extent(0), k = x.extent(1);
  const int count = part_count(parts);
  std::vector<double> z;
  std::vector<float> xs, ys;
  double xp[3], yp[3];
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      xs.clear(), ys.clear();
      const auto add = [&](Index t, int e, int f) {
        parts_of(x.at(i * k + t), parts, xp), parts_of(y.at(j * k + t), parts, yp);
        xs.push_back(static_cast<float>(xp[e])), ys.push_back(static_cast<float>(yp[f]));
      };
      for (Index t = 0; together && t < k; ++t) {
        for (int e = 0; e < count; ++e) {
          for (int f = 0; e + f < count; ++f) add(t, e, f);
        }
      }
      for (int sum = count - 1; !together && sum >= 0; --sum) {
        for (int e = 0; e <= sum; ++e) {
          for (Index t = 0; t < k; ++t) add(t, e, sum - e);
        }
      }
      z.push_back(static_cast<double>(machine_dot(xs, ys, order)));
    }
  }
  return matrix_of<float>(m, n, z);
}

}  // namespace kref
