// SPDX-License-Identifier: Apache-2.0
#include "kernels/decode_attention.h"

#include <algorithm>
#include <limits>

#include "dsl/overlap.h"
#include "dsl/work_meter.h"
#include "kernels/any_operand.h"
#include "kernels/attention_check.h"
#include "kernels/attention_work.h"
#include "kernels/row_products.h"
#include "kernels/softmax_finish.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

using namespace detail;

struct Sizes {
  Index batches, heads, groups, slots, depth, width, group;  // group: heads that share a key head
};

constexpr const char* kWho = "decode_attention";

Sizes check_operands(const DecodeInputs& in, const MutableArrayRef& o,
                     const std::optional<Ref<float, 2>>& lse, const DecodeOptions& options) {
  KREF_CHECK(in.q.rank == 3, "decode_attention: q is ", to_string(in.q), ", expected rank 3");
  for (const auto& [name, cache] : {std::pair("k_cache", &in.k_cache), {"v_cache", &in.v_cache}}) {
    KREF_CHECK(cache->rank == 4, "decode_attention: ", name, " is ", to_string(*cache),
               ", expected rank 4");
    KREF_CHECK(cache->dtype == in.q.dtype, "decode_attention: ", name, " is ", to_string(*cache),
               ", expected the element type of q, ", name_of(in.q.dtype));
  }
  Sizes n{in.q.extents[0],
          in.q.extents[1],
          in.k_cache.extents[2],
          in.k_cache.extents[1],
          in.q.extents[2],
          in.v_cache.extents[3],
          0};
  KREF_CHECK(is_float(in.q.dtype) && in.q.dtype != DType::kF64, "decode_attention: q is ",
             to_string(in.q), ", expected a float type other than F64");
  check_shape(kWho, "q", in.q, {n.batches, n.heads, n.depth});
  check_shape(kWho, "k_cache", in.k_cache, {n.batches, n.slots, n.groups, n.depth});
  check_shape(kWho, "v_cache", in.v_cache, {n.batches, n.slots, n.groups, n.width});
  KREF_CHECK(n.groups == 0 ? n.heads == 0 : n.heads % n.groups == 0,
             "decode_attention: H = ", n.heads, " heads of q are not a multiple of G = ", n.groups,
             " of k_cache");
  n.group = n.groups == 0 ? 0 : n.heads / n.groups;
  KREF_CHECK(in.lengths.dtype == DType::kI32, "decode_attention: lengths is ",
             to_string(in.lengths), ", expected I32");
  check_shape(kWho, "lengths", in.lengths, {n.batches});
  if (n.batches > 0) detail::need_elements(kWho, "lengths", in.lengths.data);
  KREF_CHECK(is_float(o.dtype), "decode_attention: o is ", to_string(o), ", expected a float type");
  check_shape(kWho, "o", o, {n.batches, n.heads, n.width});
  if (lse) check_shape(kWho, "lse", *lse, {n.batches, n.heads});
  for (const ArrayRef* a : {&in.q, &in.k_cache, &in.v_cache, &in.lengths}) {
    if (detail::shapes_only()) break;
    KREF_CHECK(!overlap(*a, o) && (!lse || !overlap(*a, MutableArrayRef(*lse))),
               "decode_attention: o or lse overlaps the input ", to_string(*a));
  }
  KREF_CHECK(options.window.left.value_or(0) >= 0 && options.window.right.value_or(0) >= 0,
             "decode_attention: a window side is negative");
  KREF_CHECK(!options.soft_cap || *options.soft_cap > 0,
             "decode_attention: soft_cap is not positive");
  KREF_CHECK(!options.p_dtype || is_float(*options.p_dtype),
             "decode_attention: p_dtype is not a float type");
  for (Index b = 0; b < n.batches; ++b) {
    const std::int32_t length = static_cast<const std::int32_t*>(in.lengths.data)[b];
    KREF_CHECK(length >= 0 && length <= n.slots, "decode_attention: lengths[", b, "] is ", length,
               ", expected 0 to ", n.slots);
    KREF_CHECK(length > 0 || options.fully_masked != FullyMasked::kUniform,
               "decode_attention: fully_masked is uniform, but lengths[", b,
               "] is 0, which leaves nothing to average");
  }
  return n;
}

// A block [1, keys, G, columns] of a cache as (keys, G, columns), keys first .. first + count - 1.
ArrayRef keys_of(const ArrayRef& block, Index first, Index count) {
  ArrayRef out = block;
  out.rank = 3;
  out.extents = {count, block.extents[2], block.extents[3]};
  out.strides = {block.strides[1], block.strides[2], 1};
  const Index bytes = first * block.strides[1] * static_cast<Index>(size_of(block.dtype));
  out.data = static_cast<const char*>(block.data) + bytes;
  return out;
}

// What each part of the keys comes to, for each head.
struct Parts {
  Tensor<float, 4> acc;             // [B, parts, H, E]
  Tensor<float, 4> maximum, total;  // [B, parts, H, 1]
};

