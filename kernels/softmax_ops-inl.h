// SPDX-License-Identifier: Apache-2.0
// Rows of scores to weights, in chunks of sixteen columns whatever the width of a vector.
#if defined(KREF_KERNELS_SOFTMAX_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KREF_KERNELS_SOFTMAX_OPS_INL_H_
#undef KREF_KERNELS_SOFTMAX_OPS_INL_H_
#else
#define KREF_KERNELS_SOFTMAX_OPS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

// The largest lane. Highway 1.0.3's EMU128 starts from the lowest finite number, which is not the
// maximum of a row that sees no key.
template <class D, class V = hn::Vec<D>>
HWY_INLINE float LargestLane(D d, V v) {
  if constexpr (kPortable) {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    float most = lanes[0];
    for (std::size_t i = 1; i < hn::Lanes(d); ++i) most = lanes[i] > most ? lanes[i] : most;
    return most;
  } else {
    return hn::GetLane(hn::MaxOfLanes(d, v));
  }
}

HWY_INLINE SoftmaxVec Logit(SoftmaxTag d, SoftmaxVec s, const float* bias,
                            const detail::ScoreRule& rule) {
  s = Score(d, s, bias, rule);
  if (rule.cap == 0) return s;
  const SoftmaxVec cap = hn::Set(d, rule.cap);
  return hn::Mul(cap, Tanh(d, hn::Div(s, cap)));
}

// Elements first .. last - 1 of a row to logits; their maximum. Both multiples of 16. A NaN does
// not become the maximum: its weight will be NaN, which is enough.
HWY_INLINE float LogitRow(float* p, Index first, Index last, const float* bias,
                          const detail::ScoreRule rule) {
  const SoftmaxTag d;
  SoftmaxVec most = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (Index c = first; c < last; c += kChunkLanes) {
    const SoftmaxVec s = Logit(d, hn::LoadU(d, p + c), bias == nullptr ? nullptr : bias + c, rule);
    hn::StoreU(s, d, p + c);
    most = Larger(s, most);
  }
  return LargestLane(d, most);
}

HWY_INLINE float MaximumOfRow(const float* p, Index first, Index last) {
  const SoftmaxTag d;
  SoftmaxVec most = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (Index c = first; c < last; c += kChunkLanes) most = Larger(hn::LoadU(d, p + c), most);
  return LargestLane(d, most);
}

// Logits to exp(logit - maximum), added to the sums, which `grown` rescales first.
HWY_INLINE void WeightRow(float* p, Index first, Index last, float maximum, float grown,
                          float* sums) {
  const SoftmaxTag d;
  SoftmaxVec total[kChunkVectors];
  for (int v = 0; v < kChunkVectors; ++v) {
    total[v] = hn::Mul(hn::LoadU(d, sums + v * kChunkLanes), hn::Set(d, grown));
  }
  const SoftmaxVec m = hn::Set(d, maximum);
  for (Index c = first; c < last; c += kChunk) {
    for (int v = 0; v < kChunkVectors; ++v) {
      float* at = p + c + v * kChunkLanes;
      const SoftmaxVec weight = ExpOfDifference(d, hn::Sub(hn::LoadU(d, at), m));
      hn::StoreU(weight, d, at);
      total[v] = hn::Add(total[v], weight);
    }
  }
  for (int v = 0; v < kChunkVectors; ++v) hn::StoreU(total[v], d, sums + v * kChunkLanes);
}

template <class T>
HWY_INLINE void RoundRow(float* p, Index n) {
  using Format = typename NarrowTraits<T>::Format;
  const SoftmaxTag d;
  for (Index c = 0; c < n; c += kChunkLanes) {
    const auto bits = EncodeNarrow<Format, false>(d, hn::LoadU(d, p + c));
    hn::StoreU(DecodeNarrow<Format>(d, bits), d, p + c);
  }
}

HWY_INLINE void RoundRowTo(DType type, float* p, Index n) {
  switch (type) {
    case DType::kBF16:
      return RoundRow<bf16>(p, n);
    case DType::kF16:
      return RoundRow<f16>(p, n);
    case DType::kF8E4M3:
      return RoundRow<f8_e4m3>(p, n);
    case DType::kF8E5M2:
      return RoundRow<f8_e5m2>(p, n);
    default:
      return;
  }
}

HWY_INLINE void ScaleRow(float* x, Index n, float factor) {
  const SoftmaxTag d;
  for (Index c = 0; c < n; c += kChunkLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + c), hn::Set(d, factor)), d, x + c);
  }
}

void SoftmaxUpdate(const detail::SoftmaxArgs& a) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const auto up = [](Index n) { return (n + kChunk - 1) / kChunk * kChunk; };
  const Index padded = up(a.keys);
  for (Index r = 0; r < a.rows; ++r) {
    float* p = a.p + r * a.p_stride;
    const Index begin = a.begin[r], end = a.end[r];
    const Index first = begin / kChunk * kChunk, last = up(end);
    if (a.bias != nullptr) BiasRow(a, r, a.bias_row);
    float most = LogitRow(p, first, last, a.bias == nullptr ? nullptr : a.bias_row, a.rule);
    if (first != begin || last != end || a.chosen != nullptr) {
      std::fill(p + first, p + begin, kNone);
      std::fill(p + end, p + last, kNone);
      if (a.chosen != nullptr) {
        const bool* chosen = a.chosen + r * a.chosen_stride;
        for (Index c = begin; c < end; ++c) p[c] = chosen[c] ? p[c] : kNone;
      }
      most = MaximumOfRow(p, first, last);
    }
    const float old = a.maximum[r * a.maximum_stride];
    const float maximum = most > old ? most : old;
    // While all logits are -infinity they are measured from 0: their weights are 0.
    const float from = maximum == kNone ? 0.0f : maximum;
    float grown = 1;
    if (most > old) {
      const hn::CappedTag<float, 1> d1;
      grown = hn::GetLane(ExpOfDifference(d1, hn::Set(d1, old - from)));
    }
    a.maximum[r * a.maximum_stride] = maximum;
    WeightRow(p, first, last, from, grown, a.sums + r * a.sums_stride);
    std::fill(p, p + first, 0.0f);
    std::fill(p + last, p + padded, 0.0f);
    RoundRowTo(a.rule.p_dtype, p, padded);
    if (grown != 1) ScaleRow(a.acc + r * a.acc_stride, up(a.width), grown);
  }
}

bool AllFinite(const float* x, Index rows, Index stride, Index columns) {
  const SoftmaxTag d;
  for (Index r = 0; r < rows; ++r, x += stride) {
    SoftmaxVec zeros = hn::Zero(d);  // stays so until an infinity or NaN is multiplied by 0
    Index c = 0;
    for (; c + kChunkLanes <= columns; c += kChunkLanes) {
      zeros = hn::Add(zeros, hn::Mul(hn::LoadU(d, x + c), hn::Zero(d)));
    }
    float rest = 0;
    for (; c < columns; ++c) rest += x[c] * 0.0f;
    if (!(rest == 0) || !hn::AllTrue(d, hn::Eq(zeros, hn::Zero(d)))) return false;
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#endif  // KREF_KERNELS_SOFTMAX_OPS_INL_H_
