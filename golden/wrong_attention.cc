// SPDX-License-Identifier: Apache-2.0
#include "golden/wrong_attention.h"

#include <algorithm>

namespace kref {
namespace {

using reference::Causal;
using reference::Layout;
using reference::NegativeSegments;

// q, k or v as [B, heads, rows, columns].
ArrayRef by_head(ArrayRef a, Layout layout) {
  if (layout == Layout::kBTHD) {
    std::swap(a.extents[1], a.extents[2]);
    std::swap(a.strides[1], a.strides[2]);
  }
  return a;
}

// Index `at` of dimension d, or indices at .. at + count - 1. A dimension of 1 stands for all.
ArrayRef cut(ArrayRef a, std::size_t d, Index at, Index count = 1) {
  if (a.extents[d] == 1) return a;
  const auto bytes = static_cast<std::ptrdiff_t>(size_of(a.dtype));
  a.data = static_cast<const char*>(a.data) + at * a.strides[d] * bytes;
  a.extents[d] = count;
  return a;
}

std::int32_t integer(const ArrayRef& a, Index i) {
  return static_cast<const std::int32_t*>(a.data)[i * a.strides[0]];
}
std::int32_t integer(const ArrayRef& a, Index i, Index j) {
  return static_cast<const std::int32_t*>(a.data)[i * a.strides[0] + j * a.strides[1]];
}

// A side of a window, at most what reaches all keys from every row: a fault is one more than it.
std::optional<Index> side_of(const std::optional<Index>& side, const AttentionRun& run) {
  if (!side) return std::nullopt;
  return std::min(*side, run.queries + run.keys);
}

}  // namespace

WrongAttention right_attention(const AttentionRun& run) {
  const reference::AttentionOptions& options = run.options;
  WrongAttention out{.run = run, .sight = {}};
  out.run.options.p_dtype = options.p_dtype.value_or(DType::kF32);
  Sight& sight = out.sight;
  if (options.causal == Causal::kBottomRight) sight.offset = run.keys - run.queries;
  sight.left = side_of(options.window.left, run), sight.right = side_of(options.window.right, run);
  if (options.causal != Causal::kNone) sight.right = std::min<Index>(0, sight.right.value_or(0));
  return out;
}

WrongAttention right_decode(const DecodeRun& decode, const reference::DecodeAsAttention& as) {
  WrongAttention out{.run = as_attention(decode, as), .sight = {}};
  out.run.options.p_dtype = decode.options.p_dtype.value_or(DType::kF32);
  out.run.in.mask.reset();  // lengths and window
  out.run.in.kv_lengths = decode.in.lengths;
  out.sight.at_length = true;
  out.sight.left = side_of(decode.options.window.left, out.run);
  return out;
}

WrongRows::WrongRows(const WrongAttention& kernel, const AttentionBounds& same)
    : kernel_(kernel), bounds_(kernel_.run, same) {}

bool WrongRows::sees(Index b, Index h, Index i, Index j) const {
  const Sight& sight = kernel_.sight;
  const reference::AttentionInputs& in = kernel_.run.in;
  if (j < sight.first || j >= kernel_.run.keys - sight.last) return false;
  const Index length = in.kv_lengths ? integer(*in.kv_lengths, b) + sight.length : 0;
  if (in.kv_lengths && sight.kv_lengths && j >= length) return false;
  const Index ahead = j - (sight.at_length ? length - 1 : sight.offset + i);
  if (sight.left && -ahead > *sight.left) return false;
  if (sight.right && ahead > *sight.right) return false;
  if (in.mask && sight.mask) {
    const ArrayRef at = cut(cut(cut(*in.mask, 0, b), 1, h), 2, i);
    if (!static_cast<const bool*>(at.data)[j * at.strides[3]]) return false;
  }
  if (!in.q_segment_ids || !sight.segments) return true;
  const std::int32_t mine = integer(*in.q_segment_ids, b, i);
  if (mine < 0 && kernel_.run.options.negative_segments == NegativeSegments::kNever) return false;
  return mine == integer(*in.kv_segment_ids, b, j);
}

void WrongRows::operator()(Index b, Index h, Index kv_head, Index first, Index count,
                           const Visit& visit) {
  const AttentionRun& run = kernel_.run;
  const Layout layout = run.options.layout;
  Tensor<bool, 4> visible({1, 1, count, run.keys}, false);
  for (Index i = 0; i < count; ++i) {
    for (Index j = 0; j < run.keys; ++j) visible(0, 0, i, j) = sees(b, h, first + i, j);
  }
  const auto head = [&](const ArrayRef& a, Index at) {
    return cut(cut(by_head(a, layout), 0, b), 1, at);
  };
  reference::AttentionInputs in{.q = cut(head(run.in.q, h), 2, first, count),
                                .k = head(run.in.k, kv_head),
                                .v = head(run.in.v, kv_head)};
  in.mask = ArrayRef(visible.ref());
  if (run.in.bias) in.bias = cut(cut(cut(*run.in.bias, 0, b), 1, h), 2, first, count);
  if (run.in.sinks) in.sinks = cut(*run.in.sinks, 0, h);
  Tensor<std::int32_t, 1> rows({1});
  if (run.in.q_lengths) {
    const auto length = static_cast<Index>(integer(*run.in.q_lengths, b));
    rows(0) = static_cast<std::int32_t>(std::clamp<Index>(length - first, 0, count));
    in.q_lengths = ArrayRef(rows.ref());
  }
  reference::AttentionOptions options = run.options;
  options.layout = Layout::kBHTD, options.causal = Causal::kNone, options.window = {};
  options.p_dtype.reset();  // the bound covers the rounding, see expect_attention
  reference::attention_rows(in, options, [&](const reference::AttentionRow& row) {
    row_ = row;
    row_.batch = b, row_.head = h, row_.query = first + row.query;
    visit(row_, bounds_(row_, kv_head));
  });
}

}  // namespace kref
