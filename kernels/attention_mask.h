// SPDX-License-Identifier: Apache-2.0
// AttentionMask: which keys a row of attention sees, as a value that is asked block by block.
// Causal alignment, windows, lengths, segment ids and a boolean mask are data of it, so that one
// kernel serves them all and a block that nobody sees is known before it is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/flash_attention.h"

namespace kref::detail {

// What the rows of a block see of its keys: nothing outside the rectangle rows x keys, which counts
// from the block's corner. Row r of the rectangle sees keys begin[r] .. end[r] - 1 of it, and of
// those only where `chosen`, if there is such an array, is true.
struct BlockMask {
  Index row0 = 0, rows = 0, key0 = 0, keys = 0;
  bool whole = true;  // every row of the rectangle sees every key of it
  std::vector<std::int32_t> begin, end;
  Ref<const bool, 2> chosen;  // (rows, keys), null data: no such array

  bool any() const { return rows > 0; }
  bool sees(Index r, Index key) const {
    const auto i = static_cast<std::size_t>(r);
    return key >= begin[i] && key < end[i] && (chosen.data() == nullptr || chosen(r, key));
  }
};

class AttentionMask {
 public:
  // The inputs have been checked; their arrays must outlive this.
  AttentionMask(const AttentionInputs& in, const AttentionOptions& options, Index queries,
                Index keys);

  // Rows past it see nothing and are not part of the result.
  Index q_length(Index batch) const { return q_lengths_ != nullptr ? q_lengths_[batch] : queries_; }

  // Do rows differ in what they see beyond an interval of keys?
  bool chooses() const { return q_segments_.data() != nullptr || has_mask_; }

  // The block of rows row0.. and keys key0... `mask` is the boolean mask's part for this block,
  // with one row where it does not depend on the row. `memory` (rows, keys) becomes out.chosen
  // where chooses().
  void at(Index batch, Index row0, Index rows, Index key0, Index keys, Ref<const bool, 2> mask,
          Ref<bool, 2> memory, BlockMask& out) const;

 private:
  void choose(Index batch, Index row0, Index key0, Ref<const bool, 2> mask, Ref<bool, 2> memory,
              BlockMask& out) const;

  Index queries_, keys_;
  Index shift_ = 0;     // position of row i: i + shift_
  Index left_, right_;  // sees position - left_ .. position + right_
  bool has_mask_, negative_matches_;
  const std::int32_t *q_lengths_ = nullptr, *kv_lengths_ = nullptr;
  Ref<const std::int32_t, 2> q_segments_, kv_segments_;
};

}  // namespace kref::detail
