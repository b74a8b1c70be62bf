// SPDX-License-Identifier: Apache-2.0
// Decode attention over devices with the cache sharded over its slots: what has no influence, and
// integers exactly.
#include <doctest/doctest.h>

#include "tests/sequence_steps.h"

namespace kref {
namespace {

TEST_CASE("slots that are not valid, NaN included, have no influence on any device") {
  const Decode clean({2, 8, 2, 2}, 90);
  Decode dirty = clean;
  for (Index b = 0; b < 2; ++b) {
    for (Index s = clean.lengths.elements<std::int32_t>()[static_cast<std::size_t>(b)]; s < 8;
         ++s) {
      for (Index i = 0; i < clean.K * clean.D; ++i)
        dirty.k.mutable_elements<float>()[static_cast<std::size_t>((b * 8 + s) * clean.K * clean.D +
                                                                   i)] = NAN;
      for (Index i = 0; i < clean.K * clean.E; ++i)
        dirty.v.mutable_elements<float>()[static_cast<std::size_t>((b * 8 + s) * clean.K * clean.E +
                                                                   i)] = NAN;
    }
  }
  const Mesh mesh = Mesh::parse("Z=4");
  const auto a = sequence_sharded(mesh, clean, true), b = sequence_sharded(mesh, dirty, true);
  CHECK(same_bits(a[0], b[0]));
  CHECK(same_bits(a[1], b[1]));
}

TEST_CASE("equal weights over all devices give means exactly") {
  for (const Index n : {1, 2, 4}) {
    Decode c({2, 16, 1, 2}, 1);
    c.q = full({2, 2, 5}, 0);
    c.v =
        filled(DType::kF32, {2, 16, 1, 3}, [](Index i) { return static_cast<double>(i / 3 % 16); });
    c.lengths.mutable_elements<std::int32_t>()[0] = 16;  // mean of 0..15
    c.lengths.mutable_elements<std::int32_t>()[1] = 4;   // of 0..3
    const auto found = sequence_sharded(Mesh::parse("Z=" + std::to_string(n)), c, false);
    for (Index i = 0; i < 6; ++i) {
      CHECK(found[0].at(i) == 7.5);
      CHECK(found[0].at(6 + i) == 1.5);
    }
  }
}

}  // namespace
}  // namespace kref
