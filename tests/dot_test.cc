// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // as kernels/dot_s32.cc
#include "kernels/dot.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "dsl/tensor.h"
#include "tests/dot_inputs.h"
#include "tests/dot_product.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
int wrong_products(const std::vector<Index>& ms, const std::vector<Index>& ns,
                   const std::vector<Index>& ks, const std::vector<Precision>& precisions) {
  int wrong = 0;
  for (const Precision precision : precisions)
    for (const bool trans_x : {false, true})
      for (const bool trans_y : {false, true})
        for (const Index m : ms)
          for (const Index n : ns)
            for (const Index k : ks) {
              Product<T> p(m, n, k, {trans_x, trans_y, precision},
                           [](Random& r) { return rounding<T>(r); });
              const auto from_zero = p.expected(true), added = p.expected(false);
              Product<T> q = p;
              p.run();
              wrong += same_bits(p.acc, added) ? 0 : 1;
              q.run_from_zero();
              wrong += same_bits(q.acc, from_zero) ? 0 : 1;
            }
  return wrong;
}

TEST_CASE_TEMPLATE(
    "dot_add is the chain it promises: every remainder, both transpositions, every target", T,
    float, double, bf16, f16, f8_e4m3, f8_e5m2, std::int8_t, std::uint8_t) {
  for_each_target([] {
    // Around the micro-kernels' 4, 6, 8 and 12 rows and their 2 to 32 columns; k odd, even and past
    // a panel's depth.
    CHECK(wrong_products<T>({0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25},
                            {1, 2, 15, 16, 17, 31, 33, 65}, {0, 1, 2, 3, 8},
                            {Precision::kF32}) == 0);
    CHECK(wrong_products<T>({1, 8, 14}, {5, 40, 100}, {255, 257, 600}, {Precision::kF32}) == 0);
    // Around the 48 rows that are turned round together, ends of 13 to 16 rows across them.
    CHECK(wrong_products<T>({49, 52, 64}, {33}, {9}, {Precision::kF32}) == 0);
  });
}

TEST_CASE("dot_add in the split precisions") {
  for_each_target([] {
    CHECK(wrong_products<float>({1, 5, 13}, {1, 16, 33, 70}, {1, 2, 41, 43, 85, 86, 300},
                                {Precision::kBF16, Precision::kBF16x3, Precision::kBF16x6}) == 0);
    // From 64 rows on as bf16 pairs, whose panels are 512, 170 and 84 deep.
    CHECK(wrong_products<float>({64}, {70}, {1, 45},
                                {Precision::kBF16, Precision::kBF16x3, Precision::kBF16x6}) == 0);
    CHECK(wrong_products<float>({64}, {70}, {513}, {Precision::kBF16}) == 0);
    CHECK(wrong_products<float>({64}, {70}, {171}, {Precision::kBF16x3}) == 0);
    CHECK(wrong_products<float>({64}, {70}, {85}, {Precision::kBF16x6}) == 0);
    CHECK(wrong_products<f8_e4m3>({64}, {70}, {17}, {Precision::kF32}) == 0);
    CHECK(wrong_products<f8_e5m2>({64}, {70}, {514}, {Precision::kF32}) == 0);
  });
}

TEST_CASE("wide, tall and deep products cross every packing block, on every target") {
  for_each_target([] {
    CHECK(wrong_products<float>({540}, {7}, {3}, {Precision::kF32}) == 0);
    CHECK(wrong_products<bf16>({3}, {1030}, {260}, {Precision::kF32}) == 0);
    CHECK(wrong_products<std::int8_t>({540}, {520}, {5}, {Precision::kF32}) == 0);
    // Both ways to multiply meet at 8 rows; from there on y is packed in passing, by 6, 8 or 12.
    CHECK(wrong_products<float>({7, 8, 9, 20}, {33, 100}, {17, 530}, {Precision::kF32}) == 0);
    CHECK(wrong_products<bf16>({8, 9, 12}, {33, 100}, {17, 530}, {Precision::kF32}) == 0);
    CHECK(wrong_products<std::uint8_t>({8, 9, 12}, {33, 100}, {17, 1030}, {Precision::kF32}) == 0);
  });
}

TEST_CASE("NaN and infinity reach the elements they belong to and no other") {
  for_each_target([] {
    for (const Index n : {1, 17, 40}) {
      Tensor<float, 2> x({7, 9}, 1.0f), y({9, n}, 1.0f), acc({7, n}, 0.0f);
      x(3, 8) = kNaN, y(0, n - 1) = kInf;
      dot_add(x.ref(), y.ref(), acc.ref());
      for (Index i = 0; i < 7; ++i)
        for (Index j = 0; j < n; ++j) {
          CAPTURE(i);
          CAPTURE(j);
          if (i == 3)
            CHECK(std::isnan(acc(i, j)));
          else
            CHECK(acc(i, j) == (j == n - 1 ? kInf : 9.0f));
        }
    }
  });
}

