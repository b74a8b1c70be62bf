// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <algorithm>
#include <vector>

#include "dsl/overlap.h"
#include "dsl/work_meter.h"
#include "kernels/matmul_grid.h"
#include "kernels/passes.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

void check_types(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
                 const MatmulOptions& o) {
  KREF_CHECK(has_product(x.dtype), "matmul: x is ", to_string(x), ": ", name_of(x.dtype),
             " has no product");
  KREF_CHECK(y.dtype == x.dtype, "matmul: y is ", to_string(y),
             ", expected the element type of x, ", name_of(x.dtype));
  KREF_CHECK(stores_product(x.dtype, z.dtype), "matmul: z is ", to_string(z), ", expected ",
             product_types(x.dtype), " for x of ", name_of(x.dtype));
  KREF_CHECK(o.precision == Precision::kF32 || x.dtype == DType::kF32,
             "matmul: precision applies to F32 operands, x is ", name_of(x.dtype));
}

// What an operand must be, whatever the others are.
void check_view(const char* name, const ArrayRef& a) {
  detail::reach_of(name, a);
  const std::size_t last = a.rank - 1;
  KREF_CHECK(a.strides[last] == 1 || a.extents[last] <= 1, name, " is ", to_string(a),
             " with stride ", a.strides[last], " in its last dimension, expected 1");
}

// The extent of one of the last two dimensions.
Index inner(const ArrayRef& a, bool first) { return a.extents[a.rank - (first ? 2 : 1)]; }

// The sizes of a product, with every operand's shape checked against them.
MatmulSizes check_shapes(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
                         const MatmulOptions& o) {
  const MatmulSizes s = matmul_sizes(x, y, o.trans_x, o.trans_y);
  KREF_CHECK(z.rank == x.rank, "matmul: z is ", to_string(z), ", expected the rank of x, ", x.rank);
  check_view("matmul: x", x);
  check_view("matmul: y", y);
  check_view("matmul: z", z);
  for (std::size_t d = 0; d + 2 < x.rank; ++d) {
    KREF_CHECK(z.extents[d] == x.extents[d], "matmul: batch axis ", d, " is ", x.extents[d],
               " in x ", to_string(x), " and ", z.extents[d], " in z ", to_string(z));
  }
  KREF_CHECK(inner(z, true) == s.m, "matmul: axis m of z ", to_string(z), " is ", inner(z, true),
             ", expected ", s.m);
  KREF_CHECK(inner(z, false) == s.n, "matmul: axis n of z ", to_string(z), " is ", inner(z, false),
             ", expected ", s.n);
  for (const auto& [name, operand] : {std::pair("x", &x), std::pair("y", &y)}) {
    KREF_CHECK(detail::shapes_only() || !overlap(*operand, z), "matmul: z ", to_string(z),
               " overlaps ", name, ' ', to_string(*operand), ", expected memory of its own");
  }
  return s;
}

// The last two dimensions below one batch dimension, or nothing when the batch dimensions of this
// operand cannot be walked with one stride.
template <class Void>
bool merge_batch(const BasicArrayRef<Void>& a, BasicArrayRef<Void>& out) {
  out = a;
  out.rank = 3;
  out.extents = {1, a.extents[a.rank - 2], a.extents[a.rank - 1]};
  out.strides = {0, a.strides[a.rank - 2], a.strides[a.rank - 1]};
  for (std::size_t d = a.rank - 2; d-- > 0;) {
    if (a.extents[d] == 1) continue;
    if (out.extents[0] == 1) {
      out.strides[0] = a.strides[d];
    } else if (a.strides[d] != out.strides[0] * out.extents[0]) {
      return false;
    }
    out.extents[0] *= a.extents[d];
  }
  return true;
}

// The sub-array at one index of the first dimension.
template <class Void>
BasicArrayRef<Void> first_dimension(const BasicArrayRef<Void>& a, Index at) {
  BasicArrayRef<Void> out = a;
  out.rank = a.rank - 1;
  for (std::size_t d = 0; d < out.rank; ++d)
    out.extents[d] = a.extents[d + 1], out.strides[d] = a.strides[d + 1];
  const auto bytes = at * a.strides[0] * static_cast<Index>(size_of(a.dtype));
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  out.data = static_cast<Byte*>(a.data) + bytes;
  return out;
}

void tell(const ArrayRef& x, const MutableArrayRef& z, const MatmulSizes& s,
          const MatmulOptions& o) {
  WorkMeter* const meter = detail::work_meter();
  if (meter == nullptr) return;
  ProductWork work{.m = s.m, .n = s.n, .k = s.k, .shared_y = s.shared_y};
  for (std::size_t d = 0; d + 2 < x.rank; ++d) work.batch *= x.extents[d];
  work.x = work.y = x.dtype;
  work.z = z.dtype;
  work.passes = product_passes(x.dtype, o.precision);
  work.tile_m = o.tile.m, work.tile_n = o.tile.n, work.tile_k = o.tile.k;
  meter->product(work);
}

