// SPDX-License-Identifier: Apache-2.0
// What the outputs of a decode_attention run ought to hold: the bound of attention with T = 1, and
// caches that are copied.
#include <algorithm>

#include "dsl/flat_index.h"
#include "golden/attention_faults.h"
#include "golden/attention_row.h"
#include "golden/decode_op.h"

namespace kref {
namespace {

using reference::AttentionRow;

Expectation copied(const char* name, const Array& cache) {
  Expectation e;
  e.output = name;
  e.value.resize(static_cast<std::size_t>(cache.size()));
  for (std::size_t i = 0; i < e.value.size(); ++i) e.value[i] = cache.at(static_cast<Index>(i));
  e.blocks = {.axes = {"batch", "slot", "kv_head", "d"},
              .extents = {1, 1, 1, std::max<Index>(1, cache.extent(3))},
              .steps = ""};
  return e;
}

// Which device holds each element, and the part of the output that it works on.
void place(Expectation& e, const Run& run, std::vector<Index> shape) {
  const auto at = run.out_specs.find(e.output);
  if (!run.mesh || at == run.out_specs.end()) return;
  e.blocks.shards = local_shape(at->second.spec, shape, *run.mesh);
  for (Index& extent : e.blocks.shards) extent = std::max<Index>(1, extent);
  e.owner.shard = e.blocks.shards;
  e.owner.device = [spec = at->second, shape, mesh = *run.mesh](Index element) {
    return owner_name(spec, shape, mesh, unravel(element, shape));
  };
}

}  // namespace

AttentionRun as_attention(const DecodeRun& decode, const reference::DecodeAsAttention& as) {
  return {.in = as.in,
          .options = as.options,
          .out_dtype = decode.out_dtype,
          .batches = decode.batches,
          .heads = decode.heads,
          .groups = decode.groups,
          .queries = 1,
          .keys = decode.slots,
          .depth = decode.depth,
          .width = decode.width};
}

std::vector<Expectation> expect_decode(const Run& run) {
  const DecodeRun decode = read_decode(run);
  const reference::DecodeAsAttention as(decode.in, decode.options);
  const AttentionRun attention = as_attention(decode, as);
  const auto rows = static_cast<std::size_t>(decode.batches * decode.heads);
  const auto width = static_cast<std::size_t>(decode.width);
  Expectation o = bounded_output("o", rows * width), lse = bounded_output("lse", rows);
  const std::string steps = attention_steps("ik", decode.slots, kAttentionKeyBlock);
  o.blocks = {.axes = {"batch", "head", "e"},
              .extents = {1, 1, std::max<Index>(1, decode.width)},
              .steps = steps};
  lse.blocks = {.axes = {"batch", "head"}, .extents = {1, 1}, .steps = steps};

  reference::AttentionOptions exact = as.options;
  exact.p_dtype.reset();  // the bound covers the rounding, see expect_attention
  AttentionBounds bounds(attention);
  std::size_t at = 0;
  reference::attention_rows(as.in, exact, [&](const AttentionRow& row) {
    const RowBounds& b = bounds(row);
    put_o(o, at * width, row, b);
    put_lse(lse, at, row, b);
    ++at;
  });

  o.alternatives = decode_faults(run, "o");
  lse.alternatives = decode_faults(run, "lse");
  std::vector<Expectation> out;
  const auto add = [&](Expectation e, std::vector<Index> shape) {
    place(e, run, std::move(shape));
    out.push_back(std::move(e));
  };
  add(std::move(o), decode.o_shape());
  if (run.out.contains("lse")) add(std::move(lse), decode.lse_shape());
  if (decode.writes) {
    const auto shape = [](const Array& a) {
      return std::vector<Index>(a.shape().begin(), a.shape().end());
    };
    add(copied("k_cache", decode.k_cache), shape(decode.k_cache));
    add(copied("v_cache", decode.v_cache), shape(decode.v_cache));
  }
  return out;
}

}  // namespace kref
