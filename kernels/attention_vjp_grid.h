// SPDX-License-Identifier: Apache-2.0
// The grids of flash_attention_vjp, between its checks and its verbs. Arrays are [B, heads, rows,
// columns] whatever the layout, checked; extents and tile sizes positive.
#pragma once

#include "kernels/any_operand.h"
#include "kernels/attention_gradient.h"
#include "kernels/flash_attention.h"

namespace kref::detail {

// What the backward pass works from.
struct VjpInputs {
  AttentionInputs in;
  ArrayRef ct_o;              // [B, H, T, E]
  Ref<const float, 3> lse;    // [B, H, T], natural; -infinity: a row without gradient
  Ref<const float, 3> delta;  // [B, H, T]: do . o - dlse
};

// An array [B, H|1, ...] seen as [B, G|1, H/G|1, ...]: query heads by the key head they read.
template <class Void>
BasicArrayRef<Void> by_groups(const BasicArrayRef<Void>& a, Index groups) {
  BasicArrayRef<Void> out = a;
  out.rank = a.rank + 1;
  for (std::size_t d = a.rank; d > 2; --d) {
    out.extents[d] = a.extents[d - 1], out.strides[d] = a.strides[d - 1];
  }
  const Index group = a.extents[1] == 1 ? 1 : a.extents[1] / groups;
  out.extents[1] = a.extents[1] / group, out.extents[2] = group;
  out.strides[1] = a.strides[1] * group, out.strides[2] = a.strides[1];
  return out;
}

// A block of row numbers without its leading dimensions, which have extent 1.
inline ArrayRef row_of(ArrayRef a) {
  const Index count = a.extents[a.rank - 1];
  a.rank = 1, a.extents = {count}, a.strides = {1};
  return a;
}

// x in f32: itself, or cast into `memory`, which has its shape.
Ref<const float, 2> as_f32(const ArrayRef& x, Ref<float, 2> memory);

// The operands of one block of rows and keys, by their blocks.
struct ScoreBlock {
  Ref<const float, 2> q, ct_o, k, v;  // (rows, D), (rows, E), (keys, D), (keys, E)
  ArrayRef bias;                      // (rows or 1, keys); null data: none
  RowGradients rows;                  // of the block's rows
};

// Scores and their cotangents, block by block.
class ScoreGradients {
 public:
  ScoreGradients(const AttentionInputs& in, const AttentionOptions& options, float factor);

  const AttentionMask& visible() const { return visible_; }
  // AttentionMask::at, where rows whose lse is -infinity see nothing. `lse` is that of the rows.
  void see(Index batch, Index row0, Index key0, Index keys, const std::optional<ArrayRef>& mask,
           Ref<bool, 2> memory, Ref<const float, 1> lse, BlockMask& out) const;
  // p = exp(logit - lse) and ds = factor times the cotangent of the score, of the rectangle that
  // `mask` sees: (mask.rows, mask.keys), row strides a multiple of 16.
  void operator()(const BlockMask& mask, const ScoreBlock& block, Ref<float, 2> p,
                  Ref<float, 2> ds) const;

 private:
  AttentionMask visible_;
  ScoreRule rule_;
  float factor_;
};

// What a sweep does itself, block of rows by block of rows, where all keys are in one chunk: delta
// as it first comes to them, dq as it leaves them. Threads then start once, not three times.
struct VjpRows {
  ArrayRef o;                      // [B, H, T, E]
  std::optional<ArrayRef> ct_lse;  // [B, H, T] of the natural lse, times ct_lse_factor
  float ct_lse_factor = 1;
  Ref<float, 3> delta;  // [B, H, T]: do . o - dlse
  MutableArrayRef dq;   // [B, H, T, D]
};

// dk and dv, and dq as `chunks` partial sums: keys in as many runs of whole blocks, each of which
// adds up its own share of dq. parts: [B, G, chunks, H/G * T, D]. `mean` [B, G, E]: what dv of
// every key gets beside; null data: nothing. `rows`, with one chunk only: written, too; x.delta is
// not read then.
void attention_vjp_sweep(const VjpInputs& x, const AttentionOptions& options,
                         const AttentionTile& tile, Ref<float, 5> parts, const MutableArrayRef& dk,
                         const MutableArrayRef& dv, Ref<const float, 3> mean,
                         const std::optional<VjpRows>& rows);
// How many chunks there are; a function of the number of keys and of tile.k only.
Index vjp_chunks(Index keys, const AttentionTile& tile);

// dq [B, H, T, D] = the sum of its parts, in order.
void attention_vjp_join(Ref<const float, 5> parts, const AttentionTile& tile,
                        const MutableArrayRef& dq);

// delta of all rows; rows.dq is not looked at.
void attention_vjp_delta(const ArrayRef& ct_o, const VjpRows& rows, const AttentionTile& tile);

// delta of a block of rows, and the memory that takes.
struct DeltaOfRows {
  Scratch<float, 2> product, o;
  Scratch<bool, 2> none;
  Scratch<float, 1> ct_lse;

  static DeltaOfRows declare(Grid& grid, Index rows, Index width);
  // ct_o and o: (rows, E) of any float type; ct_lse: (rows), null data: none.
  void operator()(const Step& s, const ArrayRef& ct_o, const ArrayRef& o, const ArrayRef& ct_lse,
                  float ct_lse_factor, Ref<float, 1> delta) const;
};

// mean [B, G, E]: the sum of do / S over the rows, in q_lengths, that have no gradient.
void attention_vjp_mean(const VjpInputs& x, const AttentionTile& tile, Ref<float, 3> mean);

// dbias, summed over the dimensions along which the bias is broadcast.
void attention_vjp_bias(const VjpInputs& x, const AttentionOptions& options,
                        const AttentionTile& tile, const MutableArrayRef& dbias);

// dsinks [H].
void attention_vjp_sinks(const VjpInputs& x, const MutableArrayRef& dsinks);

}  // namespace kref::detail
