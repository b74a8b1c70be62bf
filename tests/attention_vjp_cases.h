// SPDX-License-Identifier: Apache-2.0
// Cotangents for the cases of flash_attention_cases.h.
#pragma once

#include "kernels/reference_attention_vjp.h"
#include "tests/flash_attention_cases.h"

namespace kref {

// A case with the cotangents of its outputs.
struct AttentionVjpCase : AttentionCase {
  Array ct_o, ct_lse;
  bool has_ct_lse = false;

  reference::AttentionCotangents cotangents() const {
    reference::AttentionCotangents ct{.o = ct_o};
    if (has_ct_lse) ct.lse = ct_lse;
    return ct;
  }
};

inline AttentionVjpCase make_vjp_case(const Levels& levels, std::mt19937& random) {
  AttentionVjpCase c{make_case(levels, random), {}, {}};
  std::normal_distribution<double> normal;
  const auto noise = [&](Index) { return normal(random); };
  c.ct_o = filled(c.out_dtype, c.shape(c.H, c.T, c.E), noise);
  c.ct_lse = filled(DType::kF32, {c.B, c.H, c.T}, noise);
  c.has_ct_lse = random() % 2 == 0;
  return c;
}

// Which pairs of levels, and of a level with a ct.lse or none, cases have had.
class PairsSeen {
 public:
  void add(const Levels& levels, bool ct_lse) {
    for (int f = 0; f < Levels::kFactors; ++f) {
      for (int g = 0; g < f; ++g) pairs_.insert({f, levels.level[f], g, levels.level[g]});
      pairs_.insert({f, levels.level[f], Levels::kFactors, ct_lse ? 1 : 0});
    }
  }
  bool all() const {
    std::size_t count = 0;
    for (int f = 0; f < Levels::kFactors; ++f) {
      for (int g = 0; g < f; ++g) {
        count += static_cast<std::size_t>(Levels::kCounts[f] * Levels::kCounts[g]);
      }
      count += static_cast<std::size_t>(2 * Levels::kCounts[f]);
    }
    return pairs_.size() == count;
  }

 private:
  std::set<std::tuple<int, int, int, int>> pairs_;
};

}  // namespace kref
