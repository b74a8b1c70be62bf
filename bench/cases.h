// SPDX-License-Identifier: Apache-2.0
// The shapes that benchmarks time and tests check: of matmul x [m, k], y [k, n].
#pragma once

#include "dsl/ref.h"

namespace kref::bench {

struct MatmulCase {
  const char* name;
  Index m, n, k;
  constexpr double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// Cubes: bound by arithmetic.
inline constexpr MatmulCase kCubes[] = {
    {"256x256x256", 256, 256, 256},
    {"512x512x512", 512, 512, 512},
    {"1024x1024x1024", 1024, 1024, 1024},
    {"2048x2048x2048", 2048, 2048, 2048},
};

// A few rows against one weight matrix: bound by reading y.
inline constexpr MatmulCase kSkinny[] = {
    {"1x4096x4096", 1, 4096, 4096},     {"8x4096x4096", 8, 4096, 4096},
    {"16x4096x4096", 16, 4096, 4096},   {"32x4096x4096", 32, 4096, 4096},
    {"128x4096x4096", 128, 4096, 4096},
};

// Runs that are judged: from one that every test run can afford to the one with an aim of its own.
inline constexpr MatmulCase kChecks[] = {
    {"256x256x256", 256, 256, 256},
    {"1024x1024x1024", 1024, 1024, 1024},
    {"4096x4096x4096", 4096, 4096, 4096},
};

// One sequence; the causal half of the products counts.
struct AttentionShape {
  const char* name;
  Index heads, queries, keys, depth;
  bool causal;
  constexpr double flops() const {
    return 4.0 * static_cast<double>(heads) * static_cast<double>(queries) *
           static_cast<double>(keys) * static_cast<double>(depth) * (causal ? 0.5 : 1.0);
  }
};
inline constexpr AttentionShape kAttentions[] = {
    {"256x256x64/full", 2, 256, 256, 64, false},
    {"2048x2048x64/full", 4, 2048, 2048, 64, false},
    {"2048x2048x64/causal", 4, 2048, 2048, 64, true},
    {"2048x2048x128/full", 4, 2048, 2048, 128, false},
    {"2048x2048x128/causal", 4, 2048, 2048, 128, true},
};

// Named BxSxHxGxD; bound by reading both caches.
struct DecodeShape {
  const char* name;
  Index batches, slots, heads, groups, depth;
  constexpr double elements() const {
    return 2.0 * static_cast<double>(batches) * static_cast<double>(slots) *
           static_cast<double>(groups) * static_cast<double>(depth);
  }
};
inline constexpr DecodeShape kDecodes[] = {
    {"2x256x4x4x64", 2, 256, 4, 4, 64},
    {"8x4096x8x8x64", 8, 4096, 8, 8, 64},
    {"8x4096x8x8x128", 8, 4096, 8, 8, 128},
    {"8x4096x32x8x128", 8, 4096, 32, 8, 128},
};

}  // namespace kref::bench
