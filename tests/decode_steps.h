// SPDX-License-Identifier: Apache-2.0
// One step of decode attention with a new token, drawn from a seed.
#pragma once

#include <random>
#include <tuple>

#include "kernels/decode_attention.h"
#include "kernels/kv_cache.h"
#include "sharding/batch_sharded_decode.h"
#include "tests/flash_attention_cases.h"

namespace kref {

struct Decode {
  Index B, S, K, M, D, E;  // N = K M heads
  Array q, k, v, lengths, k_new, v_new;
  DecodeOptions options{.scale = 0.5};

  Decode(std::tuple<Index, Index, Index, Index> sizes, unsigned seed, DType type = DType::kF32)
      : B(std::get<0>(sizes)),
        S(std::get<1>(sizes)),
        K(std::get<2>(sizes)),
        M(std::get<3>(sizes)),
        D(5),
        E(3) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto noise = [&](Index) { return normal(random); };
    q = filled(type, {B, K * M, D}, noise), k = filled(type, {B, S, K, D}, noise);
    v = filled(type, {B, S, K, E}, noise), k_new = filled(type, {B, K, D}, noise);
    v_new = filled(type, {B, K, E}, noise);
    lengths = filled(DType::kI32, {B}, [&](Index) {
      return static_cast<double>(1 + random() % static_cast<unsigned>(S));
    });
  }

  // On one device, the new token written.
  DecodedBlocks whole() const {
    DecodedBlocks out{.o = Array(q.dtype(), std::vector<Index>{B, K * M, E}),
                      .lse = Array(DType::kF32, std::vector<Index>{B, K * M}),
                      .k_cache = with_token("k_new", k, k_new, lengths),
                      .v_cache = with_token("v_new", v, v_new, lengths)};
    decode_attention({.q = q, .k_cache = out.k_cache, .v_cache = out.v_cache, .lengths = lengths},
                     out.o.mutable_ref(), out.lse.mutable_ref().ref<float, 2>(), options);
    return out;
  }
};

}  // namespace kref
