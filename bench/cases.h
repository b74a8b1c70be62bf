// SPDX-License-Identifier: Apache-2.0
// The shapes that benchmarks time and tests check: x [m, k], y [k, n].
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

}  // namespace kref::bench
