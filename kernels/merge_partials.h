// SPDX-License-Identifier: Apache-2.0
// merge_partials: attention over some keys, from its results over parts of them, as a cache split
// over devices or a ring of key blocks gives them.
#pragma once

#include <optional>
#include <span>

#include "kernels/flash_attention.h"

namespace kref {

// The result over one part of the keys: o [..., E] of any float type, normalised, and lse [...] F32
// in `base`, which has to be said: kernels disagree, and partial results merged in the wrong base
// are wrong by factors that look like noise.
struct PartialAttention {
  ArrayRef o, lse;
  reference::Required<LogBase> base;
};

// o and lse, in the same base, over all parts: o = sum of w_i o_i, w_i = exp(lse_i - lse). In f32,
// in the order of the parts. A part with lse = -infinity saw no key: it takes no part, whatever its
// o holds; where all are, o = 0 and lse = -infinity. Any strides. Error, naming the part, when
// shapes, types or bases differ, when there is no part, and when an output overlaps an input.
void merge_partials(std::span<const PartialAttention> parts, const MutableArrayRef& o,
                    const std::optional<MutableArrayRef>& lse = {});

}  // namespace kref
