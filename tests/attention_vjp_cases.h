// SPDX-License-Identifier: Apache-2.0
// Cotangents for the cases of flash_attention_cases.h.
#pragma once

#include <algorithm>

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

// Sets everything to NaN that no gradient depends on; counts rows, and elements of the bias.
inline Index poison_unseen(AttentionVjpCase& c) {
  using Kind = reference::AttentionRow::Kind;
  const auto nothing = [](Index n) { return std::vector<char>(static_cast<std::size_t>(n), 0); };
  std::vector<char> q = nothing(c.B * c.H * c.T), ct_o = q, ct_lse = q,
                    kv = nothing(c.B * c.G * c.S), bias = nothing(c.has_bias ? c.bias.size() : 0);
  const Layout layout = c.options.layout;
  const auto see = [](std::vector<char>& seen, Index i) { seen[static_cast<std::size_t>(i)] = 1; };
  AttentionInputs in = c.inputs();
  in.bias.reset();  // a bias of -infinity hides no key
  reference::attention_rows(in, c.options, [&](const reference::AttentionRow& row) {
    const Index at = reference::row_index(layout, row.batch, c.H, row.head, c.T, row.query);
    if (row.kind == Kind::kSoftmax) see(ct_lse, (row.batch * c.H + row.head) * c.T + row.query);
    // A row that sees no key hands its cotangent to all of them under kUniform.
    if (row.kind == Kind::kNoKey && c.options.fully_masked == FullyMasked::kUniform) see(ct_o, at);
    if (!row.keys.empty()) see(q, at), see(ct_o, at);
    const Index group = row.head / (c.H / c.G);
    for (const auto& key : row.keys) {
      see(kv, reference::row_index(layout, row.batch, c.G, group, c.S, key.index));
      if (c.has_bias) see(bias, reference::bias_offset(c.bias.shape(), row) + key.index);
    }
  });
  Index count = 0;
  const auto spoil = [&](Array& a, const std::vector<char>& seen, Index width) {
    const Array from = a;
    a = filled(a.dtype(), {a.shape().begin(), a.shape().end()}, [&](Index i) {
      return seen[static_cast<std::size_t>(i / width)] != 0
                 ? from.at(i)
                 : std::numeric_limits<double>::quiet_NaN();
    });
    count += std::count(seen.begin(), seen.end(), 0);
  };
  spoil(c.q, q, c.D), spoil(c.ct_o, ct_o, c.E), spoil(c.ct_lse, ct_lse, 1);
  spoil(c.k, kv, c.D), spoil(c.v, kv, c.E);
  if (c.has_bias) spoil(c.bias, bias, 1);
  return count;
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
