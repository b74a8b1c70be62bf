// SPDX-License-Identifier: Apache-2.0
// Decode attention with the cache sharded over the batch (sharding_semantics 5.3 and 8.3): between
// layers q and o are sharded over heads, and a cache that is sharded over heads alone is too large
// for the devices along the other axis. So each of the n devices along an axis keeps all heads (of
// its model shard) of 1/n of the sequences, and an all-to-all before and behind the attention turns
// one sharding into the other.
#pragma once

#include <functional>
#include <optional>

#include "kernels/decode_attention.h"
#include "sharding/collective_calls.h"

namespace kref {

// [B, N/n, X] of all sequences and a part of the heads -> [B/n, N, X] of a part of the sequences
// and all heads, and back: the exact inverse. n: devices along `axis_name`, which divides B. Heads
// of a device come before those of the next one, as a sharding P(None, axis_name) has them. Error,
// as all_to_all, for a rank below 2 and where n does not divide.
//
// The way back goes over heads as q has them. Where a device holds several kv heads, cutting each
// one's group of query heads instead, as the book prints it, gives another order.
Array heads_to_batch(Device& device, const Array& x, const AxisNames& axis_name,
                     CallSite where = CallSite::here());
Array batch_to_heads(Device& device, const Array& x, const AxisNames& axis_name,
                     CallSite where = CallSite::here());

// One device's part of a step. n: devices along the axis.
struct DecodeBlocks {
  Array q;                 // [B, N/n, D]
  Array k_cache, v_cache;  // [B/n, S, K, D], [B/n, S, K, E], N a multiple of K
  Array lengths;           // [B] I32: valid keys of every sequence, the new token included
  // [B, K/n, D], [B, K/n, E]: written at slot lengths - 1 first. Both or neither.
  std::optional<Array> k_new = {}, v_new = {};
};

// What becomes of it: o [B, N/n, E], lse [B, N/n] F32, and the caches with the new token; without
// one they are those that came.
struct DecodedBlocks {
  Array o, lse, k_cache, v_cache;
};

// The attention of a device's own sequences: o [B/n, N, E] and lse [B/n, N] to write.
using LocalDecode =
    std::function<void(const DecodeInputs&, const MutableArrayRef& o,
                       const std::optional<Ref<float, 2>>& lse, const DecodeOptions&)>;

// The conventions of the attention, the type of o, and what computes a device's part.
struct BatchShardedDecodeOptions {
  DecodeOptions attention;
  std::optional<DType> out_dtype = {};  // of o; not set: that of q
  LocalDecode local = decode_attention;
};

// A step of decode_attention, in the body of a launch or shard_map:
//
//   const auto body = [&](Device& d, const Array& q, const Array& k, const Array& v,
//                         const Array& lengths) {
//     return batch_sharded_decode(d, "Z", {q, k, v, lengths}, {.attention = {.scale = 0.125}}).o;
//   };
//   const auto step = shard_map(mesh, {.in_specs = {P{none, "Z"}, P{"Z"}, P{"Z"}, P()},
//                                      .out_specs = P{none, "Z"}}, body);
//
// Nothing is summed over devices: the numbers are those of one device, bit for bit. Along other
// axes of the mesh heads may be sharded too (q P(None, ("Y", "Z")), caches P("Z", None, "Y")): a
// device then attends with the heads of its own Y shard. With k_new the caches that come back are
// new arrays; between steps they stay on the mesh as shard_map's .sharded(...) gives them. Or
// caches belong to `device` (KvCache), and heads_to_batch and batch_to_heads stand before and
// behind the attention.
//
// Error, naming operand, expected and found, where shapes or lengths do not fit, n does not divide
// B, or k_new comes without v_new; a length of 0 beside k_new.
DecodedBlocks batch_sharded_decode(Device& device, const AxisNames& axis_name,
                                   const DecodeBlocks& blocks,
                                   const BatchShardedDecodeOptions& options,
                                   CallSite where = CallSite::here());

}  // namespace kref
