// SPDX-License-Identifier: Apache-2.0
// What the backward pass needs of whole rows, and the gradients that are sums over rows and heads:
// of a bias, and of sinks.
#include <algorithm>
#include <limits>

#include "kernels/attention_vjp_grid.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A block of row numbers without its leading dimensions of extent 1.
template <class T, std::size_t R>
Ref<T, 1> row_of(Ref<T, R> a) {
  return Ref<T, 1>(a.data(), {a.extent(R - 1)});
}

}  // namespace

DeltaOfRows DeltaOfRows::declare(Grid& grid, Index rows, Index width) {
  return {grid.scratch<float>("products", {rows, width}),
          grid.scratch<float>("o, f32", {rows, width}), grid.scratch<bool>("o = 0", {rows, width}),
          grid.scratch<float>("ct.lse, f32", {rows})};
}

void DeltaOfRows::operator()(const Step& s, const ArrayRef& ct_o, const ArrayRef& o_rows,
                             const ArrayRef& lse_rows, float ct_lse_factor,
                             Ref<float, 1> delta) const {
  const Shape<2> shape{ct_o.extents[0], ct_o.extents[1]};
  const Ref<float, 2> products = s[product].block({0, 0}, shape);
  const Ref<const float, 2> value = as_f32(o_rows, s[o]);
  cast(ct_o, products, Overflow::kDefault);
  // o is 0 where a row sees no key but a sink: its do, which may be NaN, is not looked at.
  const bool odd = !all_finite(products);
  mul<float>(products, value, products);
  if (odd) {
    const Ref<bool, 2> zero = s[none].block({0, 0}, shape);
    equal(value, 0.0f, zero);
    select<float>(zero, 0.0f, products, products);
  }
  row_sum(products, delta);
  if (lse_rows.data == nullptr) return;
  const Ref<float, 1> lse = s[ct_lse].block({0}, {shape[0]});
  cast(lse_rows, lse, Overflow::kDefault);
  mul<float>(lse, ct_lse_factor, lse);
  sub<float>(delta, lse, delta);
}

void attention_vjp_delta(const ArrayRef& ct_o, const VjpRows& rows, const AttentionTile& t) {
  const ArrayRef& o = rows.o;
  const Index width = o.extents[3];
  Grid grid("flash_attention_vjp delta");
  const Axis b = grid.parallel("batch", o.extents[0]);
  const Axis h = grid.parallel("head", o.extents[1]);
  const Axis iq = grid.parallel("iq", cdiv(o.extents[2], t.q));
  const auto ctb = AnyIn<4>::declare(grid, "ct.o", ct_o, {{1, 1, t.q, width}, {b, h, iq, 0}});
  const auto ob = AnyIn<4>::declare(grid, "o", o, {{1, 1, t.q, width}, {b, h, iq, 0}});
  std::optional<AnyIn<3>> lseb;
  if (rows.ct_lse) {
    lseb = AnyIn<3>::declare(grid, "ct.lse", *rows.ct_lse, {{1, 1, t.q}, {b, h, iq}});
  }
  const auto deltab = grid.out("delta", rows.delta, {{1, 1, t.q}, {b, h, iq}});
  const DeltaOfRows delta = DeltaOfRows::declare(grid, t.q, width);
  grid.run([&](const Step& s) {
    delta(s, matrix_of(ctb.valid(s)), matrix_of(ob.valid(s)),
          lseb ? row_of(lseb->valid(s)) : ArrayRef(), rows.ct_lse_factor, row_of(s.valid(deltab)));
  });
}

void attention_vjp_mean(const VjpInputs& x, const AttentionTile& t, Ref<float, 3> mean) {
  const ArrayRef ct_o = by_groups(x.ct_o, mean.extent(1));
  const ArrayRef lse = by_groups(ArrayRef(x.lse), mean.extent(1));
  const Index queries = ct_o.extents[3], width = ct_o.extents[4];
  const std::int32_t* lengths =
      x.in.q_lengths ? static_cast<const std::int32_t*>(x.in.q_lengths->data) : nullptr;
  Grid grid("flash_attention_vjp mean");
  const Axis b = grid.parallel("batch", mean.extent(0));
  const Axis g = grid.parallel("kv_head", mean.extent(1));
  const Axis r = grid.sequential("head", ct_o.extents[2]);
  const Axis iq = grid.sequential("iq", cdiv(queries, t.q));
  const auto ctb = AnyIn<5>::declare(grid, "ct.o", ct_o, {{1, 1, 1, t.q, width}, {b, g, r, iq, 0}});
  const auto lseb = grid.in("lse", lse.ref<const float, 4>(), {{1, 1, 1, t.q}, {b, g, r, iq}});
  const auto sumb = grid.out("mean", mean, {{1, 1, width}, {b, g, 0}});
  const auto row = grid.scratch<float>("do", {1, width});
  grid.run([&](const Step& s) {
    const Ref<float, 2> sum = matrix(s[sumb]);
    if (s.first(r) && s.first(iq)) fill(sum, 0.0f);
    const Ref<const float, 1> of_rows = row_of(s.valid(lseb));
    const ArrayRef ct = matrix_of(ctb.valid(s));
    const Index row0 = s.index(iq) * t.q;
    const Index length = lengths != nullptr ? lengths[s.index(b)] : queries;
    for (Index i = 0; i < std::min(of_rows.extent(0), length - row0); ++i) {
      if (of_rows(i) != -kInfinity) continue;
      add<float>(as_f32(part_of(ct, i, 1, 0, width), s[row]), sum, sum);
    }
    if (s.last(r) && s.last(iq)) div<float>(sum, static_cast<float>(x.in.k.extents[2]), sum);
  });
}

