// SPDX-License-Identifier: Apache-2.0
#include "dsl/array.h"

#include <doctest/doctest.h>

#include "dsl/tensor.h"
#include "tests/refusal.h"

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

TEST_CASE("shapes whose product does not fit into 64 bits are refused, with the dimension") {
  constexpr Index kLarge = Index{1} << 32;
  float* const nowhere = nullptr;
  CHECK(refusal([&] {
          Ref<float, 3>(nowhere, {2, kLarge, kLarge});
        }) ==
        "Ref: shape [2,4294967296,4294967296]: dimension 1 makes more than 2^63 - 1 elements");
  CHECK(refusal([&] {
          Ref<float, 2>(nowhere, {2, -3});
        }) == "Ref: shape [2,-3]: dimension 1 is negative");
  const Ref<float, 3> broadcast(nowhere, {kLarge, kLarge, 1}, {0, 0, 1});
  CHECK(refusal([&] { (void)broadcast.size(); }).starts_with("Ref: shape [4294967296,"));
  CHECK(refusal([&] { (void)ArrayRef(broadcast).size(); }).starts_with("array: shape ["));
  CHECK(refusal([&] {
          Tensor<float, 2>({kLarge, kLarge / 4});
        }) == "Tensor: shape [4294967296,1073741824]: dimension 0 makes more than 2^63 - 1 bytes");
  const Index shape[] = {kLarge, kLarge / 4};
  CHECK(refusal([&] { Array(DType::kF32, shape); }).starts_with("array: shape [4294967296,"));
  // Nothing is nothing, however much of it.
  CHECK(Ref<float, 3>(nowhere, {kLarge, 0, kLarge}).size() == 0);
  CHECK(Ref<float, 3>(nowhere, {0, kLarge, kLarge}).dense());
  CHECK(Tensor<float, 3>({0, kLarge, kLarge}).size() == 0);
}

}  // namespace
}  // namespace kref
