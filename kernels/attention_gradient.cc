// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_gradient.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_gradient.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/attention_gradient-inl.h"

#if HWY_ONCE

#include "kernels/dot.h"

namespace kref::detail {

HWY_EXPORT(AttentionGradient);
HWY_EXPORT(TransposeBlock);

void attention_gradient(const ScoreRule& rule, float factor, const BlockMask& mask,
                        const ArrayRef& bias, const RowGradients& rows, Ref<float, 2> p,
                        Ref<float, 2> ds) {
  KREF_DCHECK(p.stride(0) >= cdiv(mask.keys, 16) * 16 && ds.stride(0) >= cdiv(mask.keys, 16) * 16);
  KREF_DCHECK(rows.lse.extent(0) >= mask.rows && rows.delta.extent(0) >= mask.rows);
  GradientArgs args{softmax_args(rule, mask, bias, p),
                    rows.lse.data(),
                    rows.delta.data(),
                    ds.data(),
                    ds.stride(0),
                    factor};
  HWY_DYNAMIC_DISPATCH(AttentionGradient)(args);
}

void add_by_keys(const BlockMask& mask, Ref<const float, 2> x, Ref<const float, 2> y,
                 const std::vector<OddElement>& odd, Ref<float, 2> acc) {
  dot_add<float>(y, x, acc, {.trans_x = true});
  // A sum that meets an infinity or NaN comes to the same in every order.
  for (const OddElement& o : odd) {
    for (Index key = 0; key < mask.keys; ++key) {
      if (mask.sees(o.row, key)) acc(o.column, key) += x(o.row, key) * o.value;
    }
  }
}

void transpose(Ref<const float, 2> x, Ref<float, 2> out) {
  KREF_DCHECK(out.extent(0) == x.extent(1) && out.extent(1) == x.extent(0));
  HWY_DYNAMIC_DISPATCH(TransposeBlock)
  (x.data(), x.stride(0), x.extent(0), x.extent(1), out.data(), out.stride(0));
}

}  // namespace kref::detail
#endif  // HWY_ONCE
