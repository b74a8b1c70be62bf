// SPDX-License-Identifier: Apache-2.0
// What the outputs of an attention.vjp run ought to hold: value, bounds and blocks of every
// element.
#include "golden/attention_vjp_faults.h"
#include "golden/attention_vjp_sums.h"

namespace kref {

std::vector<Expectation> expect_attention_vjp(const Run& given) {
  const AttentionVjpRun run = read_attention_vjp(given);
  const Index per_group = run.primal.groups == 0 ? 1 : run.primal.heads / run.primal.groups;
  AttentionVjpBounds bounds(run);
  GradientSums sums(given, run);
  reference::attention_vjp_rows(
      run.primal.in, run.ct, run.primal.options,
      [&](const reference::AttentionRow& row, const reference::AttentionRowGradient& g) {
        const Index kv_head = row.head / per_group;
        sums.add(row, g, bounds(row, g, kv_head), kv_head);
      });
  std::vector<Expectation> out = sums.expectations(bounds.accumulator());
  for (Expectation& e : out) e.alternatives = attention_vjp_faults(given, e.output);
  return out;
}

}  // namespace kref
