// SPDX-License-Identifier: Apache-2.0
// decode_attention: one new token a sequence against a cache of keys and values.
#pragma once

#include <optional>

#include "kernels/flash_attention.h"
#include "kernels/reference_decode.h"

namespace kref {

using reference::DecodeInputs;
using reference::DecodeOptions;

// Keys that are attended to on their own before the parts are merged. Part of the last bits of a
// result.
inline constexpr Index kDecodeSplit = 512;

// o [B, H, E] and lse [B, H] as DecodeInputs and DecodeOptions say (spec/runs.md,
// `decode_attention`). q and the caches: one float type other than F64; o any float type; any outer
// strides. To write the new token's key and value first: KvCache, kernels/kv_cache.h.
//
//   decode_attention({.q = q, .k_cache = k, .v_cache = v, .lengths = n}, o, {}, {.scale = 0.125});
//
// The cache is cut into parts of kDecodeSplit keys, each with its maximum m, sum of exp(logit - m)
// and sum of exp(logit - m) v. They are merged in ascending order, in f32: where the weights of all
// keys are equal, sums of integers stay exact. The bits are the same for any number of threads and
// SIMD target. Slots past a length, and before a window, are not read.
//
// Error, naming the operand, when shapes, element types, lengths or options do not fit, and when o
// or lse overlap an input.
void decode_attention(const DecodeInputs& in, const MutableArrayRef& o,
                      const std::optional<Ref<float, 2>>& lse, const DecodeOptions& options);

}  // namespace kref
