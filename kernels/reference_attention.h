// SPDX-License-Identifier: Apache-2.0
// The definition of attention: plain loops in f64 over the keys a row sees. Slow on purpose, and
// shares nothing with the kernels it judges: only views and element types come from outside.
// Semantics: spec/runs.md section 3, `attention`.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "dsl/array.h"

namespace kref::reference {

// A field that has to be given: published kernels disagree on it, so there is no default.
template <class T>
class Required {
 public:
  constexpr Required(T value) : value_(std::move(value)) {}
  constexpr operator const T&() const { return value_; }

 private:
  T value_;
};

// The order of dimensions of q, k, v and o; whether the bias is scaled.
enum class Layout {
  kBHTD,  // q [B, H, T, D], k [B, G, S, D]
  kBTHD,  // q [B, T, H, D], k [B, S, G, D]; o as q. Bias, mask and lse do not change
};
enum class BiasOrder {
  kAfterScale,   // q.k * scale + bias
  kBeforeScale,  // (q.k + bias) * scale
};
// The position of row i, and whether it sees keys beyond it.
enum class Causal {
  kNone,         // position i; sees all
  kTopLeft,      // position i
  kBottomRight,  // position S - T + i
};
// A row that sees no key and has no sink: o and lse.
enum class FullyMasked {
  kZero,     // 0, -infinity
  kUniform,  // the mean over all S values, seen or not; -infinity
  kNaN,      // NaN, NaN
};
enum class NegativeSegments {
  kMatch,  // a negative id is an id like others
  kNever,  // it matches nothing, itself included
};
enum class LogBase { kE, k2 };

// Row at position p sees keys p - left .. p + right, both ends included; absent: no limit.
struct Window {
  std::optional<Index> left, right;  // >= 0
};

// The conventions on which published kernels differ (spec/runs.md, `attention`).
struct AttentionOptions {
  Required<double> scale;
  Required<Causal> causal;
  Layout layout = Layout::kBHTD;
  BiasOrder bias_order = BiasOrder::kAfterScale;
  Window window = {};
  std::optional<double> soft_cap = {};  // c > 0: c tanh(score / c), before the mask
  FullyMasked fully_masked = FullyMasked::kZero;
  NegativeSegments negative_segments = NegativeSegments::kMatch;
  // Element type to which exp(score - row maximum) is rounded before the product with v; the
  // denominator sums it unrounded. Absent: not rounded.
  std::optional<DType> p_dtype = {};
  LogBase lse_base = LogBase::kE;
};

// q [B, H, T, D], k [B, G, S, D], v [B, G, S, E] of any float types, H a multiple of G: query head
// h reads key and value head h / (H / G). Layout kBTHD: see there.
struct AttentionInputs {
  ArrayRef q, k, v;
  std::optional<ArrayRef> bias = {};            // [B|1, H|1, T|1, S], a float type
  std::optional<ArrayRef> mask = {};            // [B|1, H|1, T|1, S] BOOL, true = visible
  std::optional<ArrayRef> q_segment_ids = {};   // [B, T] I32; both or neither
  std::optional<ArrayRef> kv_segment_ids = {};  // [B, S] I32
  std::optional<ArrayRef> q_lengths = {};       // [B] I32, 0..T
  std::optional<ArrayRef> kv_lengths = {};      // [B] I32, 0..S
  std::optional<ArrayRef> sinks = {};           // [H] a float type: a logit in the natural base
};

// One row of the result with what it was made of.
struct AttentionRow {
  enum class Kind {
    kSoftmax,     // sees a key or a sink
    kNoKey,       // sees nothing: FullyMasked decides
    kPastLength,  // past q_lengths: o = 0, lse = -infinity, whatever the options say
  };
  // A key the row sees.
  struct Key {
    Index index;
    double product;    // sum of |q| |k| over D
    double magnitude;  // |scale| product + |bias|, with the bias scaled under kBeforeScale
    double score;      // scaled and biased
    double logit;      // score after the soft cap
    double weight;     // exp(logit - maximum) / denominator
  };

  Index batch = 0, head = 0, query = 0;
  Kind kind = Kind::kSoftmax;
  std::vector<Key> keys;      // ascending; empty unless kSoftmax
  double maximum = 0;         // of the logits and the sink
  double denominator = 0;     // sum of exp(logit - maximum), the sink's included
  double sink = 0;            // its logit; -infinity when there is none
  double lse = 0;             // in the base of the options
  std::vector<double> o;      // E values
  const double* q = nullptr;  // D values
  const double* k = nullptr;  // row-major [S, D], the keys of the row's head
  const double* v = nullptr;  // row-major [S, E], its values
};

// Calls `visit` for every row: batch outermost, then head, then query. The row is valid during the
// call only. Error when shapes do not fit, element types are not those above, a length lies outside
// its range, a window side is negative, or kUniform meets S = 0.
void attention_rows(const AttentionInputs& in, const AttentionOptions& options,
                    const std::function<void(const AttentionRow&)>& visit);

// Every row of an attention, in f64. Error as for attention_rows.
struct AttentionResult {
  std::vector<double> o;    // row-major in the layout of the options
  std::vector<double> lse;  // [B, H, T]
};
AttentionResult attention(const AttentionInputs& in, const AttentionOptions& options);

// The number of row r of head h in an array [B, heads, rows, ..], or [B, rows, heads, ..] under
// kBTHD.
Index row_index(Layout layout, Index b, Index heads, Index h, Index rows, Index r);
// Where o of a row starts in an array [B, H, T, E], or [B, T, H, E] under kBTHD.
Index o_offset(Layout layout, Index heads, Index queries, Index width, const AttentionRow& row);

}  // namespace kref::reference
