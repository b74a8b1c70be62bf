// SPDX-License-Identifier: Apache-2.0
#include "dsl/poison.h"

#include <algorithm>
#include <cstring>

namespace kref::detail {
namespace {

// Calls f(offset, offset, count) for each run of elements that is contiguous in both blocks.
template <class F>
void for_runs(std::span<const Index> extents, const Index* a, const Index* b, F f) {
  std::size_t outer = extents.size();
  Index count = 1;
  while (outer > 0 &&
         (extents[outer - 1] == 1 || (a[outer - 1] == count && b[outer - 1] == count))) {
    count *= extents[--outer];
  }
  if (outer == 0) return f(0, 0, count);
  Shape<kMaxRank> at{};
  Index oa = 0, ob = 0;
  while (true) {
    f(oa, ob, count);
    std::size_t d = outer;
    while (d-- > 0) {
      oa += a[d], ob += b[d];
      if (++at[d] < extents[d]) break;
      oa -= a[d] * extents[d], ob -= b[d] * extents[d];
      at[d] = 0;
    }
    if (d >= outer) return;  // wrapped round: every dimension is through
  }
}

template <class T>
constexpr T large() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::max() / 3;
  } else {
    return T::saturated(std::numeric_limits<double>::max());
  }
}

// Thue-Morse: no period that an access pattern could share.
constexpr bool odd(Index i) { return (std::popcount(static_cast<std::uint64_t>(i)) & 1) != 0; }

template <class T>
T negated(T v) {
  if constexpr (std::is_floating_point_v<T>) {
    return -v;
  } else {
    return T(-static_cast<float>(v));
  }
}

template <class T>
void fill_run(T* data, Index count, Pattern pattern) {
  if (pattern == Pattern::kPoison) {
    std::fill_n(data, count, poison<T>());
  } else if constexpr (std::is_integral_v<T>) {
    std::fill_n(data, count, std::numeric_limits<T>::max());
  } else {
    // A run of the sequence, and its negative, of which the whole is made: bit by bit it takes
    // longer than the kernels that are checked.
    constexpr Index kRun = 1024;
    static const std::array<std::array<T, kRun>, 2> kRuns = [] {
      const T values[] = {large<T>(), negated(large<T>())};
      std::array<std::array<T, kRun>, 2> runs;
      for (Index i = 0; i < kRun; ++i) {
        const std::size_t sign = odd(i) ? 1 : 0;
        runs[0][static_cast<std::size_t>(i)] = values[sign];
        runs[1][static_cast<std::size_t>(i)] = values[1 - sign];
      }
      return runs;
    }();
    for (Index i = 0; i < count; i += kRun) {
      std::copy_n(kRuns[odd(i / kRun) ? 1 : 0].data(), std::min(kRun, count - i), data + i);
    }
  }
}

}  // namespace

void fill_pattern(void* data, DType type, Index count, Pattern pattern) {
  with_dtype(type, [&]<class T>() { fill_run(static_cast<T*>(data), count, pattern); });
}

void fill_pattern(void* data, DType type, std::span<const Index> extents, const Index* strides,
                  Pattern pattern) {
  with_dtype(type, [&]<class T>() {
    for_runs(extents, strides, strides, [&](Index offset, Index, Index count) {
      fill_run(static_cast<T*>(data) + offset, count, pattern);
    });
  });
}

bool is_pattern(const void* element, DType type, Pattern pattern) {
  return with_dtype(type, [&]<class T>() {
    T values[2];
    fill_run(values, 2, pattern);
    return std::memcmp(element, &values[0], sizeof(T)) == 0 ||
           std::memcmp(element, &values[1], sizeof(T)) == 0;
  });
}

bool same_block(const void* a, const Index* a_strides, const void* b, const Index* b_strides,
                std::span<const Index> extents, std::size_t element) {
  const auto bytes = static_cast<Index>(element);
  bool same = true;
  for_runs(extents, a_strides, b_strides, [&](Index at, Index bt, Index count) {
    same = same && std::memcmp(static_cast<const std::byte*>(a) + at * bytes,
                               static_cast<const std::byte*>(b) + bt * bytes,
                               static_cast<std::size_t>(count * bytes)) == 0;
  });
  return same;
}

void copy_block(void* to, const Index* to_strides, const void* from, const Index* from_strides,
                std::span<const Index> extents, std::size_t element) {
  const auto bytes = static_cast<Index>(element);
  for_runs(extents, to_strides, from_strides, [&](Index a, Index b, Index count) {
    std::memcpy(static_cast<std::byte*>(to) + a * bytes,
                static_cast<const std::byte*>(from) + b * bytes,
                static_cast<std::size_t>(count * bytes));
  });
}

}  // namespace kref::detail
