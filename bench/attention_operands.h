// SPDX-License-Identifier: Apache-2.0
// The operands of attention that benchmarks time, forward and backward.
#pragma once

#include <cmath>
#include <random>

#include "bench/cases.h"
#include "kernels/flash_attention.h"

namespace kref::bench {

template <class T, std::size_t R>
Tensor<T, R> random_tensor(const Shape<R>& shape, unsigned seed) {
  Tensor<T, R> out(shape);
  std::minstd_rand random(seed);
  for (Index i = 0; i < out.size(); ++i) {
    out.data()[i] = T((static_cast<float>(random() >> 8 & 0xFFFF) - 32768.0f) / 16384.0f);
  }
  return out;
}

template <class T>
struct Operands {
  Tensor<T, 4> q, k, v, o;
  AttentionOptions options;

  explicit Operands(const AttentionShape& c)
      : q(random_tensor<T, 4>({1, c.heads, c.queries, c.depth}, 1)),
        k(random_tensor<T, 4>({1, c.heads, c.keys, c.depth}, 2)),
        v(random_tensor<T, 4>({1, c.heads, c.keys, c.depth}, 3)),
        o({1, c.heads, c.queries, c.depth}),
        options{.scale = 1 / std::sqrt(static_cast<double>(c.depth)),
                .causal = c.causal ? Causal::kTopLeft : Causal::kNone} {}
};

}  // namespace kref::bench