void attend_parts(const DecodeInputs& in, const DecodeOptions& options, const Sizes& n,
                  Parts& parts) {
  const Index keys = std::min(n.slots, kDecodeSplit), up_depth = cdiv(n.depth, 16) * 16;
  const auto* lengths = static_cast<const std::int32_t*>(in.lengths.data);
  const ScoreRule rule = score_rule(options.scale, options.soft_cap, options.p_dtype);

  Grid grid("decode_attention");
  const Axis b = grid.parallel("batch", n.batches);
  const Axis i = grid.parallel("part", parts.acc.extent(1));
  using In4 = AnyIn<4>;
  const auto qb = AnyIn<3>::declare(grid, "q", in.q, {{1, n.heads, n.depth}, {b, 0, 0}});
  const In4 kb =
      In4::declare(grid, "k_cache", in.k_cache, {{1, keys, n.groups, n.depth}, {b, i, 0, 0}});
  const In4 vb =
      In4::declare(grid, "v_cache", in.v_cache, {{1, keys, n.groups, n.width}, {b, i, 0, 0}});
  const auto accb = grid.out("acc", parts.acc, {{1, 1, n.heads, n.width}, {b, i, 0, 0}});
  const auto maxb = grid.out("maximum", parts.maximum, {{1, 1, n.heads, 1}, {b, i, 0, 0}});
  const auto totalb = grid.out("total", parts.total, {{1, 1, n.heads, 1}, {b, i, 0, 0}});
  const auto q32 = grid.scratch<float>("q32", {n.heads, up_depth});
  const auto scores = grid.scratch<float>("scores", {n.heads, cdiv(keys, 16) * 16});
  const auto sums = grid.scratch<float>("sums", {n.heads, kSumLanes});
  const auto acc = grid.scratch<float>("acc32", {n.heads, cdiv(n.width, 16) * 16});

  grid.run([&](const Step& s) {
    const SoftmaxState state{matrix(s[maxb]), s[sums], s[acc].block({0, 0}, {n.heads, n.width})};
    reset_softmax({state.maximum, state.sums, s[acc]}, -std::numeric_limits<float>::infinity());
    const Index length = lengths[s.index(b)], key0 = s.index(i) * keys;
    const Index window = std::min(options.window.left.value_or(length), length);
    const Index begin = std::max<Index>(0, length - 1 - window - key0);
    const Index count = std::min(length - key0, keys) - begin;
    if (count > 0) {
      fill(s[q32], 0.0f);
      cast(matrix_of(qb.valid(s)), s[q32].block({0, 0}, {n.heads, n.depth}), Overflow::kDefault);
      const Ref<float, 2> p = s[scores].block({0, 0}, {n.heads, count});  // (heads, count)
      head_dots(s[q32].block({0, 0}, {n.heads, n.depth}), keys_of(kb.valid(s), begin, count), p);
      BlockMask all;
      all.rows = n.heads, all.keys = count;
      all.begin.assign(static_cast<std::size_t>(n.heads), 0);
      all.end.assign(static_cast<std::size_t>(n.heads), static_cast<std::int32_t>(count));
      softmax_update(rule, all, {}, p, state);
      add_head_values(p, keys_of(vb.valid(s), begin, count), state.acc);
    }
    total_sums(state.sums, matrix(s[totalb]));
    copy(state.acc, matrix(s[accb]));
  });
}

// The values of one head of a block [1, S, G, E], as (S, E).
ArrayRef values_of(const ArrayRef& block, Index head) {
  ArrayRef out = block;
  out.rank = 2;
  out.extents = {block.extents[1], block.extents[3]};
  out.strides = {block.strides[1], 1};
  const Index bytes = head * block.strides[2] * static_cast<Index>(size_of(block.dtype));
  out.data = static_cast<const char*>(block.data) + bytes;
  return out;
}

