// SPDX-License-Identifier: Apache-2.0
// Small attentions with every combination of options, drawn from a seed.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/flash_attention.h"

namespace kref {

// The levels of one case; each is an index into what `Case::make` knows.
struct Levels {
  static constexpr int kCounts[] = {3, 3, 2, 4, 4, 3, 4, 3, 3, 4, 4, 2, 3, 2, 5, 3};
  static constexpr int kFactors = static_cast<int>(std::size(kCounts));
  int level[kFactors] = {};
  enum Factor {
    kDType,
    kOut,
    kLayout,
    kBias,
    kWindow,
    kCausal,
    kMask,
    kSegments,
    kFullyMasked,
    kLengths,
    kCap,
    kSinks,
    kPType,
    kBase,
    kTile,
    kGroups
  };
  explicit Levels(std::mt19937& random) {
    for (int f = 0; f < kFactors; ++f) {
      level[f] = static_cast<int>(random() % static_cast<unsigned>(kCounts[f]));
    }
  }
  int operator[](Factor f) const { return level[f]; }
};

// Inputs, options and tile of a case, with memory of their own.
struct AttentionCase {
  Index B, H, G, T, S, D, E;
  Array q, k, v, bias, mask, q_segments, kv_segments, q_lengths, kv_lengths, sinks;
  AttentionOptions options{.scale = 1, .causal = Causal::kNone};
  AttentionTile tile;
  DType out_dtype = DType::kF32;
  bool has_bias = false, has_mask = false, has_segments = false, has_q = false, has_kv = false,
       has_sinks = false;

  AttentionInputs inputs() const {
    AttentionInputs in{.q = q, .k = k, .v = v};
    if (has_bias) in.bias = bias;
    if (has_mask) in.mask = mask;
    if (has_segments) in.q_segment_ids = q_segments, in.kv_segment_ids = kv_segments;
    if (has_q) in.q_lengths = q_lengths;
    if (has_kv) in.kv_lengths = kv_lengths;
    if (has_sinks) in.sinks = sinks;
    return in;
  }
  bool bthd() const { return options.layout == Layout::kBTHD; }
  std::vector<Index> shape(Index heads, Index rows, Index columns) const {
    return bthd() ? std::vector<Index>{B, rows, heads, columns}
                  : std::vector<Index>{B, heads, rows, columns};
  }
};

// An array whose elements `make(i)` gives as doubles.
template <class F>
Array filled(DType type, const std::vector<Index>& shape, const F& make) {
  Array out(type, shape);
  with_dtype(type, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      Index i = 0;
      for (T& x : out.mutable_elements<T>()) x = static_cast<T>(make(i++));
    } else {
      Index i = 0;
      for (T& x : out.mutable_elements<T>()) x = make(i++) != 0;
    }
  });
  return out;
}

