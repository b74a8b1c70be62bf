// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions, one dimension after the other.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/reduce-inl.h"

#if HWY_ONCE

#include <algorithm>

#include "kernels/convert.h"
#include "kernels/reduce.h"

namespace kref::detail {
namespace {

HWY_EXPORT(FloatReduceSteps);

// Integers and bools along a dimension other than the last: in blocks of results that stay close.
template <class S, class T>
void integer_steps(Reduction op, const Plane& p, Index steps, Index stride) {
  using Sum = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr Index kTogether = 256;
  for (Index r = 0; r < p.rows; ++r) {
    T* const out = p.side[1].row<T>(r);
    for (Index c0 = 0; c0 < p.cols; c0 += kTogether) {
      const Index n = std::min(kTogether, p.cols - c0), step = p.side[0].step;
      const S* x = p.side[0].row<const S>(r) + c0 * step;
      Sum sums[kTogether] = {};
      S best[kTogether];
      for (Index c = 0; c < n && steps > 0; ++c) best[c] = x[c * step];
      for (Index s = 0; s < steps; ++s, x += stride) {
        for (Index c = 0; c < n; ++c) {
          const S v = x[c * step];
          if (op == Reduction::kSum) sums[c] += static_cast<Sum>(v);
          if (op == Reduction::kMax) best[c] = std::max(best[c], v);
          if (op == Reduction::kMin) best[c] = std::min(best[c], v);
        }
      }
      for (Index c = 0; c < n; ++c)
        out[c0 + c] = op == Reduction::kSum ? static_cast<T>(sums[c]) : static_cast<T>(best[c]);
    }
  }
}

// A dimension of `a` removed.
template <class Void>
BasicArrayRef<Void> without(const BasicArrayRef<Void>& a, std::size_t axis) {
  BasicArrayRef<Void> out = a;
  --out.rank;
  for (std::size_t d = axis; d < out.rank; ++d) {
    out.extents[d] = a.extents[d + 1];
    out.strides[d] = a.strides[d + 1];
  }
  return out;
}

// out has the dimensions of x without `axis`; types as FloatReduceSteps and integer_steps take.
void reduce_axis(Reduction op, const ArrayRef& x, std::size_t axis, const MutableArrayRef& out) {
  const bool rounds = x.dtype == DType::kF32 && out.dtype != DType::kF32;  // row ops do not
  if (axis + 1 == x.rank && !rounds && (x.extents[axis] <= 1 || x.strides[axis] == 1))
    return reduce_rows(op, x, out);
  const Index steps = x.extents[axis], stride = x.strides[axis];
  const Operand operands[] = {{"x", without(x, axis)}, {"out", out}};
  const TilePlan plan("reduce", operands, 2);
  plan.for_each([&](const Plane& p) {
    if (is_float(x.dtype))
      return HWY_DYNAMIC_DISPATCH(FloatReduceSteps)(op, x.dtype, out.dtype, p, steps, stride);
    with_dtype(x.dtype, [&]<class S>() {
      if constexpr (std::is_integral_v<S> && !std::is_same_v<S, bool>) {
        if (out.dtype == x.dtype) return integer_steps<S, S>(op, p, steps, stride);
        integer_steps<S, std::int32_t>(op, p, steps, stride);
      }
    });
  });
}

const char* const kNames[] = {"reduce_sum", "reduce_max", "reduce_min"};

// The axes as bits.
std::uint32_t axis_set(const char* verb, const ArrayRef& x, std::span<const Index> axes) {
  std::uint32_t set = 0;
  for (const Index axis : axes) {
    KREF_CHECK(axis >= 0 && static_cast<std::size_t>(axis) < x.rank, verb, ": axis ", axis,
               " of x ", to_string(x), ", expected 0..", x.rank, " - 1");
    KREF_CHECK((set >> axis & 1) == 0, verb, ": axis ", axis, " is named twice");
    set |= 1u << axis;
  }
  return set;
}

// out as it is without the axes, whether it keeps them with extent 1 or not.
MutableArrayRef result_of(const char* verb, const ArrayRef& x, std::uint32_t axes,
                          const MutableArrayRef& out) {
  const auto gone = static_cast<std::size_t>(__builtin_popcount(axes));
  const bool keeps = out.rank == x.rank;
  bool fits = keeps || out.rank + gone == x.rank;
  MutableArrayRef result = out;
  result.rank = x.rank - gone;
  std::size_t q = 0;
  for (std::size_t d = 0; fits && d < x.rank; ++d) {
    const bool reduced = (axes >> d & 1) != 0;
    if (reduced && !keeps) continue;
    const std::size_t at = keeps ? d : q;
    fits = out.extents[at] == (reduced ? 1 : x.extents[d]);
    if (reduced) continue;
    result.extents[q] = out.extents[at];
    result.strides[q] = out.strides[at];
    ++q;
  }
  KREF_CHECK(fits, verb, ": x is ", to_string(x), ", out is ", to_string(out),
             ", expected the shape of x without the axes, or with extent 1 there");
  return result;
}

// Types are checked; each intermediate result is of the type computed in.
void reduce_axes(Reduction op, const ArrayRef& x, std::uint32_t axes, const MutableArrayRef& out) {
  ArrayRef rest = x;
  Bytes memory;
  for (std::size_t d = x.rank; d-- > 0;) {
    if ((axes >> d & 1) == 0) continue;
    axes &= ~(1u << d);
    if (axes == 0) return reduce_axis(op, rest, d, out);
    const ArrayRef shape = without(rest, d);
    const bool narrow = is_float(x.dtype) && size_of(x.dtype) < 4;
    const DType wide = narrow ? DType::kF32 : is_float(x.dtype) ? x.dtype : out.dtype;
    const std::size_t bytes =
        checked_bytes("reduce", shape.extents.data(), shape.rank, size_of(wide));
    Bytes next = allocate(bytes);
    const MutableArrayRef partial(wide, shape.shape(), next.get());
    reduce_axis(op, rest, d, partial);
    memory = std::move(next);
    rest = partial;
  }
  // No axis at all: a cast.
  cast(rest, out, Overflow::kDefault);
}

}  // namespace

void reduce(Reduction op, const ArrayRef& x, std::span<const Index> axes,
            const MutableArrayRef& out) {
  const char* const verb = kNames[static_cast<std::size_t>(op)];
  const std::uint32_t set = axis_set(verb, x, axes);
  KREF_CHECK(legal_reduction(op, x.dtype, out.dtype), verb, ": x is ", to_string(x), ", out is ",
             to_string(out), ", expected one element type, or F32 for F16 and BF16",
             op == Reduction::kSum ? ", or I32 for I8, U8, I16" : "");
  const MutableArrayRef result = result_of(verb, x, set, out);
  KREF_CHECK(op == Reduction::kSum || x.size() > 0 || result.size() == 0, verb, ": x is ",
             to_string(x), ", of no elements there is no largest or smallest one");
  reduce_axes(op, x, set, result);
}

void reduce_bools(Reduction op, const ArrayRef& x, std::span<const Index> axes,
                  const MutableArrayRef& out) {
  const char* const verb = op == Reduction::kMax ? "reduce_or" : "reduce_and";
  const std::uint32_t set = axis_set(verb, x, axes);
  MutableArrayRef result = result_of(verb, x, set, out);
  if (x.size() == 0) {
    const bool value = op == Reduction::kMin;
    return fill(out, &value);
  }
  // A bool is a byte that is 0 or 1.
  ArrayRef bytes = x;
  bytes.dtype = result.dtype = DType::kU8;
  reduce_axes(op, bytes, set, result);
}

void arg_extreme(Arg op, const ArrayRef& x, Index axis, const MutableArrayRef& out) {
  const char* const verb = op == Arg::kMax ? "argmax" : "argmin";
  const Index only[] = {axis};
  const MutableArrayRef result = result_of(verb, x, axis_set(verb, x, only), out);
  const auto d = static_cast<std::size_t>(axis);
  const Index steps = x.extents[d], stride = x.strides[d];
  KREF_CHECK(steps > 0 || result.size() == 0, verb, ": x is ", to_string(x), ", axis ", axis,
             " has no elements");
  KREF_CHECK(out.dtype == DType::kI32 || steps <= 32768, verb, ": axis ", axis, " of x ",
             to_string(x), " has more elements than I16 counts");
  if (result.size() == 0) return;
  const Operand operands[] = {{"x", without(x, d)}, {"out", result}};
  const TilePlan plan(verb, operands, 2);
  const auto place = [&]<class S, class I>(const S* from, I* to) {
    // A NaN wins over any number and keeps its place against a later one.
    const auto wins = [op](auto a, auto b) {
      if (op == Arg::kMax ? a > b : a < b) return true;
      return a != a && b == b;
    };
    auto best = comparable(*from);
    Index at = 0;
    for (Index s = 1; s < steps; ++s) {
      const auto v = comparable(from[s * stride]);
      if (wins(v, best)) best = v, at = s;
    }
    *to = static_cast<I>(at);
  };
  with_dtype(x.dtype, [&]<class S>() {
    plan.for_each([&](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) {
        for (Index c = 0; c < p.cols; ++c) {
          const S* const from = p.side[0].row<const S>(r) + c * p.side[0].step;
          if (out.dtype == DType::kI32) {
            place(from, p.side[1].row<std::int32_t>(r) + c);
          } else {
            place(from, p.side[1].row<std::int16_t>(r) + c);
          }
        }
      }
    });
  });
}

}  // namespace kref::detail
#endif  // HWY_ONCE
