// SPDX-License-Identifier: Apache-2.0
// What an attention comes to, for those who price it.
#pragma once

#include "kernels/flash_attention.h"

namespace kref {

// Of all pairs of a row and a key those whose key the row sees, by causal mask and window; 1 where
// there are none.
double visible_share(const AttentionOptions& options, Index queries, Index keys);

}  // namespace kref
