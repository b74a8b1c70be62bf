// SPDX-License-Identifier: Apache-2.0
#include "dsl/array.h"

#include <doctest/doctest.h>

#include "dsl/tensor.h"

namespace kref {
namespace {

TEST_CASE("a tensor starts as poison, its blocks share its memory") {
  Tensor<float, 2> t({3, 4});  // (3, 4)
  CHECK(t(2, 3) != t(2, 3));
  t.fill(0.0f);
  const Ref<float, 2> inner = t.ref().block({1, 1}, {2, 2});
  inner(1, 1) = 5.0f;
  CHECK(t(2, 2) == 5.0f);
  CHECK_FALSE(inner.dense());
  CHECK_THROWS_WITH_AS(t.ref().block({2, 0}, {2, 4}),
                       "Ref::block: dimension 0: 2:4 does not lie inside the extent 3", Error);
}

TEST_CASE("arrays of run-time type") {
  const Index shape[] = {2, 3};
  Array a(DType::kI32, shape);
  a.mutable_elements<std::int32_t>()[4] = 7;
  CHECK(a.at(4) == 7.0);
  CHECK(a.ref().ref<const std::int32_t, 2>()(1, 1) == 7);
  CHECK(to_string(a) == "I32[2,3]");
  CHECK_THROWS_AS(a.elements<float>(), Error);
}

}  // namespace
}  // namespace kref
