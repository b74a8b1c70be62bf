// SPDX-License-Identifier: Apache-2.0
// row_sum, row_max, row_min.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_ops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/row_ops-inl.h"

#if HWY_ONCE

#include <algorithm>

namespace kref::detail {
namespace {

HWY_EXPORT(FloatReduce);

const char* const kNames[] = {"row_sum", "row_max", "row_min"};

template <class S, class T>
T reduce_integers(Reduction op, const S* x, Index n) {
  if (op == Reduction::kSum) {
    std::uint64_t sum = 0;
    for (Index j = 0; j < n; ++j)
      sum += static_cast<std::uint64_t>(static_cast<std::int64_t>(x[j]));
    return static_cast<T>(sum);
  }
  S best = x[0];
  for (Index j = 1; j < n; ++j)
    best = op == Reduction::kMax ? std::max(best, x[j]) : std::min(best, x[j]);
  return static_cast<T>(best);
}

void integer_plane(Reduction op, DType from, DType to, const Plane& p) {
  with_dtype(from, [&]<class S>() {
    if constexpr (std::is_integral_v<S>) {
      for (Index r = 0; r < p.rows; ++r) {
        const S* x = p.side[0].row<const S>(r);
        if (from == to) {
          *p.side[1].row<S>(r) = reduce_integers<S, S>(op, x, p.cols);
        } else {
          *p.side[1].row<std::int32_t>(r) = reduce_integers<S, std::int32_t>(op, x, p.cols);
        }
      }
    }
  });
}

}  // namespace

bool legal_reduction(Reduction op, DType from, DType to) {
  if (from == to) return is_integer(from) || (is_float(from) && size_of(from) > 1);
  if (from == DType::kF16 || from == DType::kBF16) return to == DType::kF32;
  return op == Reduction::kSum && is_integer(from) && size_of(from) <= 2 && to == DType::kI32;
}

void reduce_rows(Reduction op, const ArrayRef& x, const MutableArrayRef& out) {
  const char* verb = kNames[static_cast<std::size_t>(op)];
  KREF_CHECK(legal_reduction(op, x.dtype, out.dtype), verb, ": x is ", to_string(x), ", out is ",
             to_string(out), ", expected one element type, or F32 for F16 and BF16",
             op == Reduction::kSum ? ", or I32 for I8, U8, I16" : "");
  const bool keeps = out.rank == x.rank;
  bool fits = x.rank >= 1 && (keeps ? out.extents[x.rank - 1] == 1 : out.rank + 1 == x.rank);
  for (std::size_t d = 0; fits && d + 1 < x.rank; ++d) fits = out.extents[d] == x.extents[d];
  KREF_CHECK(fits, verb, ": x is ", to_string(x), ", out is ", to_string(out),
             ", expected the shape of x without its last dimension, or with extent 1 there");
  const Index cols = x.extents[x.rank - 1];
  KREF_CHECK(cols > 0 || op == Reduction::kSum || out.size() == 0, verb, ": x is ", to_string(x),
             ", rows without elements have no largest or smallest one");
  KREF_CHECK(cols <= 1 || x.strides[x.rank - 1] == 1, verb, ": x has stride ",
             x.strides[x.rank - 1], " in its last dimension, expected 1");

  // The walk goes over the rows: both operands without the last dimension.
  ArrayRef first = x;
  MutableArrayRef result = out;
  --first.rank;
  if (keeps) --result.rank;
  const Operand operands[] = {{"x", first}, {"out", result}};
  const TilePlan plan(verb, operands, 2, TilePlan::Inner::kRows);
  plan.for_each([&](Plane p) {
    p.cols = cols;
    if (is_float(x.dtype)) {
      HWY_DYNAMIC_DISPATCH(FloatReduce)(op, x.dtype, out.dtype, p);
    } else {
      integer_plane(op, x.dtype, out.dtype, p);
    }
  });
}

}  // namespace kref::detail
#endif  // HWY_ONCE
