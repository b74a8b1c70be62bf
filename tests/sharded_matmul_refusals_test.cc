// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "sharding/sharded_matmul.h"
#include "tests/refusal.h"
#include "tests/sharding_arrays.h"

namespace kref {
namespace {

TEST_CASE(
    "result types and tiles that a product does not have are refused before a device starts") {
  const Mesh mesh = Mesh::parse("X=2");
  const auto message = [&](const MatmulSpecs& specs, const ShardedMatmulOptions& options,
                           DType type) {
    const Array x = iota({4, 4}, 0, type);
    return refusal([&] { sharded_matmul(mesh, specs, x, x, options); });
  };
  for (const MatmulSpecs& specs :
       {MatmulSpecs{{none, "X"}, {"X"}, {}}, MatmulSpecs{{"X"}, {}, {P{"X"}, {}}}}) {
    for (const DType z : {DType::kI8, DType::kBool}) {
      CHECK(message(specs, {.out_dtype = z}, DType::kF32) ==
            std::string("sharded_matmul: out_dtype is ") + name_of(z) +
                ", expected a float type for operands of F32");
    }
    CHECK(message(specs, {.out_dtype = DType::kF32}, DType::kI8) ==
          "sharded_matmul: out_dtype is F32, expected I32 for operands of I8");
    CHECK(message(specs, {.tile = {-1, 1, 1}}, DType::kF32) ==
          "sharded_matmul: tile is [-1, 1, 1], expected three positive sizes");
    CHECK(message(specs, {.out_dtype = DType::kBF16}, DType::kF32) == "(not refused)");
  }
}

}  // namespace
}  // namespace kref
