// SPDX-License-Identifier: Apache-2.0
#include "sharding/log_prices.h"

#include "sharding/group_links.h"

namespace kref::detail {

Roofline LogPrices::price(const LogEvent::Work& work) const {
  return std::visit([&](const auto& one) { return roofline(one); }, work);
}

DType LogPrices::counted(DType type) const {
  return is_float(type) ? options_.floats.value_or(type) : type;
}

double LogPrices::bytes(double of, DType type) const {
  return of * static_cast<double>(size_of(counted(type))) / static_cast<double>(size_of(type));
}

std::vector<LinkAxis> LogPrices::links_of(const LoggedTransfer& transfer) const {
  return group_links(transfer.members, transfer.axes, links_);
}

LinkTime LogPrices::price(const LoggedTransfer& transfer, const std::vector<LinkAxis>& axes) const {
  const double sent = bytes(transfer.sent_bytes, transfer.dtype);
  const Chip& chip = links_.slice.chip;
  if (!transfer.traffic) return permute_time(sent, transfer.pairs, axes, chip, options_.links);
  const auto n = static_cast<double>(transfer.members.size());
  return link_time(*transfer.traffic, whole_bytes(*transfer.traffic, sent, n), axes, chip,
                   options_.links);
}

Roofline LogPrices::roofline(const ProductWork& w) const {
  const DType type = counted(w.x);
  return matmul_roofline(links_.slice.chip, {.m = static_cast<double>(w.m),
                                             .n = static_cast<double>(w.n),
                                             .k = static_cast<double>(w.k),
                                             .batch = static_cast<double>(w.batch),
                                             .shared_y = w.shared_y,
                                             .adds = w.adds,
                                             .x = type,
                                             .y = counted(w.y),
                                             .z = counted(w.z),
                                             .compute = type,
                                             .passes = type == w.x ? w.passes : 1,
                                             .tile_m = static_cast<double>(w.tile_m),
                                             .tile_n = static_cast<double>(w.tile_n),
                                             .tile_k = static_cast<double>(w.tile_k)});
}

Roofline LogPrices::roofline(const AttentionWork& w) const {
  return attention_roofline(links_.slice.chip, {.batch = static_cast<double>(w.batch),
                                                .heads = static_cast<double>(w.heads),
                                                .kv_heads = static_cast<double>(w.kv_heads),
                                                .queries = static_cast<double>(w.queries),
                                                .keys = w.keys,
                                                .depth = static_cast<double>(w.depth),
                                                .width = static_cast<double>(w.width),
                                                .type = counted(w.type),
                                                .kv_type = counted(w.kv_type),
                                                .visible = w.visible,
                                                .soft_cap = w.soft_cap,
                                                .backward = w.backward,
                                                .bias_gradient = w.bias_gradient});
}

Roofline LogPrices::roofline(const GridWork& w) const {
  return grid_roofline(links_.slice.chip, w.cost, counted(w.compute));
}

}  // namespace kref::detail
