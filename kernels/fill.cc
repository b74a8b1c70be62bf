// SPDX-License-Identifier: Apache-2.0
// fill and copy: plain loops, the compiler's own vectors reach memory speed.
#include <algorithm>
#include <cstring>

#include "kernels/tile_ops.h"
#include "kernels/tile_plan.h"

namespace kref::detail {
void fill(const MutableArrayRef& out, const void* value) {
  const Operand operands[] = {{"out", out}};
  const TilePlan plan("fill", operands, 1);
  with_dtype(out.dtype, [&]<class T>() {
    const T v = *static_cast<const T*>(value);
    plan.for_each([&](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) std::fill_n(p.side[0].row<T>(r), p.cols, v);
    });
  });
}

void copy(const ArrayRef& x, const MutableArrayRef& out, const char* verb) {
  KREF_CHECK(x.dtype == out.dtype, verb, ": x is ", to_string(x), ", out is ", to_string(out),
             ", expected one element type");
  const Operand operands[] = {{"x", x}, {"out", out}};
  const TilePlan plan(verb, operands, 2);
  with_dtype(out.dtype, [&]<class T>() {
    plan.for_each([](const Plane& p) {
      for (Index r = 0; r < p.rows; ++r) {
        const T* from = p.side[0].row<const T>(r);
        T* to = p.side[1].row<T>(r);
        if (p.side[0].step == 0) {
          std::fill_n(to, p.cols, *from);
        } else {
          std::memmove(to, from, static_cast<std::size_t>(p.cols) * sizeof(T));
        }
      }
    });
  });
}

}  // namespace kref::detail
