// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/row_products-inl.h"

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(RowDots);
HWY_EXPORT(AddRows);

void row_dots(Ref<const float, 2> x, const ArrayRef& k, Ref<float, 2> out) {
  HWY_DYNAMIC_DISPATCH(RowDots)
  (k.dtype, {x.data(), x.stride(0), x.extent(0), x.extent(1)},
   {k.data, k.strides[0], k.extents[0], k.extents[1]}, out.data(), out.stride(0));
}

void add_rows(Ref<const float, 2> p, const ArrayRef& v, Ref<float, 2> acc) {
  HWY_DYNAMIC_DISPATCH(AddRows)
  (v.dtype, {p.data(), p.stride(0), p.extent(0), p.extent(1)},
   {v.data, v.strides[0], v.extents[0], v.extents[1]}, acc.data(), acc.stride(0));
}

}  // namespace kref::detail
#endif  // HWY_ONCE