// Merges the parts in ascending order, and finishes.
void merge_parts(const DecodeInputs& in, const MutableArrayRef& o,
                 const std::optional<Ref<float, 2>>& lse, const DecodeOptions& options,
                 const Sizes& n, const Parts& parts) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const bool uniform = options.fully_masked == FullyMasked::kUniform;
  const Index count = parts.acc.extent(1);

  Grid grid("decode_attention, merge");
  const Axis b = grid.parallel("batch", n.batches);
  const BlockSpec<4> columns{{1, count, n.heads, 1}, {b, 0, 0, 0}};
  const auto accb = grid.in("acc", parts.acc, {{1, count, n.heads, n.width}, {b, 0, 0, 0}});
  const auto maxb = grid.in("maximum", parts.maximum, columns);
  const auto totalb = grid.in("total", parts.total, columns);
  const auto ob = AnyOut<3>::declare(grid, "o", o, {{1, n.heads, n.width}, {b, 0, 0}});
  std::optional<Out<float, 2>> lseb;
  if (lse) lseb = grid.out("lse", *lse, {.block = {1, n.heads}, .index = {b, 0}});
  std::optional<AnyIn<4>> vb;
  if (uniform) {
    vb = AnyIn<4>::declare(grid, "v_cache", in.v_cache,
                           {{1, n.slots, n.groups, n.width}, {b, 0, 0, 0}});
  }
  const auto most = grid.scratch<float>("merged maximum", {n.heads, 1});
  const auto sums = grid.scratch<float>("merged sums", {n.heads, kSumLanes});
  const auto acc = grid.scratch<float>("merged acc", {n.heads, n.width});
  const auto factor = grid.scratch<float>("factor", {n.heads, 1});
  const auto from = grid.scratch<float>("from", {n.heads, 1});
  const auto mean = grid.scratch<float>("mean", {1, n.width});

  grid.run([&](const Step& s) {
    const SoftmaxState state{s[most], s[sums], s[acc]};
    const Ref<float, 2> total = s[sums].block({0, 0}, {n.heads, 1});
    reset_softmax(state, kNone);
    const auto part = [&](const auto& handle, Index at) {
      const auto all = s[handle];
      return matrix(all.block({0, at, 0, 0}, {1, 1, n.heads, all.extent(3)}));
    };
    for (Index at = 0; at < count; ++at) maximum(part(maxb, at), s[most], s[most]);
    // Where nothing was seen maxima are measured from 0: what they weigh does not matter.
    for (Index h = 0; h < n.heads; ++h) s[from](h, 0) = s[most](h, 0) == kNone ? 0 : s[most](h, 0);
    for (Index at = 0; at < count; ++at) {
      sub(part(maxb, at), s[from], s[factor]);
      exp(s[factor], s[factor]);
      mul_add(part(totalb, at), s[factor], total, total);
      mul_add(part(accb, at), s[factor], s[acc], s[acc]);
    }
    for (Index g = 0; g < n.groups; ++g) {
      const auto rows = [&](Ref<float, 2> a) {
        return a.block({g * n.group, 0}, {n.group, a.extent(1)});
      };
      if (uniform) mean_of(values_of(vb->valid(s), g), s[mean]);
      finish_softmax({rows(state.maximum), rows(state.sums), rows(state.acc)}, n.group,
                     options.fully_masked, uniform ? std::optional(s[mean]) : std::nullopt,
                     options.lse_base, rows(s[factor]));
    }
    cast(s[acc], matrix_of(ob.valid(s)), Overflow::kDefault);
    if (lseb) copy(s[most], column(Ref<float, 1>(s.valid(*lseb).data(), {n.heads})));
  });
}

void tell(const DecodeInputs& in, const Sizes& n, const DecodeOptions& options) {
  WorkMeter* const meter = detail::work_meter();
  if (meter == nullptr) return;
  AttentionWork work{.batch = n.batches, .heads = n.heads, .kv_heads = n.groups, .queries = 1};
  work.depth = n.depth, work.width = n.width;
  const auto* lengths = static_cast<const std::int32_t*>(in.lengths.data);
  for (Index b = 0; b < n.batches; ++b) {
    work.keys += static_cast<double>(decode_keys(options.window, lengths[b]));
  }
  if (n.batches > 0) work.keys /= static_cast<double>(n.batches);
  work.type = work.kv_type = in.q.dtype;
  work.soft_cap = options.soft_cap.has_value();
  meter->attention(work);
}

// Where a dimension has extent 0 flash_attention knows what to do.
void decode_empty(const DecodeInputs& in, const MutableArrayRef& o,
                  const std::optional<Ref<float, 2>>& lse, const DecodeOptions& options) {
  const reference::DecodeAsAttention as(in, options);
  MutableArrayRef row = o;  // [B, 1, H, E]
  row.rank = 4;
  row.extents = {o.extents[0], 1, o.extents[1], o.extents[2]};
  row.strides = {o.strides[0], 0, o.strides[1], o.strides[2]};
  std::optional<Ref<float, 3>> row_lse;
  if (lse) {
    row_lse = Ref<float, 3>(lse->data(), {lse->extent(0), lse->extent(1), 1},
                            {lse->stride(0), lse->stride(1), 1});
  }
  flash_attention(as.in, row, row_lse, as.options);
}

}  // namespace

void decode_attention(const DecodeInputs& in, const MutableArrayRef& o,
                      const std::optional<Ref<float, 2>>& lse, const DecodeOptions& options) {
  const Sizes n = check_operands(in, o, lse, options);
  tell(in, n, options);
  if (n.batches * n.heads == 0 || detail::shapes_only()) return;
  const MeterScope unmetered(nullptr);
  if (n.slots * n.depth * n.width == 0) {  // no blocks along a dimension of extent 0
    return decode_empty(in, o, lse, options);
  }
  const Index count = cdiv(n.slots, kDecodeSplit);
  Parts parts{Tensor<float, 4>({n.batches, count, n.heads, n.width}),
              Tensor<float, 4>({n.batches, count, n.heads, 1}),
              Tensor<float, 4>({n.batches, count, n.heads, 1})};
  attend_parts(in, options, n, parts);
  merge_parts(in, o, lse, options, n, parts);
}

}  // namespace kref
