// SPDX-License-Identifier: Apache-2.0
#include "kernels/tile_ops.h"

#include <doctest/doctest.h>

#include "dsl/tensor.h"

namespace kref {
namespace {

TEST_CASE("fill and copy touch the block and nothing else") {
  for (const Index rows : {0, 1, 3}) {
    for (Index cols = 0; cols < 35; ++cols) {
      CAPTURE(rows);
      CAPTURE(cols);
      Tensor<float, 2> t({rows + 2, cols + 2}, -1.0f);
      const Ref<float, 2> inner = t.ref().block({1, 1}, {rows, cols});
      fill(inner, 2);
      Tensor<float, 2> u({rows + 2, cols + 2}, -3.0f);
      copy(inner, u.ref().block({1, 1}, {rows, cols}));
      for (Index r = 0; r < rows + 2; ++r) {
        for (Index c = 0; c < cols + 2; ++c) {
          const bool inside = r >= 1 && r <= rows && c >= 1 && c <= cols;
          REQUIRE(t(r, c) == (inside ? 2.0f : -1.0f));
          REQUIRE(u(r, c) == (inside ? 2.0f : -3.0f));
        }
      }
    }
  }
}

}  // namespace
}  // namespace kref
