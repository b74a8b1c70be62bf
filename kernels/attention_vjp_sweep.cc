// SPDX-License-Identifier: Apache-2.0
// The sweep of the backward pass: the five products of every visible block, each computed once.
#include <algorithm>
#include <limits>

#include "kernels/attention_vjp_grid.h"
#include "kernels/dot.h"
#include "kernels/softmax_finish.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

// An operand [B, G|1, H/G|1, T|1, S] in blocks of (rows or 1, one chunk of keys).
AnyIn<5> declare_chunks(Grid& grid, const char* name, const ArrayRef& given, Index groups,
                        const Axis (&axes)[5], Index rows, Index keys) {
  const ArrayRef a = by_groups(given, groups);
  const auto along = [&](std::size_t d) {
    return a.extents[d] == 1 ? AxisExpr(0) : AxisExpr(axes[d]);
  };
  return AnyIn<5>::declare(grid, name, a,
                           {.block = {1, 1, 1, a.extents[3] == 1 ? 1 : rows, keys},
                            .index = {along(0), along(1), along(2), along(3), AxisExpr(axes[4])}});
}

// to (keys, columns) = the transpose of `turned`, plus `mean` where there is one.
void write_keys(Ref<const float, 2> turned, const float* mean, Ref<float, 2> memory,
                const MutableArrayRef& to) {
  const Index keys = to.extents[0], columns = to.extents[1];
  const Ref<float, 2> out =
      to.dtype == DType::kF32 ? to.ref<float, 2>() : memory.block({0, 0}, {keys, columns});
  transpose(turned.block({0, 0}, {columns, keys}), out);
  if (mean != nullptr) add<float>(out, Ref<const float, 1>(mean, {columns}), out);
  if (to.dtype != DType::kF32) cast(ArrayRef(out), to, Overflow::kDefault);
}

// acc (columns, keys) += y^T x, what is not seen aside. `spare` has room for y.
void add_transposed(const BlockMask& mask, Ref<const float, 2> x, Ref<const float, 2> y,
                    Ref<float, 2> spare, Ref<float, 2> acc) {
  if (mask.whole || all_finite(y)) return add_by_keys(mask, x, y, {}, acc);
  const Ref<float, 2> clean = spare.block({0, 0}, y.extents());
  copy<float>(y, clean);
  const std::vector<OddElement> odd = take_odd(clean);
  add_by_keys(mask, x, clean, odd, acc);
}

}  // namespace

Ref<const float, 2> as_f32(const ArrayRef& x, Ref<float, 2> memory) {
  if (x.dtype == DType::kF32) return x.ref<const float, 2>();
  const Ref<float, 2> out = memory.block({0, 0}, {x.extents[0], x.extents[1]});
  cast(x, out, Overflow::kDefault);
  return out;
}

ScoreGradients::ScoreGradients(const AttentionInputs& in, const AttentionOptions& options,
                               float factor)
    : visible_(in, options, in.q.extents[2], in.k.extents[2]),
      rule_(score_rule(options.scale, options.soft_cap, {})),
      factor_(factor) {
  rule_.bias_before_scale = options.bias_order == BiasOrder::kBeforeScale;
}

void ScoreGradients::see(Index batch, Index row0, Index key0, Index keys,
                         const std::optional<ArrayRef>& mask, Ref<bool, 2> memory,
                         Ref<const float, 1> lse, BlockMask& out) const {
  visible_.at(batch, row0, lse.extent(0), key0, keys,
              mask ? mask->ref<const bool, 2>() : Ref<const bool, 2>(), memory, out);
  for (Index r = 0; r < out.rows; ++r) {
    if (lse(out.row0 + r) != -std::numeric_limits<float>::infinity()) continue;
    out.begin[static_cast<std::size_t>(r)] = out.end[static_cast<std::size_t>(r)] = 0;
    out.whole = false;
  }
}

void ScoreGradients::operator()(const BlockMask& mask, const ScoreBlock& block, Ref<float, 2> p,
                                Ref<float, 2> ds) const {
  dot<float>(block.q, block.k, p, {.trans_y = true});
  dot<float>(block.ct_o, block.v, ds, {.trans_y = true});
  attention_gradient(rule_, factor_, mask, block.bias, block.rows, p, ds);
}

