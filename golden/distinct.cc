// SPDX-License-Identifier: Apache-2.0
#include "golden/distinct.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace kref {
namespace {

// A set of magnitudes with room for a few: open addressing over twice as many slots.
class FewMagnitudes {
 public:
  static constexpr Index kMost = 128;

  // False when the set is full.
  bool insert(double v) {
    const std::uint64_t key = std::bit_cast<std::uint64_t>(std::fabs(v));
    if (key == 0) return true;  // zero: its products are exact
    // The high half of a product by an odd constant mixes all bits of the key.
    for (std::size_t at = (key * 0x9E3779B97F4A7C15u) >> 56;; at = (at + 1) % slots_.size()) {
      if (slots_[at] == key) return true;
      if (slots_[at] != 0) continue;
      if (count_ == kMost) return false;
      slots_[at] = key;
      ++count_;
      return true;
    }
  }
  Index count() const { return count_; }

 private:
  std::array<std::uint64_t, 256> slots_{};
  Index count_ = 0;
};

}  // namespace

std::vector<Index> distinct_magnitudes(const ArrayRef& x, bool columns, Index k) {
  Index batches = 1;
  for (std::size_t d = 0; d + 2 < x.rank; ++d) batches *= x.extents[d];
  const Index rows = x.extents[x.rank - (columns ? 1 : 2)];
  std::vector<Index> out;
  with_dtype(x.dtype, [&]<class T>() {
    const auto* data = static_cast<const T*>(x.data);
    for (Index b = 0; b < batches; ++b) {
      for (Index r = 0; r < rows; ++r) {
        const T* v = data + b * rows * k + (columns ? r : r * k);
        const Index stride = columns ? rows : 1;
        FewMagnitudes set;
        bool few = true;
        for (Index t = 0; t < k && few; ++t) few = set.insert(static_cast<double>(v[t * stride]));
        out.push_back(!few ? k : set.count() > 0 ? set.count() : 1);
      }
    }
  });
  return out;
}

}  // namespace kref
