// SPDX-License-Identifier: Apache-2.0
// What flash_attention refuses, and the shapes that need no kernel.
#include "kernels/flash_attention.h"

#include <algorithm>

#include "dsl/overlap.h"
#include "dsl/work_meter.h"
#include "kernels/attention_check.h"
#include "kernels/attention_work.h"
#include "kernels/flash_attention_grid.h"

namespace kref {
namespace {

using detail::AttentionSizes;

constexpr const char* kWho = "flash_attention";

// No result may lie in memory that is still read.
void check_outputs(const AttentionInputs& in, const MutableArrayRef& o,
                   const std::optional<Ref<float, 3>>& lse) {
  for (const auto& [name, input] : detail::named_inputs(in)) {
    KREF_CHECK(!overlap(input, o), "flash_attention: o ", to_string(o), " overlaps ", name);
    KREF_CHECK(!lse || !overlap(input, MutableArrayRef(*lse)), "flash_attention: lse overlaps ",
               name);
  }
  KREF_CHECK(!lse || !overlap(ArrayRef(*lse), o), "flash_attention: lse overlaps o");
}

}  // namespace

AttentionTile default_attention_tile(Index heads, Index queries, Index keys) {
  // Making a block of k and v ready costs as much as a few dozen rows of products, so blocks have
  // many rows, but not so many that threads have too few of them: 16 blocks where those have 128
  // rows or more, four where they have 64, which take a tenth longer. Few keys, since half of a
  // block on the causal diagonal is work for nothing; the scores, 512 x 128 f32, stay in a
  // second-level cache.
  AttentionTile t{512, 128};
  const auto blocks = [&] { return heads * cdiv(queries, t.q); };
  while ((t.q > 128 && blocks() < 16) || (t.q > 64 && blocks() < 4)) t.q /= 2;
  return {std::clamp<Index>(queries, 1, t.q), std::clamp<Index>(keys, 1, t.k)};
}

void flash_attention(const AttentionInputs& given, const MutableArrayRef& o_given,
                     const std::optional<Ref<float, 3>>& lse, const AttentionOptions& options,
                     const AttentionTile& tile) {
  AttentionInputs in = given;
  const AttentionSizes n = detail::check_attention(kWho, in, options);
  const MutableArrayRef o = detail::by_heads(o_given, options.layout);
  detail::check_dtype(kWho, "o", o, is_float(o.dtype), "a float type");
  detail::check_shape(kWho, "o", o, {n.batches, n.heads, n.queries, n.width});
  if (lse) detail::check_shape(kWho, "lse", *lse, {n.batches, n.heads, n.queries});
  if (!detail::shapes_only()) check_outputs(in, o, lse);
  const AttentionTile t = detail::checked_tile(
      kWho, tile, default_attention_tile(n.batches * n.heads, n.queries, n.keys), n);
  if (WorkMeter* const meter = detail::work_meter(); meter != nullptr) {
    meter->attention(detail::attention_work(in, n, options));
  }
  if (n.batches * n.heads * n.queries == 0 || detail::shapes_only()) return;
  const MeterScope unmetered(nullptr);

  std::vector<Array> kept;
  in = detail::without_empty(in, n, kept);
  if (n.width > 0) return detail::attention_grid(in, o, lse, options, t);
  const Index shape[] = {n.batches, n.heads, n.queries, 1};
  detail::attention_grid(in, Array(o.dtype, shape).mutable_ref(), lse, options, t);
}

}  // namespace kref
