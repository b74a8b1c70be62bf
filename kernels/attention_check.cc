// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_check.h"

#include <algorithm>

#include "dsl/work_meter.h"

namespace kref::detail {

void check_shape(const char* who, const char* name, const ArrayRef& a,
                 std::initializer_list<Index> expected, std::size_t may_be_one) {
  bool fits = a.rank == expected.size();
  for (std::size_t d = 0; fits && d < a.rank; ++d) {
    fits = a.extents[d] == expected.begin()[d] || (d < may_be_one && a.extents[d] == 1);
  }
  KREF_CHECK(fits, who, ": ", name, " is ", to_string(a), ", expected ",
             shape_string({expected.begin(), expected.size()}),
             may_be_one > 0 ? ", all but the last may be 1" : "");
  KREF_CHECK(a.strides[a.rank - 1] == 1 || a.extents[a.rank - 1] <= 1, who, ": ", name, " is ",
             to_string(a), " with stride ", a.strides[a.rank - 1],
             " in its last dimension, expected 1");
}

void check_dtype(const char* who, const char* name, const ArrayRef& a, bool legal,
                 const char* expected) {
  KREF_CHECK(legal, who, ": ", name, " is ", to_string(a), ", expected ", expected);
}

namespace {

void check_i32(const char* who, const char* name, const std::optional<ArrayRef>& a,
               std::initializer_list<Index> shape) {
  if (!a) return;
  check_dtype(who, name, *a, a->dtype == DType::kI32, "I32");
  check_shape(who, name, *a, shape);
}

void check_lengths(const char* who, const char* name, const std::optional<ArrayRef>& a,
                   Index batches, Index most) {
  check_i32(who, name, a, {batches});
  if (a && batches > 0) need_elements(who, name, a->data);
  for (Index b = 0; a && b < batches; ++b) {
    const std::int32_t length = static_cast<const std::int32_t*>(a->data)[b];
    KREF_CHECK(length >= 0 && length <= most, who, ": ", name, '[', b, "] is ", length,
               ", expected 0 to ", most);
  }
}

void check_operands(const char* who, const AttentionInputs& in, const AttentionSizes& n) {
  check_shape(who, "q", in.q, {n.batches, n.heads, n.queries, n.depth});
  check_shape(who, "k", in.k, {n.batches, n.groups, n.keys, n.depth});
  check_shape(who, "v", in.v, {n.batches, n.groups, n.keys, n.width});
  check_dtype(who, "q", in.q, is_float(in.q.dtype) && in.q.dtype != DType::kF64,
              "a float type other than F64");
  check_dtype(who, "k", in.k, in.k.dtype == in.q.dtype, "the element type of q");
  check_dtype(who, "v", in.v, in.v.dtype == in.q.dtype, "the element type of q");
  KREF_CHECK(n.groups == 0 ? n.heads == 0 : n.heads % n.groups == 0, who, ": H = ", n.heads,
             " heads of q are not a multiple of G = ", n.groups, " of k");
  if (in.bias) {
    check_dtype(who, "bias", *in.bias,
                in.bias->dtype == DType::kF32 || in.bias->dtype == in.q.dtype,
                "F32 or the element type of q");
    check_shape(who, "bias", *in.bias, {n.batches, n.heads, n.queries, n.keys}, 3);
  }
  if (in.mask) {
    check_dtype(who, "mask", *in.mask, in.mask->dtype == DType::kBool, "BOOL");
    check_shape(who, "mask", *in.mask, {n.batches, n.heads, n.queries, n.keys}, 3);
  }
  KREF_CHECK(in.q_segment_ids.has_value() == in.kv_segment_ids.has_value(), who,
             ": one of q_segment_ids and kv_segment_ids is missing");
  check_i32(who, "q_segment_ids", in.q_segment_ids, {n.batches, n.queries});
  check_i32(who, "kv_segment_ids", in.kv_segment_ids, {n.batches, n.keys});
  check_lengths(who, "q_lengths", in.q_lengths, n.batches, n.queries);
  check_lengths(who, "kv_lengths", in.kv_lengths, n.batches, n.keys);
  if (in.sinks) {
    check_dtype(who, "sinks", *in.sinks, in.sinks->dtype == DType::kF32, "F32");
    check_shape(who, "sinks", *in.sinks, {n.heads});
  }
}

void check_options(const char* who, const AttentionOptions& options, const AttentionSizes& n) {
  KREF_CHECK(options.window.left.value_or(0) >= 0 && options.window.right.value_or(0) >= 0, who,
             ": a window side is negative");
  KREF_CHECK(!options.soft_cap || *options.soft_cap > 0, who, ": soft_cap is not positive");
  KREF_CHECK(options.fully_masked != FullyMasked::kUniform || n.keys > 0 || n.queries == 0, who,
             ": fully_masked is uniform, but S = 0 leaves nothing to average");
  KREF_CHECK(!options.p_dtype || is_float(*options.p_dtype), who, ": p_dtype is not a float type");
}

}  // namespace

AttentionSizes check_attention(const char* who, AttentionInputs& in,
                               const AttentionOptions& options) {
  for (ArrayRef* a : {&in.q, &in.k, &in.v}) {
    const char* name = a == &in.q ? "q" : a == &in.k ? "k" : "v";
    KREF_CHECK(a->rank == 4, who, ": ", name, " is ", to_string(*a), ", expected rank 4");
    *a = by_heads(*a, options.layout);
  }
  const AttentionSizes n{in.q.extents[0], in.q.extents[1], in.k.extents[1], in.q.extents[2],
                         in.k.extents[2], in.q.extents[3], in.v.extents[3]};
  check_operands(who, in, n);
  check_options(who, options, n);
  return n;
}

AttentionTile checked_tile(const char* who, const AttentionTile& tile, const AttentionTile& chosen,
                           const AttentionSizes& n) {
  KREF_CHECK(tile.q >= 0 && tile.k >= 0, who, ": tile is [", tile.q, ", ", tile.k,
             "], expected sizes from 0");
  AttentionTile t = chosen;
  if (tile.q > 0) t.q = std::min(tile.q, std::max<Index>(1, n.queries));
  if (tile.k > 0) t.k = std::min(tile.k, std::max<Index>(1, n.keys));
  return t;
}

std::vector<std::pair<const char*, ArrayRef>> named_inputs(const AttentionInputs& in) {
  std::vector<std::pair<const char*, ArrayRef>> out{{"q", in.q}, {"k", in.k}, {"v", in.v}};
  const auto add = [&](const char* name, const std::optional<ArrayRef>& a) {
    if (a) out.emplace_back(name, *a);
  };
  add("bias", in.bias), add("mask", in.mask);
  add("q_segment_ids", in.q_segment_ids), add("kv_segment_ids", in.kv_segment_ids);
  add("q_lengths", in.q_lengths), add("kv_lengths", in.kv_lengths);
  add("sinks", in.sinks);
  return out;
}

AttentionInputs without_empty(const AttentionInputs& given, const AttentionSizes& n,
                              std::vector<Array>& kept) {
  AttentionInputs in = given;
  const auto zeros = [&](DType type, std::initializer_list<Index> shape) {
    kept.emplace_back(type, std::span<const Index>(shape.begin(), shape.size()));
    return kept.back().ref();
  };
  const Index keys = std::max<Index>(1, n.keys), depth = std::max<Index>(1, n.depth),
              width = std::max<Index>(1, n.width);
  const DType type = in.q.dtype;
  if (n.depth == 0) in.q = zeros(type, {n.batches, n.heads, n.queries, depth});
  if (n.depth == 0 || n.keys == 0) in.k = zeros(type, {n.batches, n.groups, keys, depth});
  if (n.width == 0 || n.keys == 0) in.v = zeros(type, {n.batches, n.groups, keys, width});
  if (n.keys == 0) {
    in.kv_lengths = zeros(DType::kI32, {n.batches});
    in.bias.reset(), in.mask.reset(), in.q_segment_ids.reset(), in.kv_segment_ids.reset();
  }
  return in;
}

}  // namespace kref::detail