void attention_vjp_bias(const VjpInputs& x, const AttentionOptions& options, const AttentionTile& t,
                        const MutableArrayRef& dbias) {
  const AttentionInputs& in = x.in;
  const Index batches = in.q.extents[0], heads = in.q.extents[1], queries = in.q.extents[2],
              depth = in.q.extents[3], keys = in.k.extents[2], width = in.v.extents[3];
  const Index group = heads / in.k.extents[1], columns = cdiv(t.k, 16) * 16;
  const bool before = options.bias_order == BiasOrder::kBeforeScale;
  const ScoreGradients gradients(
      in, options, before ? static_cast<float>(static_cast<double>(options.scale)) : 1.0f);

  // Along each dimension either an axis of results or one of what they are sums of.
  Grid grid("flash_attention_vjp dbias");
  const Index blocks = cdiv(queries, t.q), extents[] = {batches, heads, blocks};
  const char* names[] = {"batch", "head", "iq"};
  std::array<Axis, 3> results, summed;
  const auto broadcast = [&](std::size_t d) { return dbias.extents[d] == 1; };
  for (std::size_t d = 0; d < 3; ++d)
    results[d] = grid.parallel(names[d], broadcast(d) ? 1 : extents[d]);
  const Axis ik = grid.parallel("ik", cdiv(keys, t.k));
  for (std::size_t d = 0; d < 3; ++d) {
    summed[d] = grid.sequential(std::string("sum over ") + names[d], broadcast(d) ? extents[d] : 1);
  }
  const auto axis = [&](std::size_t d) { return broadcast(d) ? summed[d] : results[d]; };
  const Axis b = axis(0), h = axis(1), iq = axis(2);
  const auto rows_in = [&](const char* name, const ArrayRef& a, AxisExpr head, bool of_keys) {
    return AnyIn<4>::declare(
        grid, name, a,
        {{1, 1, of_keys ? t.k : t.q, a.extents[3]}, {b, head, of_keys ? ik : iq, 0}});
  };
  const auto broadcast_in = [&](const char* name, const ArrayRef& a) {
    const auto along = [&](std::size_t d) {
      return a.extents[d] == 1 ? AxisExpr(0) : AxisExpr(axis(d));
    };
    return AnyIn<4>::declare(
        grid, name, a,
        {{1, 1, a.extents[2] == 1 ? 1 : t.q, t.k}, {along(0), along(1), along(2), ik}});
  };
  const AnyIn<4> qb = rows_in("q", in.q, h, false), ctb = rows_in("ct.o", x.ct_o, h, false),
                 kb = rows_in("k", in.k, h / group, true), vb = rows_in("v", in.v, h / group, true),
                 biasb = broadcast_in("bias", *in.bias);
  std::optional<AnyIn<4>> maskb;
  if (in.mask) maskb = broadcast_in("mask", *in.mask);
  const auto lseb = grid.in("lse", x.lse, {{1, 1, t.q}, {b, h, iq}});
  const auto deltab = grid.in("delta", x.delta, {{1, 1, t.q}, {b, h, iq}});
  const Index rows_out = broadcast(2) ? 1 : t.q;
  const auto outb = AnyOut<4>::declare(
      grid, "dbias", dbias, {{1, 1, rows_out, t.k}, {results[0], results[1], results[2], ik}});
  const auto sums = grid.scratch<float>("sums", {rows_out, t.k});
  const auto p_memory = grid.scratch<float>("p", {t.q, columns});
  const auto ds_memory = grid.scratch<float>("ds", {t.q, columns});
  const auto q32 = grid.scratch<float>("q, f32", {t.q, depth});
  const auto ct32 = grid.scratch<float>("ct.o, f32", {t.q, width});
  const auto k32 = grid.scratch<float>("k, f32", {t.k, depth});
  const auto v32 = grid.scratch<float>("v, f32", {t.k, width});
  const auto chosen = grid.scratch<bool>("chosen", {gradients.visible().chooses() ? t.q : 0, t.k});

  grid.run([&](const Step& s) {
    const bool first = s.first(summed[0]) && s.first(summed[1]) && s.first(summed[2]);
    if (first) fill(s[sums], 0.0f);
    const Index key0 = s.index(ik) * t.k;
    const Ref<const float, 1> lse = row_of(s.valid(lseb)), delta = row_of(s.valid(deltab));
    thread_local BlockMask mask;
    gradients.see(s.index(b), s.index(iq) * t.q, key0, std::min(t.k, keys - key0),
                  maskb ? std::optional(matrix_of(maskb->valid(s))) : std::nullopt, s[chosen], lse,
                  mask);
    if (mask.any()) {
      const auto cut = [&](const AnyIn<4>& a, Ref<float, 2> memory, Index row0, Index rows) {
        const ArrayRef all = matrix_of(a.valid(s));
        return as_f32(part_of(all, row0, rows, 0, all.extents[1]), memory);
      };
      const ArrayRef bias = matrix_of(biasb.valid(s));
      const bool shared = bias.extents[0] == 1;
      const Ref<float, 2> p = s[p_memory].block({0, 0}, {mask.rows, mask.keys});
      const Ref<float, 2> ds = s[ds_memory].block({0, 0}, {mask.rows, mask.keys});
      gradients(
          mask,
          {cut(qb, s[q32], mask.row0, mask.rows),
           cut(ctb, s[ct32], mask.row0, mask.rows),
           cut(kb, s[k32], mask.key0, mask.keys),
           cut(vb, s[v32], mask.key0, mask.keys),
           part_of(bias, shared ? 0 : mask.row0, shared ? 1 : mask.rows, mask.key0, mask.keys),
           {lse.block({mask.row0}, {mask.rows}), delta.block({mask.row0}, {mask.rows})}},
          p, ds);
      const Index row0 = broadcast(2) ? 0 : mask.row0, rows = broadcast(2) ? 1 : mask.rows;
      const Ref<float, 2> sum = s[sums].block({row0, mask.key0}, {rows, mask.keys});
      for (Index i = 0; i < mask.rows; i += rows) {
        add<float>(ds.block({i, 0}, {rows, mask.keys}), sum, sum);
      }
    }
    if (!s.last(summed[0]) || !s.last(summed[1]) || !s.last(summed[2])) return;
    const MutableArrayRef out = matrix_of(outb.valid(s));
    cast(ArrayRef(s[sums].block({0, 0}, {out.extents[0], out.extents[1]})), out,
         Overflow::kDefault);
  });
}

