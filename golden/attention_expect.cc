// SPDX-License-Identifier: Apache-2.0
// What the outputs of an attention run ought to hold: value, bounds and blocks of every element.
#include <algorithm>

#include "golden/attention_faults.h"
#include "golden/attention_row.h"

namespace kref {
namespace {

using reference::AttentionRow;

// One block is what published kernels compute at a time: the rows of one q block of one head.
Blocks blocks(const AttentionRun& run, bool lse) {
  Blocks out{.axes = {"batch", "head", "iq"}, .extents = {1, 1, kAttentionQueryBlock}, .steps = ""};
  if (!lse) {
    if (run.options.layout == reference::Layout::kBTHD) {
      std::swap(out.axes[1], out.axes[2]);
      std::swap(out.extents[1], out.extents[2]);
    }
    out.axes.push_back("e");
    out.extents.push_back(std::max<Index>(1, run.width));
  }
  out.steps = attention_steps("ik", run.keys, kAttentionKeyBlock);
  return out;
}

}  // namespace

std::string attention_steps(const char* axis, Index size, Index block) {
  const Index last = cdiv(size, block) - 1;
  if (last < 0) return "";
  return std::string(axis) + "=0" + (last == 0 ? "" : ".." + std::to_string(last));
}

std::vector<Expectation> expect_attention(const Run& given) {
  const AttentionRun run = read_attention(given);
  const auto rows = static_cast<std::size_t>(run.batches * run.heads * run.queries);
  const auto width = static_cast<std::size_t>(run.width);
  Expectation o = bounded_output("o", rows * width), lse = bounded_output("lse", rows);
  o.blocks = blocks(run, false), lse.blocks = blocks(run, true);

  // Probabilities stay as they are: machines round them after different shifts, so the value in the
  // middle is the exact one, and the bound covers the rounding.
  reference::AttentionOptions exact = run.options;
  exact.p_dtype.reset();
  AttentionBounds bounds(run);
  std::size_t at = 0;
  reference::attention_rows(run.in, exact, [&](const AttentionRow& row) {
    const RowBounds& b = bounds(row);
    const auto first = static_cast<std::size_t>(
        reference::o_offset(exact.layout, run.heads, run.queries, run.width, row));
    put_o(o, first, row, b);
    put_lse(lse, at, row, b);
    ++at;
  });

  o.alternatives = attention_faults(given, "o");
  lse.alternatives = attention_faults(given, "lse");
  std::vector<Expectation> out;
  if (given.out.contains("o")) out.push_back(std::move(o));
  if (given.out.contains("lse")) out.push_back(std::move(lse));
  return out;
}

}  // namespace kref
