// SPDX-License-Identifier: Apache-2.0
// The sums of a large product by tiles in f64: a grid over kernels/dot.h whose body first widens
// the blocks of x and y, so that no second copy of an input is made.
#include <cmath>

#include "dsl/grid.h"
#include "golden/matmul_sums.h"
#include "kernels/dot.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

// What an element is turned into before it is multiplied.
enum class Factor {
  kParts,      // its parts: of both operands, the value
  kMagnitude,  // their absolute values: of both operands, the magnitude
  kFlushed,    // those parts that may be flushed; goes with kFinite of the other operand
  kFinite,
};

// One sum over k, for all elements: out (batches, m, n).
struct Sum {
  Factor x, y;
  double* out;
};

// Widens blocks of one operand.
class Widener {
 public:
  Widener(DType type, Factor factor, reference::Parts parts)
      : factor_(factor), parts_(parts), limit_(flush_limit(type)) {}

  // Parts first..last of each element, added up; exact in f64.
  template <class T>
  void widen(Ref<const T, 2> block, int first, int last, Ref<double, 2> out) const {
    for (Index i = 0; i < block.extent(0); ++i) {
      const T* from = block.data() + i * block.stride(0);
      double* to = out.data() + i * out.stride(0);
      for (Index j = 0; j < block.extent(1); ++j) {
        to[j] = widened(static_cast<double>(from[j]), first, last);
      }
    }
  }

 private:
  double widened(double v, int first, int last) const {
    if (factor_ == Factor::kFlushed) return flushed_part(v, parts_, limit_);
    if (factor_ == Factor::kFinite) return finite_magnitude(v, parts_);
    if (parts_ == reference::Parts::kAll) return factor_ == Factor::kParts ? v : std::fabs(v);
    double part[3], sum = 0;
    parts_of(v, parts_, part);
    for (int e = first; e <= last; ++e) {
      sum += factor_ == Factor::kParts ? part[e] : std::fabs(part[e]);
    }
    return sum;
  }

  Factor factor_;
  reference::Parts parts_;
  double limit_;
};

// The largest part of x times all parts of y, the next times all but the smallest, and so on: the
// products of a precision mode, one matmul a part of x.
int matmuls(const Sum& sum, reference::Parts parts) {
  return sum.x == Factor::kFlushed || sum.y == Factor::kFlushed ? 1 : part_count(parts);
}

template <class T>
void add_up(const ArrayRef& x, const ArrayRef& y, const reference::MatmulOptions& options,
            const Sum& sum) {
  // Large enough that widening, two elements of work a row and column, is lost beside 256 products.
  constexpr Index kTile = 256;
  const ProductSizes p(x, y, options);
  const bool tx = options.trans_x, ty = options.trans_y;
  const auto* xs = static_cast<const T*>(x.data);
  const auto* ys = static_cast<const T*>(y.data);
  const Ref<const T, 3> x3(xs, {p.batches, tx ? p.k : p.m, tx ? p.m : p.k});
  const Ref<const T, 3> y3(ys, {p.shared_y ? 1 : p.batches, ty ? p.n : p.k, ty ? p.k : p.n});
  const Ref<double, 3> z3(sum.out, {p.batches, p.m, p.n});

  Grid grid("judge");
  const Axis b = grid.parallel("b", p.batches);
  const Axis i = grid.parallel("i", cdiv(p.m, kTile));
  const Axis j = grid.parallel("j", cdiv(p.n, kTile));
  const Axis k = grid.sequential("k", cdiv(p.k, kTile));
  const AxisExpr yb_of = p.shared_y ? AxisExpr(0) : AxisExpr(b);
  const AxisExpr x_row = tx ? k : i, x_column = tx ? i : k;
  const AxisExpr y_row = ty ? j : k, y_column = ty ? k : j;

  const auto xb = grid.in("x", x3, {.block = {1, kTile, kTile}, .index = {b, x_row, x_column}});
  const auto yb = grid.in("y", y3, {.block = {1, kTile, kTile}, .index = {yb_of, y_row, y_column}});
  const auto zb = grid.out("z", z3, {.block = {1, kTile, kTile}, .index = {b, i, j}});
  const auto x_wide = grid.scratch<double>("x_wide", {kTile, kTile});
  const auto y_wide = grid.scratch<double>("y_wide", {kTile, kTile});

  const Widener x_widener(x.dtype, sum.x, options.parts), y_widener(y.dtype, sum.y, options.parts);
  const int count = matmuls(sum, options.parts);
  const DotOptions dot{.trans_x = tx, .trans_y = ty};
  grid.run([&](const Step& s) {
    const auto xt = matrix(s.valid(xb)), yt = matrix(s.valid(yb));
    const auto zt = matrix(s.valid(zb));  // (rows, columns)
    const auto xw = s[x_wide].block({0, 0}, xt.extents()),
               yw = s[y_wide].block({0, 0}, yt.extents());
    if (s.first(k)) fill(zt, 0.0);
    for (int e = 0; e < count; ++e) {
      x_widener.widen(xt, e, e, xw);
      y_widener.widen(yt, 0, count - 1 - e, yw);
      dot_add<double>(xw, yw, zt, dot);
    }
  });
}

}  // namespace

ProductSums sums_by_tiles(const ArrayRef& x, const ArrayRef& y,
                          const reference::MatmulOptions& options, SumsWanted wanted) {
  const ProductSizes p(x, y, options);
  const auto size = static_cast<std::size_t>(p.batches * p.m * p.n);
  ProductSums out;
  const auto run = [&](Factor fx, Factor fy) {
    std::vector<double> sum(size, 0.0);
    if (size == 0 || p.k == 0) return sum;
    with_dtype(x.dtype, [&]<class T>() {
      if constexpr (DotType<T>) add_up<T>(x, y, options, {fx, fy, sum.data()});
    });
    return sum;
  };
  out.value = run(Factor::kParts, Factor::kParts);
  if (!is_float(x.dtype) || wanted == SumsWanted::kValue) return out;
  out.magnitude = run(Factor::kMagnitude, Factor::kMagnitude);
  if (any_flushed(x, options.parts)) out.flushed = run(Factor::kFlushed, Factor::kFinite);
  if (any_flushed(y, options.parts)) {
    std::vector<double> more = run(Factor::kFinite, Factor::kFlushed);
    if (out.flushed.empty()) out.flushed.swap(more);
    for (std::size_t i = 0; i < more.size(); ++i) out.flushed[i] += more[i];
  }
  if (any_infinite(x, options.parts) || any_infinite(y, options.parts)) {
    ProductSums finite =
        sums_by_tiles(finite_only(x, options.parts), finite_only(y, options.parts), options);
    out.finite_value = std::move(finite.value);
    out.finite_magnitude = std::move(finite.magnitude);
  }
  out.as_machine = x.dtype == DType::kF64;
  if (!out.as_machine) {
    out.value_error = static_cast<double>(p.k * products_per_pair(options.parts)) * 0x1p-53;
  }
  return out;
}

}  // namespace kref
