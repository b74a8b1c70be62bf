// SPDX-License-Identifier: Apache-2.0
// One step of decode attention over a cache that is sharded over its slots.
#pragma once

#include <array>

#include "sharding/sequence_sharded_decode.h"
#include "sharding/shard_map.h"
#include "tests/decode_steps.h"
#include "tests/sharding_arrays.h"

namespace kref {

// o, lse and both caches of `c` with its slots over Z; with `writes` the new token is appended.
inline std::array<Array, 4> sequence_sharded(const Mesh& mesh, const Decode& c, bool writes) {
  const PartitionSpec cache{none, "Z"};
  const auto body = [&](Device& device, const Array& q, const Array& k, const Array& v,
                        const Array& lengths, const Array& k_new, const Array& v_new) {
    SequenceBlocks blocks{.q = q, .k_cache = k, .v_cache = v, .lengths = lengths};
    if (writes) blocks.k_new = k_new, blocks.v_new = v_new;
    const SequenceDecoded out = sequence_sharded_decode(device, "Z", blocks, c.options);
    return std::array<Array, 4>{out.o, out.lse, out.k_cache, out.v_cache};
  };
  const auto step = shard_map(mesh,
                              {.in_specs = {P(), cache, cache, P(), P(), P()},
                               .out_specs = {P(), P(), cache, cache},
                               .check_replicas = true},
                              body);
  return step(c.q, c.k, c.v, c.lengths, c.k_new, c.v_new);
}

}  // namespace kref
