// SPDX-License-Identifier: Apache-2.0
// What flash_attention_vjp refuses, and the heads that it works on at a time.
#include "kernels/flash_attention_vjp.h"

#include <algorithm>
#include <numbers>

#include "dsl/overlap.h"
#include "dsl/threads.h"
#include "dsl/work_meter.h"
#include "kernels/attention_check.h"
#include "kernels/attention_vjp_grid.h"
#include "kernels/attention_work.h"
#include "kernels/flash_attention_grid.h"
#include "kernels/tile_ops.h"

namespace kref {
namespace {

using detail::AttentionSizes;
using detail::by_heads;

constexpr const char* kWho = "flash_attention_vjp";

// Everything that is read or written, by heads, checked.
struct Call {
  AttentionSizes n;
  AttentionInputs in;
  AttentionCotangents ct;
  std::optional<AttentionResiduals> residuals;
  AttentionGradientOutputs out;
};

void check_output(const char* name, const MutableArrayRef& a, const ArrayRef& input) {
  detail::check_dtype(kWho, name, a, is_float(a.dtype), "a float type");
  KREF_CHECK(std::ranges::equal(a.shape(), input.shape()), kWho, ": ", name, " is ", to_string(a),
             ", expected the shape of its input, ", shape_string(input.shape()));
  KREF_CHECK(a.rank == 0 || a.strides[a.rank - 1] == 1 || a.extents[a.rank - 1] <= 1, kWho, ": ",
             name, " is ", to_string(a), " with stride ", a.strides[a.rank - 1],
             " in its last dimension, expected 1");
}

void check_overlaps(const Call& c) {
  std::vector<std::pair<const char*, ArrayRef>> read = detail::named_inputs(c.in);
  read.emplace_back("ct.o", c.ct.o);
  if (c.ct.lse) read.emplace_back("ct.lse", *c.ct.lse);
  if (c.residuals) {
    read.emplace_back("o", c.residuals->o), read.emplace_back("lse", c.residuals->lse);
  }
  std::vector<std::pair<const char*, MutableArrayRef>> written{
      {"dq", c.out.q}, {"dk", c.out.k}, {"dv", c.out.v}};
  if (c.out.bias) written.emplace_back("dbias", *c.out.bias);
  if (c.out.sinks) written.emplace_back("dsinks", *c.out.sinks);
  for (const auto& [name, a] : written) {
    for (const auto& [other, b] : read) {
      KREF_CHECK(!overlap(b, a), kWho, ": ", name, ' ', to_string(a), " overlaps ", other);
    }
    read.emplace_back(name, a);
  }
}

Call checked(const AttentionInputs& in, const AttentionCotangents& ct,
             const std::optional<AttentionResiduals>& residuals,
             const AttentionGradientOutputs& out, const AttentionOptions& options) {
  Call c{{}, in, ct, residuals, out};
  const Layout layout = options.layout;
  c.n = detail::check_attention(kWho, c.in, options);
  const AttentionSizes& n = c.n;
  const auto check_o = [&](const char* name, ArrayRef& a) {
    detail::check_dtype(kWho, name, a, is_float(a.dtype), "a float type");
    a = by_heads(a, layout);
    detail::check_shape(kWho, name, a, {n.batches, n.heads, n.queries, n.width});
  };
  check_o("ct.o", c.ct.o);
  if (c.ct.lse) {
    detail::check_dtype(kWho, "ct.lse", *c.ct.lse, is_float(c.ct.lse->dtype), "a float type");
    detail::check_shape(kWho, "ct.lse", *c.ct.lse, {n.batches, n.heads, n.queries});
  }
  if (c.residuals) {
    check_o("o", c.residuals->o);
    const ArrayRef& lse = c.residuals->lse;
    detail::check_dtype(kWho, "lse", lse, lse.dtype == DType::kF32, "F32");
    detail::check_shape(kWho, "lse", lse, {n.batches, n.heads, n.queries});
    if (options.fully_masked == FullyMasked::kNaN) c.residuals.reset();
  }
  for (MutableArrayRef* a : {&c.out.q, &c.out.k, &c.out.v}) *a = by_heads(*a, layout);
  check_output("dq", c.out.q, c.in.q);
  check_output("dk", c.out.k, c.in.k);
  check_output("dv", c.out.v, c.in.v);
  KREF_CHECK(!out.bias || in.bias, kWho, ": dbias is asked for, but there is no bias");
  KREF_CHECK(!out.sinks || in.sinks, kWho, ": dsinks are asked for, but there are no sinks");
  if (out.bias) check_output("dbias", *out.bias, *in.bias);
  if (out.sinks) check_output("dsinks", *out.sinks, *in.sinks);
  if (!detail::shapes_only()) check_overlaps(c);
  return c;
}

void clear(const MutableArrayRef& a) {
  const Array zero(a.dtype, {});
  detail::fill(a, zero.data());
}

// Batches b0.. and heads h0.. of an array [B|1, H|1, ..]; one of [B, ..] where heads is 0.
template <class Void>
BasicArrayRef<Void> some_heads(const BasicArrayRef<Void>& a, Index b0, Index batches, Index h0,
                               Index heads) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  BasicArrayRef<Void> out = a;
  Index offset = 0;
  const auto cut = [&](std::size_t d, Index first, Index count) {
    if (a.extents[d] == 1) return;
    out.extents[d] = count, offset += first * a.strides[d];
  };
  cut(0, b0, batches);
  if (heads > 0) cut(1, h0, heads);
  out.data = static_cast<Byte*>(a.data) + offset * static_cast<Index>(size_of(a.dtype));
  return out;
}

// The groups g0.. of the batches b0.., as an attention of its own.
Call part_of(const Call& c, Index b0, Index batches, Index g0, Index groups) {
  const Index group = c.n.heads / c.n.groups, h0 = g0 * group, heads = groups * group;
  Call p = c;
  p.n.batches = batches, p.n.heads = heads, p.n.groups = groups;
  const auto cut = [&](auto& a) { a = some_heads(a, b0, batches, h0, heads); };
  const auto cut_keys = [&](auto& a) { a = some_heads(a, b0, batches, g0, groups); };
  cut(p.in.q), cut(p.ct.o), cut(p.out.q);
  for (ArrayRef* a : {&p.in.k, &p.in.v}) cut_keys(*a);
  for (MutableArrayRef* a : {&p.out.k, &p.out.v}) cut_keys(*a);
  for (auto* a : {&p.in.bias, &p.in.mask, &p.ct.lse}) {
    if (*a) cut(**a);
  }
  for (auto* a : {&p.in.q_segment_ids, &p.in.kv_segment_ids, &p.in.q_lengths, &p.in.kv_lengths}) {
    if (*a) **a = some_heads(**a, b0, batches, 0, 0);
  }
  if (p.in.sinks) p.in.sinks = some_heads(*p.in.sinks, h0, heads, 0, 0);
  if (p.residuals) cut(p.residuals->o), cut(p.residuals->lse);
  return p;
}

// lse in the natural base and delta of a part, its o where there was none, and dq, dk, dv.
void run_part(const Call& p, const AttentionOptions& options, const AttentionTile& t,
              Ref<float, 3> lse, Ref<float, 3> delta) {
  const AttentionSizes& n = p.n;
  const bool base2 = options.lse_base == LogBase::k2;
  Array own_o;
  ArrayRef o;
  if (p.residuals) {
    o = p.residuals->o;
    copy<float>(p.residuals->lse.ref<const float, 3>(), lse);
    if (base2) mul<float>(lse, std::numbers::ln2_v<float>, lse);
  } else {
    own_o = Array::unwritten(DType::kF32, std::array{n.batches, n.heads, n.queries, n.width});
    AttentionOptions forward = options;
    forward.fully_masked = FullyMasked::kZero;
    forward.p_dtype.reset();
    forward.lse_base = LogBase::kE;
    const AttentionTile tile = default_attention_tile(n.batches * n.heads, n.queries, n.keys);
    detail::attention_grid(p.in, own_o.mutable_ref(), lse, forward, {tile.q, t.k});
    o = own_o;
  }
  const detail::VjpRows rows{o, p.ct.lse, base2 ? std::numbers::log2e_v<float> : 1.0f, delta,
                             p.out.q};
  const Index chunks = detail::vjp_chunks(n.keys, t);
  if (chunks > 1) {
    detail::attention_vjp_delta(p.ct.o, rows, t);
    own_o = {};
  }
  const detail::VjpInputs x{p.in, p.ct.o, lse, delta};
  Tensor<float, 3> mean;
  if (options.fully_masked == FullyMasked::kUniform) {
    mean = Tensor<float, 3>({n.batches, n.groups, n.width});
    detail::attention_vjp_mean(x, t, mean);
  }
  Array parts = Array::unwritten(DType::kF32, std::array{n.batches, n.groups, chunks,
                                                         n.heads / n.groups * n.queries, n.depth});
  const Ref<float, 5> dq = parts.mutable_ref().ref<float, 5>();
  detail::attention_vjp_sweep(x, options, t, dq, p.out.k, p.out.v, mean.ref(),
                              chunks > 1 ? std::nullopt : std::optional(rows));
  if (chunks > 1) detail::attention_vjp_join(dq, t, p.out.q);
}

// How many groups of heads a part has: as many as 64 MiB serve, but enough for the threads.
Index groups_at_once(const AttentionSizes& n, const AttentionTile& t) {
  constexpr Index kBytes = Index{64} << 20;
  const Index chunks = detail::vjp_chunks(n.keys, t);
  const Index bytes = n.heads / n.groups * n.queries * (chunks * n.depth + n.width) * 4;
  return std::max(kBytes / std::max<Index>(1, bytes), cdiv(Index{2} * threads(), chunks));
}

// D, E, S from 1.
void run(const Call& c, const AttentionOptions& options, const AttentionTile& t) {
  const AttentionSizes& n = c.n;
  Tensor<float, 3> lse({n.batches, n.heads, n.queries}), delta({n.batches, n.heads, n.queries});
  const Index at_once = groups_at_once(n, t);
  const Index groups = std::min(at_once, n.groups);
  const Index batches = groups < n.groups ? 1 : std::min(n.batches, at_once / n.groups);
  for (Index b = 0; b < n.batches; b += batches) {
    for (Index g = 0; g < n.groups; g += groups) {
      const Call part =
          part_of(c, b, std::min(batches, n.batches - b), g, std::min(groups, n.groups - g));
      const Index group = n.heads / n.groups;
      const auto rows_of = [&](Tensor<float, 3>& a) {
        return a.ref().block({b, g * group, 0}, {part.n.batches, part.n.heads, n.queries});
      };
      run_part(part, options, t, rows_of(lse), rows_of(delta));
    }
  }
  const detail::VjpInputs x{c.in, c.ct.o, lse.ref(), delta.ref()};
  if (c.out.bias && c.in.bias) detail::attention_vjp_bias(x, options, t, *c.out.bias);
  if (c.out.sinks) detail::attention_vjp_sinks(x, *c.out.sinks);
}

// The gradients, and before them a forward pass where none has left o and lse.
void tell(const Call& c, const AttentionOptions& options) {
  WorkMeter* const meter = detail::work_meter();
  if (meter == nullptr) return;
  AttentionWork work = detail::attention_work(c.in, c.n, options);
  if (!c.residuals) meter->attention(work);
  work.backward = true, work.bias_gradient = c.out.bias.has_value();
  meter->attention(work);
}

void backward(const AttentionInputs& in, const AttentionCotangents& ct,
              const std::optional<AttentionResiduals>& residuals,
              const AttentionGradientOutputs& out, const AttentionOptions& options,
              const AttentionTile& tile) {
  Call c = checked(in, ct, residuals, out, options);
  AttentionSizes& n = c.n;
  const AttentionTile t =
      detail::checked_tile(kWho, tile, default_attention_vjp_tile(n.queries, n.keys), n);
  tell(c, options);
  if (detail::shapes_only()) return;
  const MeterScope unmetered(nullptr);
  if (n.batches * n.heads * n.queries == 0) {
    for (const MutableArrayRef& a : {c.out.q, c.out.k, c.out.v}) clear(a);
    if (c.out.bias) clear(*c.out.bias);
    if (c.out.sinks) clear(*c.out.sinks);
    return;
  }
  // An output of extent 0 along D, E or S takes nothing; what stands for it is dropped.
  std::vector<Array> kept;
  kept.reserve(16);
  c.in = detail::without_empty(c.in, n, kept);
  const auto stand_in = [&](const auto& a, const ArrayRef& input) {
    kept.emplace_back(a.dtype, input.shape());
    return kept.back();
  };
  if (n.depth == 0) c.out.q = stand_in(c.out.q, c.in.q).mutable_ref();
  if (n.depth == 0 || n.keys == 0) c.out.k = stand_in(c.out.k, c.in.k).mutable_ref();
  if (n.width == 0 || n.keys == 0) c.out.v = stand_in(c.out.v, c.in.v).mutable_ref();
  if (n.width == 0) {
    const Index shape[] = {n.batches, n.heads, n.queries, 1};
    kept.emplace_back(DType::kF32, shape);
    c.ct.o = kept.back();
    if (c.residuals) c.residuals->o = kept.back();
  }
  n.keys = std::max<Index>(1, n.keys), n.depth = std::max<Index>(1, n.depth),
  n.width = std::max<Index>(1, n.width);
  run(c, options, t);
}

}  // namespace

AttentionTile default_attention_vjp_tile(Index queries, Index keys) {
  // p and ds, 128 x 256 f32, stay in a second-level cache of 512 KiB beside what is multiplied with
  // them. More keys a block mean fewer sums of dq that come and go: 512 measured 2 % more, but left
  // a head of 2048 keys to one thread; 128 rows for 256 cost nothing, and 5 % less where causal.
  const AttentionTile t{128, 256};
  return {std::clamp<Index>(queries, 1, t.q), std::clamp<Index>(keys, 1, t.k)};
}

void flash_attention_vjp(const AttentionInputs& in, const AttentionCotangents& ct,
                         const AttentionGradientOutputs& out, const AttentionOptions& options,
                         const AttentionTile& tile) {
  backward(in, ct, {}, out, options, tile);
}

void flash_attention_vjp(const AttentionInputs& in, const AttentionResiduals& residuals,
                         const AttentionCotangents& ct, const AttentionGradientOutputs& out,
                         const AttentionOptions& options, const AttentionTile& tile) {
  backward(in, ct, residuals, out, options, tile);
}

}  // namespace kref
