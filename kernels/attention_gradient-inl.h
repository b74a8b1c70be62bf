// SPDX-License-Identifier: Apache-2.0
// Rows of scores and of do v^T to weights and cotangents of scores.
#if defined(KREF_KERNELS_ATTENTION_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_ATTENTION_GRADIENT_INL_H_
#undef KREF_KERNELS_ATTENTION_GRADIENT_INL_H_
#else
#define KREF_KERNELS_ATTENTION_GRADIENT_INL_H_
#endif

#include <algorithm>

#include "kernels/scores-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

// 1 - tanh^2(x) as r (2 - r) with r = 1 - tanh|x|, which keeps its digits where tanh is near 1.
HWY_INLINE SoftmaxVec CapSlope(SoftmaxTag d, SoftmaxVec x) {
  const SoftmaxVec two = hn::Set(d, 2.0f), a = hn::Abs(x);
  const SoftmaxVec r = hn::Div(two, hn::Add(Exp(d, hn::Add(a, a)), hn::Set(d, 1.0f)));
  return hn::Mul(r, hn::Sub(two, r));
}

// Elements first .. last - 1 of a row, both multiples of 16.
template <bool kCap>
HWY_INLINE void GradientRow(const detail::GradientArgs& a, float* HWY_RESTRICT p,
                            float* HWY_RESTRICT ds, Index first, Index last, const float* bias,
                            float lse, float delta) {
  const SoftmaxTag d;
  const SoftmaxVec from = hn::Set(d, lse), mean = hn::Set(d, delta), factor = hn::Set(d, a.factor);
  const detail::ScoreRule rule = a.scores.rule;
  const SoftmaxVec cap = hn::Set(d, rule.cap);
  for (Index c = first; c < last; c += kChunkLanes) {
    SoftmaxVec s = Score(d, hn::LoadU(d, p + c), bias == nullptr ? nullptr : bias + c, rule);
    SoftmaxVec slope = factor;
    if constexpr (kCap) {
      const SoftmaxVec x = hn::Div(s, cap);
      s = hn::Mul(cap, Tanh(d, x));
      slope = hn::Mul(factor, CapSlope(d, x));
    }
    const SoftmaxVec weight = ExpOfDifference(d, hn::Sub(s, from));
    hn::StoreU(weight, d, p + c);
    const SoftmaxVec logit = hn::Mul(weight, hn::Sub(hn::LoadU(d, ds + c), mean));
    hn::StoreU(hn::Mul(logit, slope), d, ds + c);
  }
}

HWY_INLINE void ClearUnseen(float* x, Index begin, Index end, Index columns, const bool* chosen) {
  std::fill(x, x + begin, 0.0f);
  std::fill(x + end, x + columns, 0.0f);
  if (chosen == nullptr) return;
  for (Index c = begin; c < end; ++c) x[c] = chosen[c] ? x[c] : 0.0f;
}

void AttentionGradient(const detail::GradientArgs& a) {
  const detail::SoftmaxArgs& s = a.scores;
  const auto up = [](Index n) { return (n + kChunk - 1) / kChunk * kChunk; };
  for (Index r = 0; r < s.rows; ++r) {
    float* p = s.p + r * s.p_stride;
    float* ds = a.ds + r * a.ds_stride;
    const Index begin = s.begin[r], end = s.end[r];
    if (begin < end) {
      const float* bias = s.bias == nullptr ? nullptr : s.bias_row;
      if (bias != nullptr) BiasRow(s, r, s.bias_row);
      const Index first = begin / kChunk * kChunk, last = up(end);
      if (s.rule.cap == 0) {
        GradientRow<false>(a, p, ds, first, last, bias, a.lse[r], a.delta[r]);
      } else {
        GradientRow<true>(a, p, ds, first, last, bias, a.lse[r], a.delta[r]);
      }
    }
    const bool* chosen = s.chosen == nullptr ? nullptr : s.chosen + r * s.chosen_stride;
    ClearUnseen(p, begin, end, up(s.keys), chosen);
    ClearUnseen(ds, begin, end, up(s.keys), chosen);
  }
}

void TransposeBlock(const float* x, Index x_stride, Index rows, Index columns, float* out,
                    Index out_stride) {
  Transpose(x, x_stride, rows, columns, out, out_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_ATTENTION_GRADIENT_INL_H_
