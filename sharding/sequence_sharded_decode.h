// SPDX-License-Identifier: Apache-2.0
// Decode attention with the cache sharded over its slots (sharding_semantics 8.4), for few
// sequences that are long: each device attends to its own slots, and what it found is merged
// exactly by the weights of its part, as flash-decoding does.
#pragma once

#include <optional>

#include "kernels/decode_attention.h"
#include "sharding/collective_calls.h"

namespace kref {

// One device's part of a step. n: devices along the axis; device r of them holds slots r S/n up to
// (r + 1) S/n of every sequence.
struct SequenceBlocks {
  Array q;                 // [B, N, D], the same on every device
  Array k_cache, v_cache;  // [B, S/n, K, D], [B, S/n, K, E], N a multiple of K
  Array lengths;           // [B] I32: valid keys of a sequence on all devices, 0..S
  // [B, K, D], [B, K, E]: written at slot lengths - 1, which one device holds. Both or neither.
  std::optional<Array> k_new = {}, v_new = {};
};

// o [B, N, E] and lse [B, N] F32, the same on every device; this device's caches with the new
// token.
struct SequenceDecoded {
  Array o, lse, k_cache, v_cache;
};

// A step of decode_attention in the body of a launch or shard_map. With m the pmax over the axis of
// the devices' lse, and w = exp(lse - m): o = psum(w o) / psum(w), lse = m + log psum(w), in f32; a
// device that holds no key which a sequence sees adds exactly 0. Sums of integers under equal
// weights stay exact; else the last bits differ from those of one device, since a cache in parts is
// summed in parts. `out_dtype`: of o, rounded once; not set: that of q.
//
// Error, naming operand, expected and found, where shapes, lengths or options do not fit.
SequenceDecoded sequence_sharded_decode(Device& device, const AxisNames& axis_name,
                                        const SequenceBlocks& blocks, const DecodeOptions& options,
                                        std::optional<DType> out_dtype = {},
                                        CallSite where = CallSite::here());

}  // namespace kref