Index vjp_chunks(Index keys, const AttentionTile& tile) {
  // A chunk is what one thread works on, and costs a partial sum the size of dq. Four serve threads
  // where there is one head, and share out the causal triangle; two blocks of keys each, so that
  // adding up the parts takes little beside the products: not to be measured at 2048 keys.
  const Index blocks = cdiv(keys, tile.k);
  const Index chunk = cdiv(blocks, std::clamp<Index>(blocks / 2, 1, 4));
  return cdiv(blocks, chunk);
}

void attention_vjp_sweep(const VjpInputs& x, const AttentionOptions& options,
                         const AttentionTile& t, Ref<float, 5> parts, const MutableArrayRef& dk,
                         const MutableArrayRef& dv, Ref<const float, 3> mean,
                         const std::optional<VjpRows>& rows) {
  KREF_DCHECK(!rows || parts.extent(2) == 1);
  const AttentionInputs& in = x.in;
  const Index batches = in.q.extents[0], heads = in.q.extents[1], queries = in.q.extents[2],
              depth = in.q.extents[3], groups = in.k.extents[1], keys = in.k.extents[2],
              width = in.v.extents[3];
  const Index group = heads / groups;
  const Index blocks = cdiv(cdiv(keys, t.k), parts.extent(2)), chunk = blocks * t.k;
  const Index columns = cdiv(t.k, 16) * 16, widest = std::max(depth, width);
  const ScoreGradients gradients(in, options,
                                 static_cast<float>(static_cast<double>(options.scale)));

  Grid grid("flash_attention_vjp");
  const Axis b = grid.parallel("batch", batches);
  const Axis g = grid.parallel("kv_head", groups);
  const Axis c = grid.parallel("chunk", parts.extent(2));
  const Axis ik = grid.sequential("ik", blocks);
  const Axis r = grid.sequential("head", group);
  const Axis iq = grid.sequential("iq", cdiv(queries, t.q));
  const Axis axes[] = {b, g, r, iq, c};

  const auto rows_in = [&](const char* name, const ArrayRef& a) {
    return AnyIn<5>::declare(grid, name, by_groups(a, groups),
                             {{1, 1, 1, t.q, a.extents[3]}, {b, g, r, iq, 0}});
  };
  const auto row_numbers = [&](const char* name, const ArrayRef& a) {
    return grid.in(name, by_groups(a, groups).ref<const float, 4>(),
                   {{1, 1, 1, t.q}, {b, g, r, iq}});
  };
  const AnyIn<5> qb = rows_in("q", in.q), ctb = rows_in("ct.o", x.ct_o);
  const In<float, 4> lseb = row_numbers("lse", x.lse);
  std::optional<In<float, 4>> deltab;
  if (!rows) deltab = row_numbers("delta", x.delta);
  const auto kb = AnyIn<4>::declare(grid, "k", in.k, {{1, 1, chunk, depth}, {b, g, c, 0}});
  const auto vb = AnyIn<4>::declare(grid, "v", in.v, {{1, 1, chunk, width}, {b, g, c, 0}});
  std::optional<AnyIn<5>> biasb, maskb;
  if (in.bias) biasb = declare_chunks(grid, "bias", *in.bias, groups, axes, t.q, chunk);
  if (in.mask) maskb = declare_chunks(grid, "mask", *in.mask, groups, axes, t.q, chunk);
  const auto dkb = AnyOut<4>::declare(grid, "dk", dk, {{1, 1, chunk, depth}, {b, g, c, 0}});
  const auto dvb = AnyOut<4>::declare(grid, "dv", dv, {{1, 1, chunk, width}, {b, g, c, 0}});
  const auto partb = grid.out("parts", parts, {{1, 1, 1, group * queries, depth}, {b, g, c, 0, 0}});
  std::optional<AnyIn<5>> ob;
  std::optional<AnyIn<4>> ct_lseb;
  std::optional<Out<float, 4>> own_deltab;
  std::optional<AnyOut<5>> dqb;
  if (rows) {
    ob = rows_in("o", rows->o);
    if (rows->ct_lse) {
      ct_lseb = AnyIn<4>::declare(grid, "ct.lse", by_groups(*rows->ct_lse, groups),
                                  {{1, 1, 1, t.q}, {b, g, r, iq}});
    }
    own_deltab = grid.out("delta", by_groups(MutableArrayRef(rows->delta), groups).ref<float, 4>(),
                          {{1, 1, group, queries}, {b, g, 0, 0}});
    dqb = AnyOut<5>::declare(grid, "dq", by_groups(rows->dq, groups),
                             {{1, 1, group, queries, depth}, {b, g, 0, 0, 0}});
  }
  const DeltaOfRows delta_of = DeltaOfRows::declare(grid, rows ? t.q : 0, width);

  // Of one block of keys, carried along the rows: dk and dv lie transposed, so that p and ds are
  // what the inner loop of their products walks through, and need no copy turned round.
  const auto dk_turned = grid.scratch<float>("dk, transposed", {depth, columns});
  const auto dv_turned = grid.scratch<float>("dv, transposed", {width, columns});
  const auto p_memory = grid.scratch<float>("p", {t.q, columns});
  const auto ds_memory = grid.scratch<float>("ds", {t.q, columns});
  const auto in_f32 = [&](const char* name, const ArrayRef& a, Index rows_of_block) {
    return grid.scratch<float>(name, {a.dtype == DType::kF32 ? 0 : rows_of_block, a.extents[3]});
  };
  const auto q32 = in_f32("q, f32", in.q, t.q), ct32 = in_f32("ct.o, f32", x.ct_o, t.q);
  const auto k32 = in_f32("k, f32", in.k, t.k), v32 = in_f32("v, f32", in.v, t.k);
  const auto spare = grid.scratch<float>("without odd", {std::max(t.q, t.k), widest});
  const auto chosen = grid.scratch<bool>("chosen", {gradients.visible().chooses() ? t.q : 0, t.k});

  grid.run([&](const Step& s) {
    const Ref<float, 2> dq = matrix(s[partb]);
    if (s.first(ik) && s.first(r) && s.first(iq)) fill(dq, 0.0f);
    const Index local = s.index(ik) * t.k, key0 = s.index(c) * chunk + local;
    const Index n = std::min(t.k, keys - key0), row0 = s.index(iq) * t.q;
    if (n <= 0) return;  // the last chunk may have fewer blocks
    if (s.first(r) && s.first(iq)) {
      fill(s[dk_turned], 0.0f);
      fill(s[dv_turned], 0.0f);
      as_f32(part_of(matrix_of(kb.valid(s)), local, n, 0, depth), s[k32]);
      as_f32(part_of(matrix_of(vb.valid(s)), local, n, 0, width), s[v32]);
    }
    const Ref<const float, 4> lses = s.valid(lseb);
    const Ref<const float, 1> lse(lses.data(), {lses.extent(3)});
    Ref<const float, 1> delta;
    if (rows) {
      const Ref<float, 1> own(&s.valid(*own_deltab)(0, 0, s.index(r), row0), lse.extents());
      if (s.first(ik)) {
        delta_of(s, matrix_of(ctb.valid(s)), matrix_of(ob->valid(s)),
                 ct_lseb ? row_of(ct_lseb->valid(s)) : ArrayRef(), rows->ct_lse_factor, own);
      }
      delta = own;
    } else {
      delta = Ref<const float, 1>(s.valid(*deltab).data(), lse.extents());
    }
    const auto keys_of = [&](const AnyIn<5>& a) {
      const ArrayRef all = matrix_of(a.valid(s));
      return part_of(all, 0, all.extents[0], local, n);
    };
    thread_local BlockMask mask;
    gradients.see(s.index(b), row0, key0, n, maskb ? std::optional(keys_of(*maskb)) : std::nullopt,
                  s[chosen], lse, mask);
    if (mask.any()) {
      const auto own = [&](const AnyIn<4>& in_type, Ref<float, 2> memory, Index count) {
        const ArrayRef a =
            part_of(matrix_of(in_type.valid(s)), local + mask.key0, mask.keys, 0, count);
        return a.dtype == DType::kF32
                   ? a.ref<const float, 2>()
                   : Ref<const float, 2>(memory.block({mask.key0, 0}, {mask.keys, count}));
      };
      const auto rows_of = [&](const AnyIn<5>& a, Ref<float, 2> memory, Index count) {
        return as_f32(part_of(matrix_of(a.valid(s)), mask.row0, mask.rows, 0, count), memory);
      };
      ScoreBlock block{
          rows_of(qb, s[q32], depth),
          rows_of(ctb, s[ct32], width),
          own(kb, s[k32], depth),
          own(vb, s[v32], width),
          {},
          {lse.block({mask.row0}, {mask.rows}), delta.block({mask.row0}, {mask.rows})}};
      if (biasb) {
        const ArrayRef all = keys_of(*biasb);
        const bool shared = all.extents[0] == 1;
        block.bias =
            part_of(all, shared ? 0 : mask.row0, shared ? 1 : mask.rows, mask.key0, mask.keys);
      }
      const Ref<float, 2> p = s[p_memory].block({0, 0}, {mask.rows, mask.keys});
      const Ref<float, 2> ds = s[ds_memory].block({0, 0}, {mask.rows, mask.keys});
      gradients(mask, block, p, ds);
      const auto seen = [&](Ref<float, 2> turned) {
        return turned.block({0, mask.key0}, {turned.extent(0), mask.keys});
      };
      add_transposed(mask, p, block.ct_o, s[spare], seen(s[dv_turned]));
      add_transposed(mask, ds, block.q, s[spare], seen(s[dk_turned]));
      const Ref<float, 2> dq_rows =
          dq.block({s.index(r) * queries + row0 + mask.row0, 0}, {mask.rows, depth});
      if (mask.whole || all_finite(block.k)) {
        dot_add<float>(ds, block.k, dq_rows);
      } else {
        const Ref<float, 2> clean = s[spare].block({0, 0}, block.k.extents());
        copy<float>(block.k, clean);
        add_values(mask, ds, clean, dq_rows);
      }
    }
    if (rows && s.last(ik)) {
      MutableArrayRef of_head = dqb->valid(s);  // (1, 1, heads, rows, D)
      const Index offset =
          s.index(r) * of_head.strides[2] * static_cast<Index>(size_of(of_head.dtype));
      of_head.data = static_cast<char*>(of_head.data) + offset;
      cast(ArrayRef(dq.block({s.index(r) * queries + row0, 0}, {lse.extent(0), depth})),
           part_of(matrix_of(of_head), row0, lse.extent(0), 0, depth), Overflow::kDefault);
    }
    if (!s.last(r) || !s.last(iq)) return;
    const auto to = [&](const AnyOut<4>& a, Index count) {
      return part_of(matrix_of(a.valid(s)), local, n, 0, count);
    };
    write_keys(s[dk_turned], nullptr, s[spare], to(dkb, depth));
    write_keys(s[dv_turned], mean.data() == nullptr ? nullptr : &mean(s.index(b), s.index(g), 0),
               s[spare], to(dvb, width));
  });
}

