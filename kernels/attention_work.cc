// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_work.h"

#include <algorithm>

namespace kref {

double visible_share(const AttentionOptions& options, Index queries, Index keys) {
  if (queries == 0 || keys == 0) return 1;
  double seen = 0;
  const Index far = queries + keys;  // reaches all keys from every row
  const std::optional<Index>&left = options.window.left, &right = options.window.right;
  for (Index row = 0; row < queries; ++row) {
    const Index at = row + (options.causal == Causal::kBottomRight ? keys - queries : 0);
    Index first = 0, last = options.causal == Causal::kNone ? keys - 1 : at;
    if (left) first = std::max(first, at - std::min(*left, far));
    if (right) last = std::min(last, at + std::min(*right, far));
    seen += static_cast<double>(std::max<Index>(0, std::min(last, keys - 1) - first + 1));
  }
  return seen / (static_cast<double>(queries) * static_cast<double>(keys));
}

}  // namespace kref
