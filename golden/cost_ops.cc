// SPDX-License-Identifier: Apache-2.0
// The price of each operation.
#include <algorithm>

#include "dsl/work_meter.h"
#include "golden/attention_vjp_op.h"
#include "golden/collective_run.h"
#include "golden/cost.h"
#include "golden/decode_op.h"
#include "golden/matmul_op.h"
#include "golden/mlp_op.h"
#include "golden/options.h"
#include "kernels/attention_work.h"
#include "kernels/passes.h"
#include "sharding/collective_matmul.h"

namespace kref {
namespace {

MatmulPrice price_of(const Run& run, const MatmulRun& matmul) {
  const DType type = run.in.at("x").dtype();
  MatmulPrice price{.dtype = type,
                    .out_dtype = matmul.out_dtype,
                    .passes = product_passes(type, matmul.precision)};
  if (run.set.contains("tile")) {
    price.tile_m = static_cast<double>(matmul.tile[0]);
    price.tile_n = static_cast<double>(matmul.tile[1]);
    price.tile_k = static_cast<double>(matmul.tile[2]);
  }
  return price;
}

CostStep attention_step(const char* what, const MeshLinks& links, const AttentionCost& cost) {
  CostStep step{.what = what};
  step.unit = attention_roofline(links.slice.chip, cost);
  return step;
}

// Of sequence b; `whole` where they are not given.
Index length_of(const Run& run, const char* name, Index b, Index whole) {
  const auto at = run.in.find(name);
  return at == run.in.end() ? whole
                            : at->second.elements<std::int32_t>()[static_cast<std::size_t>(b)];
}

// Bias, mask, segments, lengths and sinks are read once as they are, whatever broadcasts them.
double input_bytes(const Run& run) {
  double bytes = 0;
  for (const auto& [name, array] : run.in) {
    const bool counted = name == "q" || name == "k" || name == "v" || name.starts_with("ct.");
    if (!counted) bytes += static_cast<double>(array.bytes());
  }
  return bytes;
}

// Forward.
AttentionCost attention_cost(const Run& run, const AttentionRun& a) {
  // Rows past q_lengths and keys past kv_lengths are neither read nor multiplied. Without lengths
  // one sequence is as another, however many there are.
  const bool alike = !run.in.contains("q_lengths") && !run.in.contains("kv_lengths");
  const Index sequences = alike ? std::min<Index>(a.batches, 1) : a.batches;
  const auto batch = static_cast<double>(a.batches);
  double rows = 0, keys = 0, pairs = 0;  // of a sequence, on average
  for (Index b = 0; b < sequences; ++b) {
    const Index own_rows = length_of(run, "q_lengths", b, a.queries);
    const Index own_keys = length_of(run, "kv_lengths", b, a.keys);
    rows += static_cast<double>(own_rows), keys += static_cast<double>(own_keys);
    pairs += visible_pairs(a.options, a.queries, a.keys, own_rows, own_keys);
  }
  for (double* sum : {&rows, &keys, &pairs})
    *sum /= static_cast<double>(std::max<Index>(sequences, 1));
  AttentionCost cost{.batch = batch,
                     .heads = static_cast<double>(a.heads),
                     .kv_heads = static_cast<double>(a.groups),
                     .queries = rows,
                     .keys = keys,
                     .depth = static_cast<double>(a.depth),
                     .width = static_cast<double>(a.width),
                     .type = a.dtype(),
                     .kv_type = a.dtype()};
  cost.soft_cap = a.options.soft_cap.has_value();
  if (rows * keys > 0) cost.visible = pairs / (rows * keys);
  // o is written past q_lengths, too.
  cost.other_bytes = input_bytes(run) + batch * (static_cast<double>(a.queries) - rows) *
                                            cost.heads * cost.width *
                                            static_cast<double>(size_of(a.dtype()));
  return cost;
}

}  // namespace

Cost price_matmul_run(const Run& run, const MeshLinks& links) {
  const MatmulRun matmul = read_matmul(run);
  const MatmulPrice price = price_of(run, matmul);
  if (matmul.placement) return price_matmul(*matmul.placement, links, price);
  const MatmulShape shape{matmul.batch,    matmul.m, matmul.n, matmul.k,
                          matmul.shared_y, false,    false};
  return price_matmul(place_matmul(Mesh(), shape, {}, {}, {}), links, price);
}

Cost price_ring_run(const Run& run, const MatmulRun& matmul, const RingPlan& plan,
                    const MeshLinks& links) {
  const MatmulPrice price = price_of(run, matmul);
  Cost cost = price_matmul(*matmul.placement, links, price);
  MatmulCost part = local_product(*matmul.placement, price);
  const auto n = static_cast<double>(links.mesh.size(plan.axis_name));
  switch (plan.traveller) {
    case RingTraveller::kXContraction:
    case RingTraveller::kYContraction:
      part.k /= n, part.adds = true;
      break;
    case RingTraveller::kXRows:
    case RingTraveller::kZRows:
      part.m /= n, part.adds = plan.traveller == RingTraveller::kZRows;
      break;
    default:
      part.n /= n, part.adds = plan.traveller == RingTraveller::kZColumns;
  }
  send_round(cost, plan.axis_name, plan.direction == RingDirection::kBoth, part, links);
  return cost;
}

Cost price_collective_run(const Run& run, const MeshLinks& links) {
  const CollectiveRun c = read_collective(run);
  Cost cost;
  for (const PlannedTransfer& transfer : plan_collective(run).transfers) {
    const auto groups = replica_groups(links.mesh, AxisNames(transfer.axes), transfer.groups);
    std::size_t n = 1;
    for (const std::vector<Index>& group : groups) n = std::max(n, group.size());
    if (n <= 1) continue;
    if (transfer.traffic) {
      const double whole = whole_bytes(*transfer.traffic, transfer.bytes, static_cast<double>(n));
      cost.steps.push_back(transfer.groups.empty()
                               ? price_collective(transfer.collective, *transfer.traffic, whole,
                                                  transfer.axes, links)
                               : price_collective(transfer.collective, *transfer.traffic, whole,
                                                  transfer.axes, groups, links));
    } else if (c.which == Collective::kPpermute) {
      CostStep step{.what = transfer.collective, .axes = transfer.axes, .moves = true};
      step.link = permute_time(transfer.bytes, c.perm, links.of(transfer.axes), links.slice.chip);
      step.sent_bytes = transfer.bytes;
      cost.steps.push_back(std::move(step));
    }
  }
  return cost;
}

Cost price_attention_run(const Run& run, const MeshLinks& links) {
  refuse_attention_mesh(run);
  Cost priced;
  priced.steps.push_back(attention_step("attend", links, attention_cost(run, read_attention(run))));
  return priced;
}

Cost price_attention_vjp_run(const Run& run, const MeshLinks& links) {
  refuse_attention_mesh(run);
  const AttentionRun a = read_attention_vjp(run).primal;
  AttentionCost cost = attention_cost(run, a);
  const double batch = cost.batch, element = static_cast<double>(size_of(a.dtype()));
  const double lse = 4 * batch * cost.heads * static_cast<double>(a.queries);
  Cost priced;
  cost.other_bytes += lse;
  priced.steps.push_back(attention_step("attend", links, cost));

  cost.backward = true, cost.bias_gradient = run.in.contains("bias");
  cost.other_bytes = input_bytes(run) * (cost.bias_gradient ? 2 : 1);
  for (const char* name : {"bias", "sinks"}) {
    const auto at = run.in.find(name);
    if (at != run.in.end()) cost.other_bytes += static_cast<double>(at->second.bytes());
  }
  if (run.in.contains("ct.lse")) cost.other_bytes += batch * cost.heads * cost.queries * 4;
  // Gradients of what lies past the lengths are written, too.
  cost.other_bytes +=
      batch * cost.heads * (static_cast<double>(a.queries) - cost.queries) * cost.depth * element;
  cost.other_bytes += batch * cost.kv_heads * (static_cast<double>(a.keys) - cost.keys) *
                      (cost.depth + cost.width) * element;
  priced.steps.push_back(attention_step("gradients", links, cost));
  return priced;
}

Cost price_decode_run(const Run& run, const MeshLinks& links) {
  // The new token's own keys and values are a row of the cache: not worth a step, nor a copy of the
  // caches with it.
  const ShapesOnly shapes;
  const DecodeRun d = read_decode(run);
  check_decode_placement(run, d);
  double keys = 0;
  for (const Index length : run.in.at("lengths").elements<std::int32_t>()) {
    keys += static_cast<double>(decode_keys(d.options.window, length));
  }
  const double batch = static_cast<double>(d.batches);
  Cost cost;
  std::vector<std::string> axes;
  double n = 1;
  if (run.mesh) {
    axes = run.in_specs.at("q").entries.at(1);
    n = static_cast<double>(axis_size(links.mesh, axes));
  }
  const double element = static_cast<double>(size_of(d.dtype()));
  const auto exchange = [&](const char* what, Index width) {
    if (n <= 1) return;
    const double whole = batch * static_cast<double>(d.heads * width) * element;
    cost.steps.push_back(price_collective(what, Traffic::kAllToAll, whole, axes, links));
  };
  exchange("all_to_all of q, heads to batch", d.depth);
  cost.steps.push_back(attention_step("attend", links,
                                      {.batch = batch / n,
                                       .heads = static_cast<double>(d.heads),
                                       .kv_heads = static_cast<double>(d.groups),
                                       .queries = 1,
                                       .keys = batch > 0 ? keys / batch : 0,
                                       .depth = static_cast<double>(d.depth),
                                       .width = static_cast<double>(d.width),
                                       .type = d.dtype(),
                                       .kv_type = d.dtype(),
                                       .soft_cap = d.options.soft_cap.has_value()}));
  exchange("all_to_all of o, batch to heads", d.width);
  return cost;
}

Cost price_mlp_run(const Run& run, const MeshLinks& links) {
  const MlpRun mlp = read_mlp(run);
  if (run.mesh && run.mesh->device_count() > 1 && mlp.layer.plan.strategy == LayerStrategy::kNone) {
    refuse_run(run, "mesh ", to_string(*run.mesh), ", but strategy is none: every device would ",
               "compute the whole layer; expected strategy dp, fsdp, tp or fsdp_tp");
  }
  return price_layer(mlp.layer.plan, {.b = mlp.b, .d = mlp.d, .f = mlp.f}, links,
                     {.dtype = mlp.dtype, .forward = true, .backward = mlp.vjp});
}

}  // namespace kref
