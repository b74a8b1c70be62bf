// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/row_products-inl.h"

#if HWY_ONCE
namespace kref::detail {

HWY_EXPORT(HeadDots);
HWY_EXPORT(AddHeadValues);

namespace {

HeadRows head_rows(Ref<const float, 2> few, const ArrayRef& many, Ref<float, 2> out) {
  KREF_DCHECK(many.rank == 3 && many.extents[1] > 0);
  return {few.data(),      few.stride(0), many.data,       many.strides[0],
          many.strides[1], few.extent(0), many.extents[1], many.extents[0],
          many.extents[2], out.data(),    out.stride(0)};
}

}  // namespace

void head_dots(Ref<const float, 2> q, const ArrayRef& k, Ref<float, 2> out) {
  HWY_DYNAMIC_DISPATCH(HeadDots)(k.dtype, head_rows(q, k, out));
}

void add_head_values(Ref<const float, 2> p, const ArrayRef& v, Ref<float, 2> acc) {
  HWY_DYNAMIC_DISPATCH(AddHeadValues)(v.dtype, head_rows(p, v, acc));
}

}  // namespace kref::detail
#endif  // HWY_ONCE
