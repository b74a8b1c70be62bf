// SPDX-License-Identifier: Apache-2.0
// matmul on several threads, small enough for ThreadSanitizer: the bits of one thread, and the sums
// of a plain loop.
#include <doctest/doctest.h>

#include <cstring>

#include "dsl/dsl.h"
#include "kernels/matmul.h"
#include "tests/dot_inputs.h"

namespace kref {
namespace {

TEST_CASE("matmul: several threads, tiles that do not divide the sizes, a batch") {
  constexpr Index kBatch = 2, kM = 37, kN = 29, kK = 23;
  Tensor<float, 3> x({kBatch, kM, kK}), y({kBatch, kK, kN}), one({kBatch, kM, kN});
  Random random(7);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = small_integer<float>(random);
  for (Index i = 0; i < y.size(); ++i) y.data()[i] = small_integer<float>(random);
  const MatmulOptions options{.tile = {8, 16, 8}};  // 2 x 5 x 2 tiles of 3 steps
  set_threads(1);
  matmul(x.ref(), y.ref(), one.ref(), options);
  for (Index b = 0; b < kBatch; ++b) {
    for (Index i = 0; i < kM; ++i) {
      for (Index j = 0; j < kN; ++j) {
        float sum = 0;
        for (Index k = 0; k < kK; ++k) sum += x(b, i, k) * y(b, k, j);
        REQUIRE(one(b, i, j) == sum);
      }
    }
  }
  for (const int count : {2, 4, 7}) {
    CAPTURE(count);
    set_threads(count);
    for (int round = 0; round < 3; ++round) {
      Tensor<float, 3> z({kBatch, kM, kN});
      matmul(x.ref(), y.ref(), z.ref(), options);
      CHECK(std::memcmp(z.data(), one.data(), static_cast<std::size_t>(z.size()) * 4) == 0);
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace kref
