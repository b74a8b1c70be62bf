// SPDX-License-Identifier: Apache-2.0
// Wrong attention kernels, simulated: the definition with one rule changed, for any rows of it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "golden/attention_bound.h"
#include "golden/decode_op.h"

namespace kref {

// Which keys a row sees, as the numbers that wrong kernels have wrong.
struct Sight {
  Index offset = 0;        // position of row 0; that of row i is i more
  bool at_length = false;  // instead, the last valid key of the sequence: decode
  // Keys position - left .. position + right, causal included; absent: no limit. right may be -1.
  std::optional<Index> left, right;
  bool mask = true, segments = true, kv_lengths = true;  // whether they are heeded
  Index length = 0;                                      // added to every kv length
  Index first = 0, last = 0;  // keys missing at the start and the end of the array
};

// A kernel: a field changed makes it wrong.
struct WrongAttention {
  AttentionRun run;  // arrays and options; what `sight` has too is taken from there
  Sight sight;
};

// The kernels that are right. Decode: one row a sequence, in layout kBTHD.
WrongAttention right_attention(const AttentionRun& run);
WrongAttention right_decode(const DecodeRun& decode, const reference::DecodeAsAttention& as);

// Rows of a kernel with their bounds, under the numbering of the whole run. The arrays must outlive
// it.
class WrongRows {
 public:
  using Visit = std::function<void(const reference::AttentionRow&, const RowBounds&)>;

  // `same`: bounds of a run of the same q, k and v.
  WrongRows(const WrongAttention& kernel, const AttentionBounds& same);
  WrongRows(const WrongRows&) = delete;
  WrongRows& operator=(const WrongRows&) = delete;

  // Visits rows first .. first + count - 1 of head h, which reads kv head `kv_head`.
  void operator()(Index b, Index h, Index kv_head, Index first, Index count, const Visit& visit);

 private:
  bool sees(Index b, Index h, Index i, Index j) const;

  const WrongAttention kernel_;
  AttentionBounds bounds_;  // of kernel_.run
  reference::AttentionRow row_;
};

}  // namespace kref
