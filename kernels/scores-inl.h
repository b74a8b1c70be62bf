// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward pass of attention make of rows of scores, in chunks of sixteen
// columns whatever the width of a vector.
#if defined(KREF_KERNELS_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_SCORES_INL_H_
#undef KREF_KERNELS_SCORES_INL_H_
#else
#define KREF_KERNELS_SCORES_INL_H_
#endif

#include "kernels/log_tanh-inl.h"
#include "kernels/softmax_args.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

using SoftmaxTag = hn::CappedTag<float, 16>;
using SoftmaxVec = hn::Vec<SoftmaxTag>;
inline constexpr Index kChunk = 16;
inline constexpr Index kChunkLanes = static_cast<Index>(hn::MaxLanes(SoftmaxTag()));
inline constexpr int kChunkVectors = static_cast<int>(kChunk / kChunkLanes);

// The larger one. x86 gives b where either is NaN; the portable target is made to.
template <class V>
HWY_INLINE V Larger(V a, V b) {
  if constexpr (kPortable) {
    return hn::IfThenElse(hn::Gt(a, b), a, b);
  } else {
    return hn::Max(a, b);
  }
}

// e^t for t <= 0, below 1 unit in the last place; 0 from where n is -127, that is below -87.68.
// Half of the work of Exp, whose last tenths of a unit weights do not need.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfDifference(D d, V t) {
  using K = ExpConstants<float>;
  static constexpr float kE[] = {0x1.6d115p-10f, 0x1.120bb6p-7f, 0x1.55551ap-5f, 0x1.5554dcp-3f,
                                 0x1p-1f};  // as ExpConstants::kQ; error 2^-26.5
  const hn::RebindToSigned<D> di;
  const V x = Larger(hn::Set(d, -88.0f), t);  // a NaN stays
  const V round = hn::Set(d, K::kRound);
  const V shifted = FusedMulAdd(d, x, hn::Set(d, K::kLog2E), round);
  const V minus_n = hn::Sub(round, shifted);
  const V r = FusedMulAdd(d, minus_n, hn::Set(d, K::kLn2Lo),
                          FusedMulAdd(d, minus_n, hn::Set(d, K::kLn2Hi), x));
  const V e = hn::Add(FusedMulAdd(d, hn::Mul(r, r), Horner(d, r, kE), r), hn::Set(d, 1.0f));
  // n is in the last bits of `shifted`; moved to the exponent it loses the others. -127 gives 0.
  const auto power =
      hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, std::int32_t{127} << 23));
  return hn::Mul(e, hn::BitCast(d, power));
}

// Scaled and biased, not capped.
HWY_INLINE SoftmaxVec Score(SoftmaxTag d, SoftmaxVec s, const float* bias,
                            const detail::ScoreRule& rule) {
  const SoftmaxVec scale = hn::Set(d, rule.scale);
  if (bias == nullptr) return hn::Mul(s, scale);
  if (rule.bias_before_scale) return hn::Mul(hn::Add(s, hn::LoadU(d, bias)), scale);
  return hn::Add(hn::Mul(s, scale), hn::LoadU(d, bias));
}

template <class T>
HWY_INLINE void WidenBias(const T* x, Index n, float* out) {
  for (Index i = 0; i < n; ++i) out[i] = static_cast<float>(x[i]);
}

HWY_INLINE void BiasRow(const detail::SoftmaxArgs& a, Index r, float* out) {
  const Index at = r * a.bias_stride;
  switch (a.bias_type) {
    case DType::kBF16:
      return WidenBias(static_cast<const bf16*>(a.bias) + at, a.keys, out);
    case DType::kF16:
      return WidenBias(static_cast<const f16*>(a.bias) + at, a.keys, out);
    case DType::kF8E4M3:
      return WidenBias(static_cast<const f8_e4m3*>(a.bias) + at, a.keys, out);
    case DType::kF8E5M2:
      return WidenBias(static_cast<const f8_e5m2*>(a.bias) + at, a.keys, out);
    case DType::kF64:
      return WidenBias(static_cast<const double*>(a.bias) + at, a.keys, out);
    default:
      return WidenBias(static_cast<const float*>(a.bias) + at, a.keys, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_SCORES_INL_H_