TEST_CASE("a NaN stays one however its bits are cut") {
  for_each_target([] {
    // Nothing but the last bit of the payload, which no part of 16 bits has.
    const float nan = std::bit_cast<float>(0x7F800001u);
    for (const Precision precision : kPrecisions) {
      Tensor<float, 2> x({64, 3}, 1.0f), y({3, 64}, 1.0f), acc({64, 64}, 0.0f);
      x(5, 0) = nan, x(6, 2) = nan, y(1, 7) = nan, y(2, 40) = nan;
      dot_add(x.ref(), y.ref(), acc.ref(), {.precision = precision});
      int wrong = 0;
      for (Index i = 0; i < 64; ++i)
        for (Index j = 0; j < 64; ++j) {
          const bool expected = i == 5 || i == 6 || j == 7 || j == 40;
          wrong += std::isnan(acc(i, j)) == expected && (expected || acc(i, j) == 3.0f) ? 0 : 1;
        }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("s32 sums wrap") {
  for_each_target([] {
    // 140000 * 127 * 127 passes 2^31.
    Tensor<std::int8_t, 2> x({2, 140000}, 127), y({140000, 3}, 127);
    Tensor<std::int32_t, 2> acc({2, 3}, 0);
    dot_add(x.ref(), y.ref(), acc.ref());
    CHECK(acc(1, 2) == static_cast<std::int32_t>(140000u * 127u * 127u));
  });
}

TEST_CASE("rows may run backwards and be shared") {
  for_each_target([] {
    Tensor<float, 2> x({4, 3}), y({3, 20}), acc({4, 20}, 0.0f), flipped({4, 20}, 0.0f);
    Random r(5);
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = small_integer<float>(r);
    for (Index i = 0; i < y.size(); ++i) y.data()[i] = small_integer<float>(r);
    dot_add(x.ref(), y.ref(), acc.ref());
    dot_add(Ref<const float, 2>(&x(3, 0), {4, 3}, {-3, 1}), y.ref(), flipped.ref());
    bool equal = true, zeros = true;
    for (Index i = 0; i < 4; ++i)
      for (Index j = 0; j < 20; ++j) {
        equal = equal && acc(i, j) == flipped(3 - i, j);
        zeros = zeros && acc(i, j) == 0;
      }
    CHECK(equal);
    CHECK_FALSE(zeros);

    Tensor<float, 2> shared({4, 20}, 0.0f);
    dot_add(Ref<const float, 2>(&x(1, 0), {4, 3}, {0, 1}), y.ref(), shared.ref());
    for (Index i = 0; i < 4; ++i) CHECK(shared(i, 7) == acc(1, 7));
  });
}

// An array that ends where the readable memory ends.
template <class T>
class Guarded {
 public:
  explicit Guarded(Index count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    size_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(base_ != MAP_FAILED);
    REQUIRE(mprotect(base_ + size_ - page, page, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(base_ + size_ - page - bytes);
  }
  ~Guarded() { munmap(base_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() { return data_; }

 private:
  char* base_;
  std::size_t size_;
  T* data_;
};

TEST_CASE_TEMPLATE("nothing past the last element is touched", T, float, bf16, std::int8_t) {
  for_each_target([] {
    for (const Index m : {1, 5, 13})
      for (const Index n : {1, 7, 16, 33, 47})
        for (const Index k : {1, 3, 17}) {
          Guarded<T> x(m * k), y(k * n);
          Guarded<Accumulator<T>> acc(m * n);
          for (Index i = 0; i < m * k; ++i) x.data()[i] = static_cast<T>(1);
          for (Index i = 0; i < k * n; ++i) y.data()[i] = static_cast<T>(2);
          dot_add<T>(Ref<const T, 2>(x.data(), {m, k}), Ref<const T, 2>(y.data(), {k, n}),
                     Ref<Accumulator<T>, 2>(acc.data(), {m, n}));
          CHECK(acc.data()[m * n - 1] == static_cast<Accumulator<T>>(2 * k));
        }
  });
}

TEST_CASE("sums go to the top left of a larger accumulator") {
  Tensor<float, 2> x({2, 3}, 2.0f), y({3, 4}, 1.0f), acc({5, 6}, 1.0f);
  dot_add(x.ref(), y.ref(), acc.ref());
  for (Index i = 0; i < 5; ++i)
    for (Index j = 0; j < 6; ++j) CHECK(acc(i, j) == (i < 2 && j < 4 ? 7.0f : 1.0f));
}

TEST_CASE("shapes that do not fit are refused by name") {
  Tensor<float, 2> x({2, 3}, 1.0f), y({4, 5}, 1.0f), z({2, 5}, 0.0f);
  CHECK_THROWS_WITH_AS(dot_add(x.ref(), y.ref(), z.ref()),
                       "dot_add: axis k is 3 in x F32[2,3] and 4 in y F32[4,5]", Error);
  Tensor<float, 2> fits({3, 5}, 1.0f), small({2, 4}, 0.0f);
  CHECK_THROWS_WITH_AS(dot_add(x.ref(), fits.ref(), small.ref()),
                       "dot_add: acc is F32[2,4], expected at least [2,5]", Error);
  Tensor<bf16, 2> xb({2, 3}, bf16(1)), yb({3, 5}, bf16(1));
  CHECK_THROWS_WITH_AS(dot_add(xb.ref(), yb.ref(), z.ref(), {.precision = Precision::kBF16x3}),
                       "dot_add: a split precision is for F32 operands, x is BF16", Error);
}

}  // namespace
}  // namespace kref
