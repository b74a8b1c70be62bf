// SPDX-License-Identifier: Apache-2.0
// The grid of flash_attention, between its checks and its verbs.
#pragma once

#include "kernels/flash_attention.h"

namespace kref::detail {

// q, k, v, o as [B, heads, rows, columns] whatever the layout, checked; S > 0, tile sizes positive.
void attention_grid(const AttentionInputs& in, const MutableArrayRef& o,
                    const std::optional<Ref<float, 3>>& lse, const AttentionOptions& options,
                    const AttentionTile& tile);

}  // namespace kref::detail
