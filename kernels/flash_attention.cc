// SPDX-License-Identifier: Apache-2.0
// What flash_attention refuses, and the shapes that need no kernel.
#include "kernels/flash_attention.h"

#include <algorithm>

#include "dsl/overlap.h"
#include "kernels/flash_attention_grid.h"

namespace kref {
namespace {

using detail::AttentionSizes;

// Error unless `a` is rank-many of `expected`, of which the first `may_be_one` may also be 1.
void check_shape(const char* name, const ArrayRef& a, std::initializer_list<Index> expected,
                 std::size_t may_be_one = 0) {
  bool fits = a.rank == expected.size();
  for (std::size_t d = 0; fits && d < a.rank; ++d) {
    fits = a.extents[d] == expected.begin()[d] || (d < may_be_one && a.extents[d] == 1);
  }
  KREF_CHECK(fits, "flash_attention: ", name, " is ", to_string(a), ", expected ",
             shape_string({expected.begin(), expected.size()}),
             may_be_one > 0 ? ", all but the last may be 1" : "");
  KREF_CHECK(a.strides[a.rank - 1] == 1 || a.extents[a.rank - 1] <= 1, "flash_attention: ", name,
             " is ", to_string(a), " with stride ", a.strides[a.rank - 1],
             " in its last dimension, expected 1");
}

void check_dtype(const char* name, const ArrayRef& a, bool legal, const char* expected) {
  KREF_CHECK(legal, "flash_attention: ", name, " is ", to_string(a), ", expected ", expected);
}

void check_i32(const char* name, const std::optional<ArrayRef>& a,
               std::initializer_list<Index> shape) {
  if (!a) return;
  check_dtype(name, *a, a->dtype == DType::kI32, "I32");
  check_shape(name, *a, shape);
}

void check_lengths(const char* name, const std::optional<ArrayRef>& a, Index batches, Index most) {
  check_i32(name, a, {batches});
  for (Index b = 0; a && b < batches; ++b) {
    const std::int32_t length = static_cast<const std::int32_t*>(a->data)[b];
    KREF_CHECK(length >= 0 && length <= most, "flash_attention: ", name, '[', b, "] is ", length,
               ", expected 0 to ", most);
  }
}

void check_operands(const AttentionInputs& in, const AttentionSizes& n) {
  check_shape("q", in.q, {n.batches, n.heads, n.queries, n.depth});
  check_shape("k", in.k, {n.batches, n.groups, n.keys, n.depth});
  check_shape("v", in.v, {n.batches, n.groups, n.keys, n.width});
  check_dtype("q", in.q, is_float(in.q.dtype) && in.q.dtype != DType::kF64,
              "a float type other than F64");
  check_dtype("k", in.k, in.k.dtype == in.q.dtype, "the element type of q");
  check_dtype("v", in.v, in.v.dtype == in.q.dtype, "the element type of q");
  KREF_CHECK(n.groups == 0 ? n.heads == 0 : n.heads % n.groups == 0,
             "flash_attention: H = ", n.heads, " heads of q are not a multiple of G = ", n.groups,
             " of k");
  if (in.bias) {
    check_dtype("bias", *in.bias, in.bias->dtype == DType::kF32 || in.bias->dtype == in.q.dtype,
                "F32 or the element type of q");
    check_shape("bias", *in.bias, {n.batches, n.heads, n.queries, n.keys}, 3);
  }
  if (in.mask) {
    check_dtype("mask", *in.mask, in.mask->dtype == DType::kBool, "BOOL");
    check_shape("mask", *in.mask, {n.batches, n.heads, n.queries, n.keys}, 3);
  }
  KREF_CHECK(in.q_segment_ids.has_value() == in.kv_segment_ids.has_value(),
             "flash_attention: one of q_segment_ids and kv_segment_ids is missing");
  check_i32("q_segment_ids", in.q_segment_ids, {n.batches, n.queries});
  check_i32("kv_segment_ids", in.kv_segment_ids, {n.batches, n.keys});
  check_lengths("q_lengths", in.q_lengths, n.batches, n.queries);
  check_lengths("kv_lengths", in.kv_lengths, n.batches, n.keys);
  if (in.sinks) {
    check_dtype("sinks", *in.sinks, in.sinks->dtype == DType::kF32, "F32");
    check_shape("sinks", *in.sinks, {n.heads});
  }
}

void check_options(const AttentionOptions& options, const AttentionSizes& n) {
  KREF_CHECK(options.window.left.value_or(0) >= 0 && options.window.right.value_or(0) >= 0,
             "flash_attention: a window side is negative");
  KREF_CHECK(!options.soft_cap || *options.soft_cap > 0,
             "flash_attention: soft_cap is not positive");
  KREF_CHECK(options.fully_masked != FullyMasked::kUniform || n.keys > 0 || n.queries == 0,
             "flash_attention: fully_masked is uniform, but S = 0 leaves nothing to average");
  KREF_CHECK(!options.p_dtype || is_float(*options.p_dtype),
             "flash_attention: p_dtype is not a float type");
}

// No result may lie in memory that is still read.
void check_outputs(const AttentionInputs& in, const MutableArrayRef& o,
                   const std::optional<Ref<float, 3>>& lse) {
  const std::pair<const char*, std::optional<ArrayRef>> inputs[] = {
      {"q", in.q},
      {"k", in.k},
      {"v", in.v},
      {"bias", in.bias},
      {"mask", in.mask},
      {"q_segment_ids", in.q_segment_ids},
      {"kv_segment_ids", in.kv_segment_ids},
      {"q_lengths", in.q_lengths},
      {"kv_lengths", in.kv_lengths},
      {"sinks", in.sinks}};
  for (const auto& input : inputs) {
    if (!input.second) continue;
    KREF_CHECK(!overlap(*input.second, o), "flash_attention: o ", to_string(o), " overlaps ",
               input.first);
    KREF_CHECK(!lse || !overlap(*input.second, MutableArrayRef(*lse)),
               "flash_attention: lse overlaps ", input.first);
  }
  KREF_CHECK(!lse || !overlap(ArrayRef(*lse), o), "flash_attention: lse overlaps o");
}

// [B, T, H, D] seen as [B, H, T, D].
template <class Void>
BasicArrayRef<Void> by_heads(BasicArrayRef<Void> a, Layout layout) {
  if (layout == Layout::kBTHD && a.rank == 4) {
    std::swap(a.extents[1], a.extents[2]);
    std::swap(a.strides[1], a.strides[2]);
  }
  return a;
}

}  // namespace

AttentionTile default_attention_tile(Index heads, Index queries, Index keys) {
  // Making a block of k and v ready costs as much as a few dozen rows of products, so blocks have
  // many rows, but not so many that threads have too few of them. Few keys, since half of a block
  // on the causal diagonal is work for nothing; the scores, 512 x 128 f32, stay in a second-level
  // cache.
  AttentionTile t{512, 128};
  while (t.q > 64 && heads * cdiv(queries, t.q) < 16) t.q /= 2;
  return {std::clamp<Index>(queries, 1, t.q), std::clamp<Index>(keys, 1, t.k)};
}

void flash_attention(const AttentionInputs& given, const MutableArrayRef& o_given,
                     const std::optional<Ref<float, 3>>& lse, const AttentionOptions& options,
                     const AttentionTile& tile) {
  const Layout layout = options.layout;
  AttentionInputs in = given;
  for (ArrayRef* a : {&in.q, &in.k, &in.v}) {
    KREF_CHECK(a->rank == 4, "flash_attention: ",
               a == &in.q   ? "q"
               : a == &in.k ? "k"
                            : "v",
               " is ", to_string(*a), ", expected rank 4");
    *a = by_heads(*a, layout);
  }
  const MutableArrayRef o = by_heads(o_given, layout);
  const AttentionSizes n{in.q.extents[0], in.q.extents[1], in.k.extents[1], in.q.extents[2],
                         in.k.extents[2], in.q.extents[3], in.v.extents[3]};
  check_operands(in, n);
  check_options(options, n);
  check_dtype("o", o, is_float(o.dtype), "a float type");
  check_shape("o", o, {n.batches, n.heads, n.queries, n.width});
  if (lse) check_shape("lse", *lse, {n.batches, n.heads, n.queries});
  check_outputs(in, o, lse);
  KREF_CHECK(tile.q >= 0 && tile.k >= 0, "flash_attention: tile is [", tile.q, ", ", tile.k,
             "], expected sizes from 0");
  if (n.batches * n.heads * n.queries == 0) return;

  AttentionTile t = default_attention_tile(n.batches * n.heads, n.queries, n.keys);
  if (tile.q > 0) t.q = std::min(tile.q, n.queries);
  if (tile.k > 0) t.k = std::min(tile.k, std::max<Index>(1, n.keys));
  if (n.keys * n.depth * n.width > 0) return detail::attention_grid(in, o, lse, options, t);

  // A dimension of extent 0 has no blocks. One of extent 1 serves: zeros along D and E, and a key
  // that nobody sees.
  const Index keys = std::max<Index>(1, n.keys), depth = std::max<Index>(1, n.depth),
              width = std::max<Index>(1, n.width);
  const auto zeros = [](DType type, std::initializer_list<Index> shape) {
    return Array(type, std::span<const Index>(shape.begin(), shape.size()));
  };
  const Array q = zeros(in.q.dtype, {n.batches, n.heads, n.queries, depth}),
              k = zeros(in.q.dtype, {n.batches, n.groups, keys, depth}),
              v = zeros(in.q.dtype, {n.batches, n.groups, keys, width}),
              no_length = zeros(DType::kI32, {n.batches});
  Array no_o = zeros(o.dtype, {n.batches, n.heads, n.queries, width});
  if (n.depth == 0) in.q = q, in.k = k;
  if (n.width == 0) in.v = v;
  if (n.keys == 0) {
    in.k = k, in.v = v, in.kv_lengths = no_length;
    in.bias.reset(), in.mask.reset(), in.q_segment_ids.reset(), in.kv_segment_ids.reset();
  }
  detail::attention_grid(in, n.width == 0 ? no_o.mutable_ref() : o, lse, options, t);
}

}  // namespace kref
