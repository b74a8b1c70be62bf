// SPDX-License-Identifier: Apache-2.0
// Faults of judgements that people met elsewhere, as small cases; the number in each name is the
// row of the collection they come from.
#include <doctest/doctest.h>

#include <cmath>

#include "golden/judge.h"
#include "golden/matmul_bound.h"

namespace kref {
namespace {

// [rows, columns] of whole numbers from `low` to 3, as f16.
Array whole_numbers(Index rows, Index columns, int low, std::uint32_t seed) {
  const Index shape[] = {rows, columns};
  Array out(DType::kF16, shape);
  for (f16& v : out.mutable_elements<f16>()) {
    seed = seed * 1664525u + 1013904223u;
    v = f16(low + static_cast<int>((seed >> 16) % static_cast<unsigned>(4 - low)));
  }
  return out;
}

// x y with sums kept in T: f16 rounds after each addition.
template <class T>
Array accumulated(const Array& x, const Array& y, DType type) {
  const Index m = x.extent(0), k = x.extent(1), n = y.extent(1), shape[] = {m, n};
  Array z(type, shape);
  const auto store = [&](Index at, float v) {
    if (type == DType::kF16) {
      z.mutable_elements<f16>()[static_cast<std::size_t>(at)] = f16(v);
    } else {
      z.mutable_elements<float>()[static_cast<std::size_t>(at)] = v;
    }
  };
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      T sum(0.0f);
      for (Index l = 0; l < k; ++l) {
        sum = T(static_cast<float>(sum) +
                static_cast<float>(x.at(i * k + l)) * static_cast<float>(y.at(l * n + j)));
      }
      store(i * n + j, static_cast<float>(sum));
    }
  }
  return z;
}

TEST_CASE("L133: a bound that grows with K passes f32 sums and fails f16 sums") {
  for (const DType out : {DType::kF32, DType::kF16}) {
    double before = 0;
    for (const Index k : {1024, 2048, 4096, 8192}) {
      CAPTURE(k);
      Product product;
      product.out_dtype = out;
      // Of both signs: sums of whole numbers within the accumulator's range are exact.
      const Array x = whole_numbers(3, k, -3, 1), y = whole_numbers(k, 5, -3, 2);
      const Expectation e = expect_product(x, y, product);
      const Array right = accumulated<float>(x, y, out);
      CHECK(judge(e, right).ok());
      for (Index i = 0; i < right.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        CHECK(e.value[at] == std::floor(e.value[at]));
        CHECK(right.at(i) ==
              (out == DType::kF32 ? e.value[at] : static_cast<double>(f16(e.value[at]))));
      }
      if (out == DType::kF32) CHECK(e.likely[0] > 1.3 * before);
      before = e.likely[0];
      // Of one sign, twice K or more: from 2048 on an f16 accumulator rounds every product.
      const Array a = whole_numbers(3, k, 1, 3), b = whole_numbers(k, 5, 1, 4);
      const Expectation positive = expect_product(a, b, product);
      CHECK(judge(positive, accumulated<float>(a, b, out)).ok());
      const Verdict wrong = judge(positive, accumulated<f16>(a, b, out));
      CHECK(2 * wrong.wrong > (k == 1024 ? 0 : wrong.elements));
    }
  }
}

}  // namespace
}  // namespace kref
