// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul_grid.h"

#include "dsl/grid.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

template <class T, class Z>
void multiply(Ref<const T, 3> x, Ref<const T, 3> y, Ref<Z, 3> z, const MatmulOptions& options) {
  using A = Accumulator<T>;
  const MatmulTile t = options.tile;
  const DotOptions how{options.trans_x, options.trans_y, options.precision};
  const auto accumulate = [&](bool first, Ref<const T, 2> xt, Ref<const T, 2> yt, Ref<A, 2> sum) {
    if (first) {
      dot<T>(xt, yt, sum, how);
    } else {
      dot_add<T>(xt, yt, sum, how);
    }
  };

  Grid grid("matmul");
  const Axis b = grid.parallel("b", z.extent(0));
  const Axis i = grid.parallel("i", cdiv(z.extent(1), t.m));
  const Axis j = grid.parallel("j", cdiv(z.extent(2), t.n));
  const Axis k = grid.sequential("k", cdiv(x.extent(options.trans_x ? 1 : 2), t.k));

  const BlockSpec<3> x_spec = options.trans_x
                                  ? BlockSpec<3>{.block = {squeezed, t.k, t.m}, .index = {b, k, i}}
                                  : BlockSpec<3>{.block = {squeezed, t.m, t.k}, .index = {b, i, k}};
  const AxisExpr yb_index = y.extent(0) == 1 ? AxisExpr(0) : AxisExpr(b);  // shared by the batch
  const BlockSpec<3> y_spec =
      options.trans_y ? BlockSpec<3>{.block = {squeezed, t.n, t.k}, .index = {yb_index, j, k}}
                      : BlockSpec<3>{.block = {squeezed, t.k, t.n}, .index = {yb_index, k, j}};
  const auto xb = grid.in("x", x, x_spec);
  const auto yb = grid.in("y", y, y_spec);
  const auto zb = grid.out("z", z, {.block = {squeezed, t.m, t.n}, .index = {b, i, j}});

  if constexpr (std::is_same_v<A, Z>) {
    // The output block is the accumulator.
    grid.run([&](const Step& s) {
      const Ref<Z, 2> out = matrix(s.valid(zb));  // (rows, columns)
      accumulate(s.first(k), matrix(s.valid(xb)), matrix(s.valid(yb)), out);
    });
  } else {
    const auto acc = grid.scratch<A>("acc", {t.m, t.n});
    grid.run([&](const Step& s) {
      const Ref<Z, 2> out = matrix(s.valid(zb));  // (rows, columns)
      const Ref<A, 2> sum =
          s[acc].block({0, 0}, {out.extent(0), out.extent(1)});  // (rows, columns)
      accumulate(s.first(k), matrix(s.valid(xb)), matrix(s.valid(yb)), sum);
      if (s.last(k)) cast(sum, out);
    });
  }
}

template <class T>
void with_output(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
                 const MatmulOptions& options) {
  const Ref<const T, 3> xr = x.ref<const T, 3>(), yr = y.ref<const T, 3>();
  if constexpr (std::is_integral_v<T>) {
    multiply<T>(xr, yr, z.ref<std::int32_t, 3>(), options);
  } else {
    with_dtype(z.dtype, [&]<class Z>() {
      if constexpr (!std::is_integral_v<Z>) multiply<T>(xr, yr, z.ref<Z, 3>(), options);
    });
  }
}

}  // namespace

void matmul_grid(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
                 const MatmulOptions& options) {
  with_dtype(x.dtype, [&]<class T>() {
    if constexpr (DotType<T>) with_output<T>(x, y, z, options);
  });
}

}  // namespace kref::detail
