// SPDX-License-Identifier: Apache-2.0
// head_dots and add_head_values: every bit is that of the sums row_products.h describes, whatever
// the type, the target, and the keys, heads and columns that are left over.
#include "kernels/row_products.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/dot_inputs.h"
#include "tests/simd_targets.h"

namespace kref {
namespace {

struct Sizes {
  Index heads, groups, keys, columns;
};

// Rows of the one operand are followed by zeros up to a multiple of 16, those of the other lie
// apart by more than they hold.
template <class T>
struct Rows {
  Sizes n;
  Index up = cdiv(n.columns, 16) * 16, head_stride = n.columns + 3,
        key_stride = n.groups * head_stride + 5;
  std::vector<T> many = std::vector<T>(static_cast<std::size_t>(n.keys * key_stride));
  std::vector<float> few = std::vector<float>(static_cast<std::size_t>(n.heads * up));
  std::vector<float> weights = std::vector<float>(static_cast<std::size_t>(n.heads * n.keys));

  explicit Rows(const Sizes& sizes, Random& random) : n(sizes) {
    const auto value = [&] { return static_cast<float>(random.next() % 2001) / 700.0f - 1.4f; };
    for (T& x : many) x = static_cast<T>(value());
    for (float& x : weights) x = value();
    for (Index h = 0; h < n.heads; ++h) {
      for (Index c = 0; c < n.columns; ++c) few[at(h * up + c)] = value();
    }
  }
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  ArrayRef rows() const {
    ArrayRef out(dtype_of<T>, std::array{n.keys, n.groups, n.columns}, many.data());
    out.strides = {key_stride, head_stride, 1};
    return out;
  }
  float element(Index key, Index head, Index c) const {
    const Index group = head / (n.heads / n.groups);
    return static_cast<float>(many[at(key * key_stride + group * head_stride + c)]);
  }

  // The products [heads, keys], and what is wrong with them.
  int wrong_dots() const {
    std::vector<float> out(at(n.heads * n.keys), -7.0f);
    detail::head_dots(Ref<const float, 2>(few.data(), {n.heads, n.columns}, {up, 1}), rows(),
                      Ref<float, 2>(out.data(), {n.heads, n.keys}));
    int wrong = 0;
    for (Index h = 0; h < n.heads; ++h) {
      for (Index key = 0; key < n.keys; ++key) {
        float lanes[16] = {};
        for (Index c = 0; c < n.columns; ++c) {
          lanes[c % 16] = std::fma(few[at(h * up + c)], element(key, h, c), lanes[c % 16]);
        }
        for (int width = 8; width > 0; width /= 2) {
          for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
        }
        wrong += same(out[at(h * n.keys + key)], lanes[0]) ? 0 : 1;
      }
    }
    return wrong;
  }

  // The sums [heads, columns] on top of others, likewise.
  int wrong_values() const {
    std::vector<float> acc = few;
    detail::add_head_values(Ref<const float, 2>(weights.data(), {n.heads, n.keys}), rows(),
                            Ref<float, 2>(acc.data(), {n.heads, n.columns}, {up, 1}));
    int wrong = 0;
    for (Index h = 0; h < n.heads; ++h) {
      for (Index c = 0; c < n.columns; ++c) {
        float sum = few[at(h * up + c)];
        for (Index key = 0; key < n.keys; ++key) {
          sum = std::fma(weights[at(h * n.keys + key)], element(key, h, c), sum);
        }
        wrong += same(acc[at(h * up + c)], sum) ? 0 : 1;
      }
    }
    return wrong;
  }

  static bool same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  }
};

// Queries a key head: those that share what was read, in fours, twos and ones.
constexpr Sizes kHeads[] = {{1, 1, 0, 0}, {3, 3, 0, 0}, {4, 2, 0, 0},
                            {3, 1, 0, 0}, {8, 2, 0, 0}, {7, 1, 0, 0}};

template <class T>
void all_sizes() {
  Random random(5);
  for (Sizes n : kHeads) {
    for (const Index keys : {1, 3, 4, 5, 10}) {
      for (const Index columns : {1, 9, 16, 23, 40, 69}) {
        n.keys = keys, n.columns = columns;
        const Rows<T> rows(n, random);
        CAPTURE(n.heads);
        CAPTURE(n.groups);
        CAPTURE(keys);
        CAPTURE(columns);
        CHECK(rows.wrong_dots() == 0);
        CHECK(rows.wrong_values() == 0);
      }
    }
  }
}

TEST_CASE_TEMPLATE("sums of sixteen lanes, and chains along keys, bit for bit on every SIMD target",
                   T, float, bf16, f16, f8_e4m3, f8_e5m2) {
  for_each_target([] { all_sizes<T>(); });
}

}  // namespace
}  // namespace kref
