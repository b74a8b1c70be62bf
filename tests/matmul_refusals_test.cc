// SPDX-License-Identifier: Apache-2.0
// What matmul refuses, and how it says so.
#include <doctest/doctest.h>

#include <vector>

#include "dsl/tensor.h"
#include "kernels/matmul.h"

namespace kref {
namespace {

TEST_CASE("requests that do not fit are refused by name") {
  const Array x(DType::kF32, std::vector<Index>{2, 3}), y(DType::kF32, std::vector<Index>{3, 4});
  const auto refused = [](const Array& a, const Array& b, DType type, std::vector<Index> shape,
                          MatmulOptions o, const char* message) {
    Array z(type, shape);
    CHECK_THROWS_WITH_AS(matmul(a, b, z.mutable_ref(), o), message, Error);
  };
  refused(x, x, DType::kF32, {2, 3}, {},
          "matmul: x F32[2,3] has the contracting axis k = 3, y F32[2,3] has k = 2");
  refused(x, y, DType::kF32, {2, 5}, {}, "matmul: axis n of z F32[2,5] is 5, expected 4");
  refused(x, y, DType::kI32, {2, 4}, {},
          "matmul: z is I32[2,4], expected a float type for x of F32");
  refused(x, y, DType::kF32, {2, 4}, {.tile = {8, 0, 8}},
          "matmul: tile is [8, 0, 8], expected three positive sizes");
  const Array b(DType::kBool, std::vector<Index>{2, 3});
  refused(b, b, DType::kF32, {2, 3}, {}, "matmul: x is BOOL[2,3]: BOOL has no product");
}

TEST_CASE("memory that z shares, and strides, are refused by name") {
  Tensor<float, 2> a({4, 4}, 1.0f), b({4, 4}, 1.0f);
  const auto refused = [](const ArrayRef& x, const ArrayRef& y, const MutableArrayRef& z,
                          const char* message) {
    CHECK_THROWS_WITH_AS(matmul(x, y, z), message, Error);
  };
  refused(a.ref(), b.ref(), a.ref(),
          "matmul: z F32[4,4] overlaps x F32[4,4], expected memory of its own");
  refused(a.ref(), b.ref(), b.ref().block({1, 0}, {3, 4}),
          "matmul: axis m of z F32[3,4] is 3, expected 4");
  refused(a.ref().block({0, 0}, {2, 4}), b.ref(), b.ref().block({2, 0}, {2, 4}),
          "matmul: z F32[2,4] overlaps y F32[4,4], expected memory of its own");
  // Beside each other within rows is no overlap.
  Tensor<float, 2> wide({4, 8}, 1.0f);
  matmul(wide.ref().block({0, 0}, {4, 4}), b.ref(), wide.ref().block({0, 4}, {4, 4}));
  CHECK(wide(3, 7) == 4.0f);
  CHECK(wide(3, 3) == 1.0f);

  const auto strided = [&](Tensor<float, 2>& t) {
    MutableArrayRef view = t.ref();
    view.strides[1] = 2, view.extents[1] = 2, view.extents[0] = 2;
    return view;
  };
  const Ref<float, 2> small = b.ref().block({0, 0}, {2, 2});
  Tensor<float, 2> out({2, 2});
  refused(strided(a), small, out.ref(),
          "matmul: x is F32[2,2] with stride 2 in its last dimension, expected 1");
  refused(small, strided(a), out.ref(),
          "matmul: y is F32[2,2] with stride 2 in its last dimension, expected 1");
  refused(small, small, strided(a),
          "matmul: z is F32[2,2] with stride 2 in its last dimension, expected 1");
  const Ref<float, 3> huge(a.data(), {Index{1} << 62, 4, 4}, {0, 4, 1});
  refused(huge, huge, huge,
          "matmul: x: shape [4611686018427387904,4,4]: dimension 0 makes more than 2^63 - 1 "
          "elements");
}

}  // namespace
}  // namespace kref