void attention_vjp_join(Ref<const float, 5> parts, const AttentionTile& t,
                        const MutableArrayRef& dq) {
  const Index groups = parts.extent(1), chunks = parts.extent(2), depth = parts.extent(4);
  const MutableArrayRef by_group = by_groups(dq, groups);
  const Index group = by_group.extents[2], queries = by_group.extents[3];
  const Ref<const float, 6> by_head(parts.data(),
                                    {parts.extent(0), groups, chunks, group, queries, depth});
  Grid grid("flash_attention_vjp dq");
  const Axis b = grid.parallel("batch", parts.extent(0));
  const Axis g = grid.parallel("kv_head", groups);
  const Axis r = grid.parallel("head", group);
  const Axis iq = grid.parallel("iq", cdiv(queries, t.q));
  const Axis c = grid.sequential("chunk", chunks);
  const auto partb = grid.in("parts", by_head, {{1, 1, 1, 1, t.q, depth}, {b, g, c, r, iq, 0}});
  const auto dqb =
      AnyOut<5>::declare(grid, "dq", by_group, {{1, 1, 1, t.q, depth}, {b, g, r, iq, 0}});
  const auto sum = grid.scratch<float>("sum", {t.q, depth});
  grid.run([&](const Step& s) {
    const Ref<const float, 2> part = matrix(s.valid(partb));
    const Ref<float, 2> total = s[sum].block({0, 0}, part.extents());
    if (s.first(c)) {
      copy<float>(part, total);
    } else {
      add<float>(total, part, total);
    }
    if (s.last(c)) cast(ArrayRef(total), matrix_of(dqb.valid(s)), Overflow::kDefault);
  });
}

}  // namespace kref::detail
