// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_mask.h"

#include <algorithm>

namespace kref::detail {

AttentionMask::AttentionMask(const AttentionInputs& in, const AttentionOptions& options,
                             Index queries, Index keys)
    : queries_(queries),
      keys_(keys),
      has_mask_(in.mask.has_value()),
      negative_matches_(options.negative_segments == NegativeSegments::kMatch) {
  const Causal causal = options.causal;
  if (causal == Causal::kBottomRight) shift_ = keys - queries;
  // No distance between a row and a key is larger, so that sums below cannot overflow.
  const Index far = 2 * (queries + keys) + 1;
  left_ = std::min(options.window.left.value_or(far), far);
  right_ = std::min(options.window.right.value_or(far), far);
  if (causal != Causal::kNone) right_ = 0;
  if (in.q_lengths) q_lengths_ = static_cast<const std::int32_t*>(in.q_lengths->data);
  if (in.kv_lengths) kv_lengths_ = static_cast<const std::int32_t*>(in.kv_lengths->data);
  if (in.q_segment_ids) {
    q_segments_ = in.q_segment_ids->ref<const std::int32_t, 2>();
    kv_segments_ = in.kv_segment_ids->ref<const std::int32_t, 2>();
  }
}

void AttentionMask::at(Index batch, Index row0, Index rows, Index key0, Index keys,
                       Ref<const bool, 2> mask, Ref<bool, 2> memory, BlockMask& out) const {
  out.rows = out.keys = 0;
  out.chosen = {};
  rows = std::min(rows, q_length(batch) - row0);
  const Index length = kv_lengths_ != nullptr ? kv_lengths_[batch] : keys_;
  const Index last = std::min(key0 + keys, length);
  if (last <= key0) return;
  const auto begin = [&](Index r) { return std::max(key0, row0 + r + shift_ - left_); };
  const auto end = [&](Index r) { return std::min(last, row0 + r + shift_ + right_ + 1); };
  const auto sees = [&](Index r) { return begin(r) < end(r); };
  // Both ends never fall from row to row: the rows that see something follow each other.
  Index first = 0;
  if (rows > 0 && end(0) <= begin(0)) {
    // The first row whose end passes key0; its begin may be past `last` by then.
    first = std::clamp<Index>(key0 - (row0 + shift_ + right_), 0, rows);
  }
  while (rows > first && !sees(rows - 1)) {
    // Rows at the end see nothing where their begin has passed the last key.
    const Index past = row0 + rows - 1 + shift_ - left_ - (last - 1);
    rows -= std::max<Index>(1, std::min(past, rows - first));
  }
  while (first < rows && !sees(first)) ++first;
  if (first >= rows) return;

  out.row0 = first, out.rows = rows - first;
  // Down to a multiple of 16, so that an element's lane depends on its place in the block only and
  // not on which rows share the block.
  out.key0 = (begin(first) - key0) / 16 * 16;
  out.keys = end(rows - 1) - key0 - out.key0;
  out.begin.resize(static_cast<std::size_t>(out.rows));
  out.end.resize(static_cast<std::size_t>(out.rows));
  out.whole = true;
  for (Index r = 0; r < out.rows; ++r) {
    const Index b = begin(first + r) - key0 - out.key0;
    const Index e = end(first + r) - key0 - out.key0;
    out.begin[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(b);
    out.end[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(std::max(b, e));
    out.whole = out.whole && b == 0 && e == out.keys;
  }
  if (chooses()) choose(batch, row0, key0, mask, memory, out);
}

// Fills out.chosen; where no row sees a key after all, out has no rows.
void AttentionMask::choose(Index batch, Index row0, Index key0, Ref<const bool, 2> mask,
                           Ref<bool, 2> memory, BlockMask& out) const {
  bool all = true, any = false;
  for (Index r = 0; r < out.rows; ++r) {
    bool* chosen = &memory(r, 0);
    const Index row = row0 + out.row0 + r;
    const bool* given = nullptr;
    if (has_mask_) given = mask.data() + (mask.extent(0) == 1 ? 0 : out.row0 + r) * mask.stride(0);
    for (Index c = 0; c < out.keys; ++c) {
      bool yes = given == nullptr || given[out.key0 + c];
      if (q_segments_.data() != nullptr) {
        const std::int32_t mine = q_segments_(batch, row);
        const std::int32_t its = kv_segments_(batch, key0 + out.key0 + c);
        yes = yes && mine == its && (mine >= 0 || negative_matches_);
      }
      chosen[c] = yes;
    }
    const auto i = static_cast<std::size_t>(r);
    const bool* from = chosen + out.begin[i];
    const bool* to = chosen + out.end[i];
    all = all && std::find(from, to, false) == to;
    any = any || std::find(from, to, true) != to;
  }
  if (!any) {
    out.rows = out.keys = 0;
  } else if (!all) {
    out.whole = false;
    out.chosen = Ref<const bool, 2>(memory.data(), {out.rows, out.keys}, memory.strides());
  }
}

}  // namespace kref::detail
