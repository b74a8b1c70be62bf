// SPDX-License-Identifier: Apache-2.0
#include "kernels/flash_attention_grid.h"

#include <limits>

#include "kernels/any_operand.h"
#include "kernels/dot.h"
#include "kernels/softmax_finish.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An optional [B|1, H|1, T|1, S] operand: blocks (rows or 1, keys).
AnyIn<4> declare_broadcast(Grid& grid, const char* name, const ArrayRef& a, const Axis& b,
                           const Axis& h, const Axis& iq, const Axis& ik, const AttentionTile& t) {
  const auto along = [&](std::size_t d, const Axis& axis) {
    return a.extents[d] == 1 ? AxisExpr(0) : AxisExpr(axis);
  };
  return AnyIn<4>::declare(grid, name, a,
                           {.block = {1, 1, a.extents[2] == 1 ? 1 : t.q, t.k},
                            .index = {along(0, b), along(1, h), along(2, iq), ik}});
}

// The rows of a state that a block of keys is visible to.
SoftmaxState rows_of(const SoftmaxState& s, Index row0, Index rows) {
  const auto cut = [&](Ref<float, 2> a) { return a.block({row0, 0}, {rows, a.extent(1)}); };
  return {cut(s.maximum), cut(s.sums), cut(s.acc)};
}

}  // namespace

void attention_grid(const AttentionInputs& in, const MutableArrayRef& o,
                    const std::optional<Ref<float, 3>>& lse, const AttentionOptions& options,
                    const AttentionTile& t) {
  const Index batches = in.q.extents[0], heads = in.q.extents[1], queries = in.q.extents[2],
              depth = in.q.extents[3], keys = in.k.extents[2], width = in.v.extents[3];
  const Index group = heads / in.k.extents[1];  // query heads that share one key and value head
  const Index columns = cdiv(t.k, 16) * 16;     // of scores, with the room the verbs want
  const AttentionMask visible(in, options, queries, keys);
  ScoreRule rule = score_rule(options.scale, options.soft_cap, options.p_dtype);
  rule.bias_before_scale = options.bias_order == BiasOrder::kBeforeScale;
  const bool uniform = options.fully_masked == FullyMasked::kUniform;
  const float* sinks = in.sinks ? static_cast<const float*>(in.sinks->data) : nullptr;

  Grid grid("flash_attention");
  const Axis b = grid.parallel("batch", batches);
  const Axis h = grid.parallel("head", heads);
  const Axis iq = grid.parallel("iq", cdiv(queries, t.q));
  const Axis ik = grid.sequential("ik", cdiv(keys, t.k));

  using In4 = AnyIn<4>;
  const BlockSpec<4> kv_all{.block = {1, 1, keys, width}, .index = {b, h / group, 0, 0}};
  const In4 qb = In4::declare(grid, "q", in.q, {{1, 1, t.q, depth}, {b, h, iq, 0}});
  const In4 kb = In4::declare(grid, "k", in.k, {{1, 1, t.k, depth}, {b, h / group, ik, 0}});
  const In4 vb = In4::declare(grid, "v", in.v, {{1, 1, t.k, width}, {b, h / group, ik, 0}});
  const auto ob = AnyOut<4>::declare(grid, "o", o, {{1, 1, t.q, width}, {b, h, iq, 0}});
  std::optional<In4> biasb, maskb, vallb;
  if (in.bias) biasb = declare_broadcast(grid, "bias", *in.bias, b, h, iq, ik, t);
  if (in.mask) maskb = declare_broadcast(grid, "mask", *in.mask, b, h, iq, ik, t);
  if (uniform) vallb = In4::declare(grid, "v, all keys", in.v, kv_all);
  std::optional<Out<float, 3>> lseb;
  if (lse) lseb = grid.out("lse", *lse, {.block = {1, 1, t.q}, .index = {b, h, iq}});

  // The softmax of one q block, carried along ik.
  const auto scores = grid.scratch<float>("scores", {t.q, columns});
  const auto maximum = grid.scratch<float>("maximum", {t.q, 1});
  const auto sums = grid.scratch<float>("sums", {t.q, kSumLanes});
  const auto acc = grid.scratch<float>("acc", {t.q, cdiv(width, 16) * 16});
  const auto values = grid.scratch<float>("values", {t.k, width});
  const auto total = grid.scratch<float>("total", {t.q, 1});
  const auto mean = grid.scratch<float>("mean", {1, width});
  const auto chosen = grid.scratch<bool>("chosen", {visible.chooses() ? t.q : 0, t.k});

  grid.run([&](const Step& s) {
    const Index rows = std::min(t.q, queries - s.index(iq) * t.q);
    const SoftmaxState state{s[maximum].block({0, 0}, {rows, 1}),
                             s[sums].block({0, 0}, {rows, kSumLanes}),
                             s[acc].block({0, 0}, {rows, width})};
    if (s.first(ik)) reset_softmax(state, sinks != nullptr ? sinks[s.index(h)] : -kInfinity);

    thread_local BlockMask mask;
    const Index key0 = s.index(ik) * t.k;
    visible.at(s.index(b), s.index(iq) * t.q, rows, key0, std::min(t.k, keys - key0),
               maskb ? matrix_of(maskb->valid(s)).ref<const bool, 2>() : Ref<const bool, 2>(),
               s[chosen], mask);
    if (mask.any()) {
      const SoftmaxState seeing = rows_of(state, mask.row0, mask.rows);
      const Ref<float, 2> p = s[scores].block({0, 0}, {mask.rows, mask.keys});  // (rows, keys)
      const ArrayRef qt = part_of(matrix_of(qb.valid(s)), mask.row0, mask.rows, 0, depth);
      const ArrayRef kt = part_of(matrix_of(kb.valid(s)), mask.key0, mask.keys, 0, depth);
      ArrayRef vt = part_of(matrix_of(vb.valid(s)), mask.key0, mask.keys, 0, width);
      ArrayRef bias;
      if (biasb) {
        const ArrayRef all = matrix_of(biasb->valid(s));
        const bool shared = all.extents[0] == 1;
        bias = part_of(all, shared ? 0 : mask.row0, shared ? 1 : mask.rows, mask.key0, mask.keys);
      }
      dot_add(qt, kt, p, {.trans_y = true}, true);
      softmax_update(rule, mask, bias, p, seeing);  // p := exp(logit - maximum)

      const Ref<float, 2> v32 = s[values].block({0, 0}, {mask.keys, width});
      if (vt.dtype != DType::kF32) {
        cast(vt, v32, Overflow::kDefault);
        vt = v32;
      }
      if (mask.whole || all_finite(vt.ref<const float, 2>())) {
        dot_add(p, vt, seeing.acc, {}, false);
      } else {
        if (vt.data != v32.data()) copy(vt, v32);
        add_values(mask, p, v32, seeing.acc);
      }
    }
    if (!s.last(ik)) return;

    if (uniform) mean_of(matrix_of(vallb->valid(s)), s[mean]);
    const Ref<float, 2> totals = s[total].block({0, 0}, {rows, 1});
    finish_softmax(state, visible.q_length(s.index(b)) - s.index(iq) * t.q, options.fully_masked,
                   uniform ? std::optional(s[mean]) : std::nullopt, options.lse_base, totals);
    cast(state.acc, matrix_of(ob.valid(s)), Overflow::kDefault);
    if (!lseb) return;
    const Ref<float, 3> out = s.valid(*lseb);  // (1, 1, rows)
    copy(state.maximum, column(Ref<float, 1>(out.data(), {rows})));
  });
}

}  // namespace kref::detail
