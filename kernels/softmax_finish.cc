// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax_finish.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/tile_ops.h"

namespace kref::detail {

ScoreRule score_rule(double scale, const std::optional<double>& soft_cap,
                     const std::optional<DType>& p_dtype) {
  KREF_CHECK(std::fabs(scale) <= std::numeric_limits<float>::max(), "attention: scale is ", scale,
             ", which F32 does not hold");
  ScoreRule rule;
  rule.scale = static_cast<float>(scale);
  if (soft_cap) {
    // Within f32: 0 would stand for no cap, and infinity times tanh 0 is not a number.
    using Limits = std::numeric_limits<float>;
    rule.cap =
        static_cast<float>(std::clamp<double>(*soft_cap, Limits::denorm_min(), Limits::max()));
  }
  rule.p_dtype = p_dtype.value_or(DType::kF32);
  return rule;
}

void mean_of(const ArrayRef& v, Ref<float, 2> mean) {
  fill(mean, 0.0f);
  const Index keys = v.extents[0];
  with_dtype(v.dtype, [&]<class T>() {
    for (Index j = 0; j < keys; ++j) {
      const T* row = static_cast<const T*>(v.data) + j * v.strides[0];
      for (Index e = 0; e < mean.extent(1); ++e) mean(0, e) += static_cast<float>(row[e]);
    }
  });
  div(mean, static_cast<float>(keys), mean);
}

void finish_softmax(const SoftmaxState& s, Index rows, FullyMasked fully_masked,
                    const std::optional<Ref<float, 2>>& mean, LogBase base, Ref<float, 2> total) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Index all = s.acc.extent(0), width = s.acc.extent(1);
  total_sums(s.sums, total);
  // A NaN in the sum is a row that sees a NaN.
  const auto sees_none = [&](Index r) { return s.maximum(r, 0) == kNone && total(r, 0) == 0; };
  for (Index r = 0; r < all; ++r) {
    if (r < rows && !sees_none(r)) continue;
    const bool nan = r < rows && fully_masked == FullyMasked::kNaN;
    const Ref<float, 2> o = s.acc.block({r, 0}, {1, width});
    fill(o, nan ? kNaN : 0.0f);
    if (r < rows && mean) copy(*mean, o);
    s.maximum(r, 0) = nan ? kNaN : kNone;
    total(r, 0) = 1;
  }
  div(s.acc, total, s.acc);
  log(total, total);
  add(s.maximum, total, s.maximum);
  if (base == LogBase::k2) mul(s.maximum, 1.44269504f, s.maximum);
}

}  // namespace kref::detail