inline AttentionCase make_case(const Levels& l, std::mt19937& random) {
  using enum Levels::Factor;
  const auto below = [&](Index n) {
    return static_cast<Index>(random() % static_cast<unsigned>(n));
  };
  const auto pick = [&](std::initializer_list<Index> of) {
    return of.begin()[below(static_cast<Index>(of.size()))];
  };
  std::normal_distribution<double> normal;
  const auto noise = [&](Index) { return normal(random); };
  AttentionCase c;
  c.B = pick({1, 2}), c.H = 4, c.G = pick({4, 2, 1});
  c.T = pick({1, 2, 5, 17, 33}), c.S = pick({1, 3, 16, 19, 40}), c.D = pick({1, 7, 16, 20}),
  c.E = pick({1, 5, 16, 33});
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
  const DType type = types[l[kDType]];
  c.out_dtype = types[l[kOut]];
  AttentionOptions& o = c.options;
  o.layout = l[kLayout] == 0 ? Layout::kBHTD : Layout::kBTHD;
  o.scale = pick({0, 1}) == 0 ? 1 / std::sqrt(static_cast<double>(c.D)) : -0.7;
  const Causal causals[] = {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight};
  o.causal = causals[l[kCausal]];
  const Window windows[] = {
      {}, {.left = 2, .right = 0}, {.left = {}, .right = 1}, {.left = 3, .right = 4}};
  o.window = windows[l[kWindow]];
  if (l[kCap] > 1) o.soft_cap = l[kCap] == 2 ? 0.8 : 30.0;
  const FullyMasked rules[] = {FullyMasked::kZero, FullyMasked::kUniform, FullyMasked::kNaN};
  o.fully_masked = rules[l[kFullyMasked]];
  o.negative_segments = l[kSegments] == 2 ? NegativeSegments::kNever : NegativeSegments::kMatch;
  const DType p_types[] = {DType::kF32, DType::kBF16, DType::kF16};
  o.p_dtype = p_types[l[kPType]];
  o.lse_base = l[kBase] == 0 ? LogBase::kE : LogBase::k2;
  const AttentionTile tiles[] = {{}, {1, 1}, {2, 3}, {5, 16}, {8, 32}};
  c.tile = tiles[l[kTile]];

  c.q = filled(type, c.shape(c.H, c.T, c.D), noise);
  c.k = filled(type, c.shape(c.G, c.S, c.D), noise);
  c.v = filled(type, c.shape(c.G, c.S, c.E), noise);
  const auto some = [&](Index of) { return pick({0, 1}) == 0 ? of : Index{1}; };
  if (l[kBias] > 0) {
    c.has_bias = true;
    if (l[kBias] == 3) o.bias_order = BiasOrder::kBeforeScale;
    const double infinite = -std::numeric_limits<double>::infinity();
    c.bias = filled(
        l[kBias] == 2 ? type : DType::kF32, {some(c.B), some(c.H), some(c.T), c.S}, [&](Index) {
          return below(9) == 0
                     ? infinite * (o.scale > 0 ? 1 : -1) *
                           (o.bias_order == BiasOrder::kBeforeScale ? 1 : (o.scale > 0 ? 1 : -1))
                     : normal(random);
        });
  }
  if (l[kMask] > 0) {
    c.has_mask = true;
    c.mask = filled(DType::kBool, {some(c.B), some(c.H), l[kMask] == 1 ? 1 : c.T, c.S},
                    [&](Index) { return below(3) > 0 ? 1.0 : 0.0; });
  }
  if (l[kSegments] > 0) {
    c.has_segments = true;
    const auto id = [&](Index) { return static_cast<double>(below(3) - 1); };
    c.q_segments = filled(DType::kI32, {c.B, c.T}, id);
    c.kv_segments = filled(DType::kI32, {c.B, c.S}, id);
  }
  c.has_q = (l[kLengths] & 1) != 0, c.has_kv = (l[kLengths] & 2) != 0;
  const auto up_to = [&](Index n) {
    return [&below, n](Index) { return static_cast<double>(below(n + 1)); };
  };
  c.q_lengths = filled(DType::kI32, {c.B}, up_to(c.T));
  c.kv_lengths = filled(DType::kI32, {c.B}, up_to(c.S));
  c.has_sinks = l[kSinks] == 1;
  c.sinks = filled(DType::kF32, {c.H}, noise);
  return c;
}

// What flash_attention makes of a case; memory that it leaves unwritten would show.
struct Result {
  Array o, lse;
};

inline Result compute(const AttentionCase& c) {
  Result r{Array(c.out_dtype, c.shape(c.H, c.T, c.E)),
           Array(DType::kF32, std::vector<Index>{c.B, c.H, c.T})};
  std::memset(r.o.mutable_data(), 0x55, r.o.bytes());
  std::memset(r.lse.mutable_data(), 0x55, r.lse.bytes());
  flash_attention(c.inputs(), r.o.mutable_ref(), r.lse.mutable_ref().ref<float, 3>(), c.options,
                  c.tile);
  return r;
}

// Elements at.. of a row-major array become what value() gives.
template <class F>
void overwrite(Array& a, Index at, Index count, const F& value) {
  with_dtype(a.dtype(), [&]<class T>() {
    for (Index i = 0; i < count; ++i)
      a.mutable_elements<T>()[static_cast<std::size_t>(at + i)] = static_cast<T>(value());
  });
}
// With bytes of its own: copies of an Array share theirs.
inline Array copy_of(const Array& a) {
  Array out(a.dtype(), a.shape());
  if (a.bytes() > 0) std::memcpy(out.mutable_data(), a.data(), a.bytes());
  return out;
}

inline bool same_bits(const Array& a, const Array& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

}  // namespace kref
