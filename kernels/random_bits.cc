// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/random_bits.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/threefry-inl.h"

#if HWY_ONCE

#include <algorithm>
#include <cmath>

#include "dsl/work.h"
#include "kernels/tile_plan.h"

namespace kref {
namespace detail {
namespace {

HWY_EXPORT(ThreefryWords);
HWY_EXPORT(UniformWords);

// Calls f(elements, a, b, n) for all elements of out in row-major order, n neighbours at a time,
// with the two words of each one's number.
template <class T, class F>
void for_words(RandomKey key, std::uint64_t first, const MutableArrayRef& out, F f) {
  constexpr Index kTogether = 256;
  std::uint32_t a[kTogether], b[kTogether];
  // The rows of `out` in order; numbers go on from one to the next.
  const Index cols = out.rank == 0 ? 1 : out.extents[out.rank - 1];
  if (out.size() == 0) return;
  Shape<kMaxRank> at{};
  for (std::uint64_t number = first;;) {
    T* row = static_cast<T*>(out.data);
    for (std::size_t d = 0; d + 1 < out.rank; ++d) row += at[d] * out.strides[d];
    for (Index c = 0; c < cols; c += kTogether) {
      const Index n = std::min(kTogether, cols - c);
      HWY_DYNAMIC_DISPATCH(ThreefryWords)
      (key, number, static_cast<std::size_t>(n), a, b);
      f(row + c, a, b, static_cast<std::size_t>(n));
      number += static_cast<std::uint64_t>(n);
    }
    if (out.rank < 2) return;
    std::size_t d = out.rank - 1;
    while (d-- > 0 && ++at[d] == out.extents[d]) at[d] = 0;
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

}  // namespace

void random_bits(RandomKey key, std::uint64_t first, const MutableArrayRef& out) {
  using Word = const std::uint32_t*;
  with_dtype(out.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      for_words<T>(key, first, out, [](T* elements, Word a, Word b, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          if constexpr (sizeof(T) == 8) {
            elements[i] = static_cast<T>(std::uint64_t{a[i]} << 32 | b[i]);
          } else {
            elements[i] = static_cast<T>(a[i] ^ b[i]);
          }
        }
      });
    }
  });
}

void uniform(RandomKey key, float low, float high, const MutableArrayRef& out) {
  using Word = const std::uint32_t*;
  KREF_CHECK(std::isfinite(low) && std::isfinite(high), "uniform: low is ", low, ", high is ", high,
             ", expected finite numbers");
  count_work([&] { return out.size(); }, 2);
  for_words<float>(key, 0, out, [=](float* elements, Word a, Word b, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(UniformWords)(a, b, n, low, high - low, elements);
  });
}

}  // namespace detail

std::array<std::uint32_t, 2> threefry2x32(RandomKey key, std::uint32_t high, std::uint32_t low) {
  std::uint32_t a = 0, b = 0;
  HWY_DYNAMIC_DISPATCH(detail::ThreefryWords)
  (key, std::uint64_t{high} << 32 | low, 1, &a, &b);
  return {a, b};
}

RandomKey fold_in(RandomKey key, std::uint32_t data) {
  const auto words = threefry2x32(key, 0, data);
  return {words[0], words[1]};
}

RandomKey split_key(RandomKey key, std::uint64_t i) {
  const auto words =
      threefry2x32(key, static_cast<std::uint32_t>(i >> 32), static_cast<std::uint32_t>(i));
  return {words[0], words[1]};
}

}  // namespace kref
#endif  // HWY_ONCE
