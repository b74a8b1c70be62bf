// SPDX-License-Identifier: Apache-2.0
// A product for dot_add in buffers that show what it touches, and the chains it has to be equal to.
#pragma once

#include <vector>

#include "dsl/tensor.h"
#include "tests/dot_inputs.h"

namespace kref {

// One product in buffers whose rows are `gap` elements longer than needed and start one element in,
// so that nothing is aligned. The gaps hold poison and the accumulator's must stay as they are.
template <class T>
struct Product {
  Index m, n, k;
  DotOptions options;
  Index x_row, y_row, acc_row;
  std::vector<T> x, y;
  std::vector<Accumulator<T>> acc;

  template <class Value>
  Product(Index rows, Index columns, Index depth, const DotOptions& o, const Value& value)
      : m(rows), n(columns), k(depth), options(o) {
    x_row = (o.trans_x ? m : k) + 3, y_row = (o.trans_y ? k : n) + 5, acc_row = n + 2;
    x.assign(static_cast<std::size_t>((o.trans_x ? k : m) * x_row + 1), poison<T>());
    y.assign(static_cast<std::size_t>((o.trans_y ? n : k) * y_row + 1), poison<T>());
    acc.assign(static_cast<std::size_t>(m * acc_row), poison<Accumulator<T>>());
    Random r(m * 31 + n * 7 + k);
    for (Index i = 0; i < m; ++i)
      for (Index l = 0; l < k; ++l)
        at(x, o.trans_x ? l : i, o.trans_x ? i : l, x_row, 1) = value(r);
    for (Index l = 0; l < k; ++l)
      for (Index j = 0; j < n; ++j)
        at(y, o.trans_y ? j : l, o.trans_y ? l : j, y_row, 1) = value(r);
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j)
        at(acc, i, j, acc_row, 0) = static_cast<Accumulator<T>>(value(r));
  }
  // Every value of x or y, gaps left out.
  template <class F>
  void each_x(const F& f) {
    for (Index i = 0; i < (options.trans_x ? k : m); ++i)
      for (Index j = 0; j < (options.trans_x ? m : k); ++j) f(at(x, i, j, x_row, 1));
  }
  template <class F>
  void each_y(const F& f) {
    for (Index i = 0; i < (options.trans_y ? n : k); ++i)
      for (Index j = 0; j < (options.trans_y ? k : n); ++j) f(at(y, i, j, y_row, 1));
  }
  template <class V>
  static auto& at(std::vector<V>& v, Index i, Index j, Index row, Index start) {
    return v[static_cast<std::size_t>(i * row + j + start)];
  }
  Ref<const T, 2> x_ref() const {
    return {x.data() + 1, options.trans_x ? Shape<2>{k, m} : Shape<2>{m, k}, {x_row, 1}};
  }
  Ref<const T, 2> y_ref() const {
    return {y.data() + 1, options.trans_y ? Shape<2>{n, k} : Shape<2>{k, n}, {y_row, 1}};
  }
  std::vector<Accumulator<T>> expected(bool from_zero) {
    auto e = acc;
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        if (from_zero) at(e, i, j, acc_row, 0) = Accumulator<T>{};
        for (Index l = 0; l < k; ++l) {
          const T xv = at(x, options.trans_x ? l : i, options.trans_x ? i : l, x_row, 1);
          const T yv = at(y, options.trans_y ? j : l, options.trans_y ? l : j, y_row, 1);
          at(e, i, j, acc_row, 0) = chain<T>(at(e, i, j, acc_row, 0), xv, yv, options.precision);
        }
      }
    return e;
  }
  Ref<Accumulator<T>, 2> acc_ref() { return {acc.data(), {m, n}, {acc_row, 1}}; }
  void run() { dot_add<T>(x_ref(), y_ref(), acc_ref(), options); }
  void run_from_zero() { dot<T>(x_ref(), y_ref(), acc_ref(), options); }
};

}  // namespace kref