void attention_vjp_sinks(const VjpInputs& x, const MutableArrayRef& dsinks) {
  const Index batches = x.lse.extent(0), heads = x.lse.extent(1), queries = x.lse.extent(2);
  const Ref<const float, 1> sinks = x.in.sinks->ref<const float, 1>();
  const std::int32_t* lengths =
      x.in.q_lengths ? static_cast<const std::int32_t*>(x.in.q_lengths->data) : nullptr;
  Grid grid("flash_attention_vjp dsinks");
  const Axis h = grid.parallel("head", heads);
  const Axis b = grid.sequential("batch", batches);
  const auto lseb = grid.in("lse", x.lse, {{1, 1, queries}, {b, h, 0}});
  const auto deltab = grid.in("delta", x.delta, {{1, 1, queries}, {b, h, 0}});
  const auto outb = AnyOut<1>::declare(grid, "dsinks", dsinks, {{1}, {h}});
  const auto weights = grid.scratch<float>("weights", {1, queries});
  const auto sums = grid.scratch<float>("sums", {2, 1});
  grid.run([&](const Step& s) {
    const Ref<float, 2> total = s[sums].block({0, 0}, {1, 1}), more = s[sums].block({1, 0}, {1, 1});
    if (s.first(b)) fill(total, 0.0f);
    const float sink = sinks(s.index(h));
    const Index rows = lengths != nullptr ? lengths[s.index(b)] : queries;
    if (sink != -kInfinity) {
      const Ref<float, 2> weight = s[weights].block({0, 0}, {1, rows});
      sub<float>(sink, row_of(s.valid(lseb)).block({0}, {rows}), weight);
      exp<float>(weight, weight);
      mul<float>(weight, row_of(s.valid(deltab)).block({0}, {rows}), weight);
      row_sum(weight, more);
      sub<float>(total, more, total);
    }
    if (s.last(b)) cast(ArrayRef(row_of(total)), outb.valid(s), Overflow::kDefault);
  });
}

}  // namespace kref::detail
