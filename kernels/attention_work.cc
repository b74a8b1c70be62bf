// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_work.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/attention_check.h"

namespace kref {

double visible_pairs(const AttentionOptions& options, Index queries, Index keys, Index rows,
                     Index valid) {
  if (rows <= 0 || valid <= 0) return 0;
  // Floats, because position and side may add up to more than an Index holds.
  constexpr double kNoEnd = std::numeric_limits<double>::infinity();
  const double position = options.causal == Causal::kBottomRight
                              ? static_cast<double>(keys) - static_cast<double>(queries)
                              : 0;
  double right = options.window.right ? static_cast<double>(*options.window.right) : kNoEnd;
  if (options.causal != Causal::kNone) right = 0;
  const double left = options.window.left ? static_cast<double>(*options.window.left) : kNoEnd;
  // Row i sees the keys from i + first to before i + end, of those from 0 to before `most`.
  const double first = position - left, end = position + right + 1;
  const double most = static_cast<double>(valid), last_row = static_cast<double>(rows);
  const auto seen = [&](double row) {
    return std::clamp(row + end, 0.0, most) - std::clamp(row + first, 0.0, most);
  };
  // How many is linear in the row between those at which either end meets the first or last key.
  std::array<double, 6> bends = {0, -end, most - end, -first, most - first, last_row};
  for (double& bend : bends) bend = std::clamp(bend, 0.0, last_row);
  std::sort(bends.begin(), bends.end());
  double sum = 0;
  for (std::size_t i = 0; i + 1 < bends.size(); ++i) {
    const double count = bends[i + 1] - bends[i];
    if (count > 0) sum += count * (seen(bends[i]) + seen(bends[i + 1] - 1)) / 2;
  }
  return sum;
}

double visible_share(const AttentionOptions& options, Index queries, Index keys) {
  if (queries == 0 || keys == 0) return 1;
  return visible_pairs(options, queries, keys, queries, keys) /
         (static_cast<double>(queries) * static_cast<double>(keys));
}

Index decode_keys(const Window& window, Index length) {
  return window.left && *window.left < length ? *window.left + 1 : length;
}

AttentionWork detail::attention_work(const AttentionInputs& in, const AttentionSizes& n,
                                     const AttentionOptions& options) {
  AttentionWork work{.batch = n.batches, .heads = n.heads, .kv_heads = n.groups};
  work.queries = n.queries, work.keys = static_cast<double>(n.keys);
  work.depth = n.depth, work.width = n.width;
  work.visible = visible_share(options, n.queries, n.keys);
  work.type = in.q.dtype, work.kv_type = in.k.dtype;
  work.soft_cap = options.soft_cap.has_value();
  return work;
}

}  // namespace kref
