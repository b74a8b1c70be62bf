// SPDX-License-Identifier: Apache-2.0
#include "golden/repeats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "golden/matmul_sums.h"

namespace kref {
namespace {

// Counts keys: open addressing over at least twice as many slots as there are groups.
class Groups {
 public:
  // For at most `factors` keys.
  explicit Groups(Index factors)
      : slots_(std::min(kMostSlots, std::bit_ceil(2 * static_cast<std::size_t>(factors) + 2))),
        shift_(64 - std::countr_zero(slots_.size())) {}

  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    groups_ = 0, squares_ = 0, rest_ = 0;
  }
  void add(std::uint64_t key) {
    ++key;  // 0 marks an empty slot
    // The high bits of a product by an odd constant mix all bits of the key.
    for (std::size_t at = (key * 0x9E3779B97F4A7C15u) >> shift_;; at = (at + 1) % slots_.size()) {
      Slot& slot = slots_[at];
      if (slot.key == key) {
        squares_ += 2 * slot.count + 1;
        ++slot.count;
        return;
      }
      if (slot.key != 0) continue;
      if (2 * groups_ >= slots_.size()) {  // no room: what comes new counts as alike
        squares_ += 2 * rest_ + 1;
        ++rest_;
        return;
      }
      slot = {key, 1};
      ++groups_;
      ++squares_;
      return;
    }
  }
  double squares() const { return squares_; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    double count = 0;
  };
  static constexpr std::size_t kMostSlots = std::size_t{1} << 22;

  std::vector<Slot> slots_;
  int shift_;
  std::size_t groups_ = 0;
  double squares_ = 0, rest_ = 0;
};

int ceil_log2(Index n) {
  return n <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

// Bits of the mantissa that tell factors apart.
int mantissa_bits(DType in, Index n) {
  const int most = in == DType::kF64 ? 53 : 24;
  return std::clamp(most + 4 - ceil_log2(n), 0, 52);
}

}  // namespace

double alike_share(DType in, Index n) { return std::ldexp(1.0, -mantissa_bits(in, n)); }

std::vector<Repeats> repeats(const ArrayRef& x, bool columns, Index k, reference::Parts parts) {
  Index batches = 1;
  for (std::size_t d = 0; d + 2 < x.rank; ++d) batches *= x.extents[d];
  const Index rows = x.extents[x.rank - (columns ? 1 : 2)];
  const int dropped = 52 - mantissa_bits(x.dtype, k);
  constexpr Index kTogether = 16;  // columns are gathered so many at a time, to use whole lines
  std::vector<double> block(static_cast<std::size_t>(kTogether * k));
  const int used = part_count(parts);
  Groups groups[3] = {Groups(k), Groups(used > 1 ? k : 0), Groups(used > 2 ? k : 0)};
  std::vector<Repeats> out;
  const auto count = [&](const double* v) {
    Repeats r;
    double part[3];
    for (Groups& g : groups) g.clear();
    for (Index t = 0; t < k; ++t) {
      parts_of(v[t], parts, part);
      for (int e = 0; e < used; ++e) {
        if (part[e] == 0) continue;
        groups[e].add(std::bit_cast<std::uint64_t>(std::fabs(part[e])) >> dropped);
      }
    }
    for (int e = 0; e < used; ++e) r.squares[static_cast<std::size_t>(e)] = groups[e].squares();
    out.push_back(r);
  };
  with_dtype(x.dtype, [&]<class T>() {
    const auto* data = static_cast<const T*>(x.data);
    for (Index b = 0; b < batches; ++b, data += rows * k) {
      for (Index r0 = 0; r0 < rows; r0 += kTogether) {
        const Index width = std::min(kTogether, rows - r0);
        for (Index t = 0; columns && t < k; ++t) {
          for (Index r = 0; r < width; ++r)
            block[static_cast<std::size_t>(r * k + t)] =
                static_cast<double>(data[t * rows + r0 + r]);
        }
        for (Index i = 0; !columns && i < width * k; ++i)
          block[static_cast<std::size_t>(i)] = static_cast<double>(data[r0 * k + i]);
        for (Index r = 0; r < width; ++r) count(block.data() + r * k);
      }
    }
  });
  return out;
}

}  // namespace kref