void run(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z, const MatmulOptions& o) {
  ArrayRef x3, y3;
  MutableArrayRef z3;
  if (merge_batch(x, x3) && merge_batch(y, y3) && merge_batch(z, z3))
    return detail::matmul_grid(x3, y3, z3, o);
  // Strides that no single batch stride describes: one call for each index of the first dimension.
  for (Index b = 0; b < x.extents[0]; ++b) {
    run(first_dimension(x, b), y.rank == 2 ? y : first_dimension(y, b), first_dimension(z, b), o);
  }
}

}  // namespace

MatmulSizes matmul_sizes(const ArrayRef& x, const ArrayRef& y, bool trans_x, bool trans_y,
                         const char* context, const char* prefix) {
  KREF_CHECK(x.rank >= 2, context, prefix, "x is ", to_string(x), ", expected rank 2 or more");
  KREF_CHECK(y.rank == 2 || y.rank == x.rank, context, prefix, "y is ", to_string(y),
             ", expected rank 2 or the rank of x, ", x.rank);
  const MatmulSizes s{inner(x, !trans_x), inner(y, trans_y), inner(x, trans_x), y.rank != x.rank};
  const Index k = inner(y, !trans_y);
  KREF_CHECK(k == s.k, context, prefix, "x ", to_string(x), trans_x ? " (stored transposed)" : "",
             " has the contracting axis k = ", s.k, ", ", prefix, "y ", to_string(y),
             trans_y ? " (stored transposed)" : "", " has k = ", k);
  for (std::size_t d = 0; d + 2 < x.rank && !s.shared_y; ++d) {
    KREF_CHECK(y.extents[d] == x.extents[d], context, prefix, "x ", to_string(x), " has ",
               x.extents[d], " along batch axis ", d, ", ", prefix, "y ", to_string(y), " has ",
               y.extents[d]);
  }
  return s;
}

Array matmul(const ArrayRef& x, const ArrayRef& y, const MatmulOptions& options,
             std::optional<DType> out) {
  const MatmulSizes sizes = matmul_sizes(x, y, options.trans_x, options.trans_y);
  std::vector<Index> shape(x.shape().begin(), x.shape().end() - 2);
  shape.push_back(sizes.m);
  shape.push_back(sizes.n);
  Array z = Array::unwritten(out.value_or(is_float(x.dtype) ? x.dtype : DType::kI32), shape);
  matmul(x, y, z.mutable_ref(), options);
  return z;
}

MatmulTile default_matmul_tile([[maybe_unused]] DType type, Index m, Index n, Index k) {
  const auto at_least_one = [](Index v) { return v < 1 ? 1 : v; };
  // Packing costs a tile m x n x k about (1/m + 1/n) of its arithmetic, so tiles are large; but not
  // so large that a product of some size has fewer than a few for the threads.
  MatmulTile t{512, 512, 1024};
  if (m <= 64) t = {64, 1024, 512};  // bound by reading y: long pieces of its rows
  const Index enough = at_least_one(m) * at_least_one(n) > 512 * 512 ? 4 : 2;
  while (cdiv(at_least_one(m), t.m) * cdiv(at_least_one(n), t.n) < enough && t.n >= 128) {
    if (t.n > t.m || m <= t.m / 2) {
      t.n /= 2;
    } else {
      t.m /= 2;
    }
  }
  return {std::min(t.m, at_least_one(m)), std::min(t.n, at_least_one(n)),
          std::min(t.k, at_least_one(k))};
}

void check_tile(const MatmulTile& t, const char* context) {
  KREF_CHECK(t == MatmulTile{} || (t.m > 0 && t.n > 0 && t.k > 0), context, "tile is [", t.m, ", ",
             t.n, ", ", t.k, "], expected three positive sizes");
}

void matmul(const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
            const MatmulOptions& options) {
  check_types(x, y, z, options);
  const MatmulSizes s = check_shapes(x, y, z, options);
  check_tile(options.tile);
  MatmulOptions o = options;
  if (o.tile == MatmulTile{}) o.tile = default_matmul_tile(x.dtype, s.m, s.n, s.k);
  tell(x, z, s, options);
  if (z.size() == 0 || detail::shapes_only()) return;
  const MeterScope unmetered(nullptr);
  if (s.k == 0) {  // an empty sum; the grid would have no step to store it
    with_dtype(z.dtype, [&]<class Z>() {
      const Z zero{};
      detail::fill(z, &zero);
    });
    return;
  }
  // A tile beyond the array only makes scratch larger.
  o.tile = {std::min(o.tile.m, s.m), std::min(o.tile.n, s.n), std::min(o.tile.k, s.k)};
  run(x, y, z, o);
}

}  // namespace kref
