// SPDX-License-Identifier: Apache-2.0
// Probes of attention and decode_attention.
#include <algorithm>
#include <cmath>

#include "golden/attention_op.h"
#include "golden/decode_op.h"
#include "golden/probe.h"

namespace kref {
namespace {

using reference::AttentionRow;
using reference::BiasOrder;
using reference::Causal;
using reference::Layout;

// Below every logit, so that a sink has no weight; above every one.
constexpr double kLowSink = -0x1p60, kHighSink = 0x1p60;

ProbeCode code_of(const AttentionRun& run, ProbeKind kind) {
  return {kind, run.dtype(), run.options.scale, run.groups, run.keys, run.depth, run.width};
}

// (b, head, row, column) of an index in [B, heads, rows, columns], or in layout kBTHD.
std::vector<Index> by_head(std::vector<Index> at, Layout layout) {
  if (layout == Layout::kBTHD) std::swap(at[1], at[2]);
  return at;
}

// What a row of `run` sees, one of them picked for each row: [B, H, T] as one; 0 where there is
// none.
std::vector<Index> targets(const AttentionRun& run) {
  std::vector<Index> out;
  reference::AttentionOptions plain = run.options;
  plain.p_dtype.reset();
  reference::attention_rows(run.in, plain, [&](const AttentionRow& row) {
    const auto n = static_cast<std::uint64_t>(row.keys.size());
    const auto number = static_cast<std::uint64_t>(row.query * 31 + row.head * 7 + row.batch + 1);
    const std::uint64_t mixed = number * 0x9E3779B97F4A7C15u >> 32;
    out.push_back(n == 0 ? 0 : row.keys[static_cast<std::size_t>(mixed % n)].index);
  });
  return out;
}

// Position selects by the bits of a key's number, select by its digits.
void check_depth(const Run& run, const AttentionRun& a, ProbeKind kind) {
  if (kind == ProbeKind::kUniform) return;
  if (a.options.scale == 0) refuse_run(run, "scale is 0: no probe but uniform selects a key then");
  const auto base = static_cast<double>(code_of(a, kind).base());
  Index needed = 0;
  for (double reached = 1; reached < static_cast<double>(a.keys); reached *= base) ++needed;
  if (needed <= a.depth) return;
  refuse_run(run, "probe ", name_of(kind), " of ", a.keys, " keys needs D = ", needed,
             " at least, found ", a.depth);
}

// Every element of o is a multiple of 2^-12 that the output's type holds.
void check_exact(const Run& run, const AttentionRun& a, ProbeKind kind) {
  reference::AttentionOptions plain = a.options;
  plain.p_dtype.reset();
  reference::attention_rows(a.in, plain, [&](const AttentionRow& row) {
    for (const double o : row.o) {
      const double stored = with_dtype(
          a.out_dtype, [&]<class T>() { return static_cast<double>(static_cast<T>(o)); });
      const bool dyadic = o * 4096 == std::floor(o * 4096) && stored == o;
      if (dyadic || std::isnan(o)) continue;
      refuse_run(run, "probe ", name_of(kind), ": o of batch ", row.batch, ", head ", row.head,
                 ", row ", row.query, " is ", o, " over ", row.keys.size(),
                 " keys, no multiple of 2^-12 that ", name_of(a.out_dtype),
                 " holds; take a wider type or fewer keys",
                 kind == ProbeKind::kUniform
                     ? ", rows that see neighbouring keys, or --probe select"
                     : ", and no soft_cap or bias that brings the logits together");
    }
  });
}

// The position of row i.
Index position(const AttentionRun& a, Index i) {
  const bool bottom = a.options.causal == Causal::kBottomRight;
  return std::max<Index>(0, bottom ? a.keys - a.queries + i : i);
}

// Lengths that leave something to be read past them, and a full one where there are several.
double length(Index b, Index batches, Index most) {
  if (most == 0) return 0;
  if (batches > 1 && b == batches - 1) return static_cast<double>(most);
  return static_cast<double>(std::max<Index>(1, most - most / 4 - b * (most / 2) / batches));
}

// Everything but q, k and v. What is seen is a run of neighbours.
void fill_rules(Run& run, const AttentionRun& a, ProbeKind kind,
                const std::set<std::string>& made) {
  const auto fill = [&](const char* name, auto at) {
    if (made.contains(name)) fill_probe(run, name, at);
  };
  using At = std::vector<Index>;
  const auto segment = [&](Index b, Index at) {
    return static_cast<double>(at / (a.keys / (2 + b % 3) + 1));
  };
  fill("q_segment_ids", [&](const At& at) { return segment(at[0], position(a, at[1])); });
  fill("kv_segment_ids", [&](const At& at) { return segment(at[0], at[1]); });
  fill("q_lengths", [&](const At& at) { return length(at[0], a.batches, a.queries); });
  fill("kv_lengths", [&](const At& at) { return length(at[0], a.batches, a.keys); });
  fill("mask", [&](const At& at) {
    return at[3] >= std::min<Index>(a.keys - 1, (at[0] + at[1] + at[2]) % 3) ? 1.0 : 0.0;
  });
  // Under select a bias outweighs all positions at one key of each row.
  const double scale =
      a.options.bias_order == BiasOrder::kBeforeScale ? double{a.options.scale} : 1.0;
  const double step = std::exp2(
      std::ceil(std::log2(512 * static_cast<double>(a.keys + 1)) - std::log2(std::fabs(scale))));
  fill("bias", [&](const At& at) {
    const bool chosen = (at[0] * 3 + at[1] * 5 + at[2] * 7 + 1) % a.keys == at[3];
    return kind == ProbeKind::kSelect && chosen ? std::copysign(step, scale) : 0.0;
  });
  fill("sinks", [&](const At& at) {
    const bool high = kind == ProbeKind::kSelect && a.heads > 1 && at[0] == a.heads - 1;
    return high ? kHighSink : kLowSink;
  });
}

}  // namespace

Run probe_attention(const Run& given, ProbeKind kind, const std::set<std::string>& made) {
  Run run = given;
  AttentionRun a = read_attention(run);
  check_depth(run, a, kind);
  fill_rules(run, a, kind, made);
  a = read_attention(run);
  const ProbeCode code = code_of(a, kind);
  const Layout layout = a.options.layout;
  using At = std::vector<Index>;
  const std::vector<Index> target = targets(a);
  const auto fill = [&](const char* name, auto at) {
    if (!made.contains(name)) return;
    fill_probe(run, name, [&](const At& i) { return at(by_head(i, layout)); });
  };
  fill("q", [&](const At& i) {
    const Index row = (i[0] * a.heads + i[1]) * a.queries + i[2];
    return code.q(i[1], target[static_cast<std::size_t>(row)], i[3]);
  });
  fill("k", [&](const At& i) { return code.k(i[1], i[2], i[3]); });
  fill("v", [&](const At& i) { return code.v(i[0], i[1], i[2], i[3]); });
  check_exact(run, read_attention(run), kind);
  return run;
}

Run probe_decode(const Run& given, ProbeKind kind, const std::set<std::string>& made) {
  Run run = given;
  using At = std::vector<Index>;
  const auto fill = [&](const char* name, auto at) {
    if (made.contains(name)) fill_probe(run, name, at);
  };
  const Array& cache = run.in.at("k_cache");
  const Index batches = cache.extent(0), slots = cache.extent(1);
  fill("lengths", [&](const At& i) { return length(i[0], batches, slots); });
  const DecodeRun decode = read_decode(run);
  const auto as_attention_run = [](const DecodeRun& d, const auto& visit) {
    const reference::DecodeAsAttention as(d.in, d.options);
    return visit(as_attention(d, as));
  };
  std::vector<Index> target;
  ProbeCode code{};
  as_attention_run(decode, [&](const AttentionRun& a) {
    check_depth(run, a, kind);
    target = targets(a);
    code = code_of(a, kind);
  });
  const auto last = [&](Index b) {
    const auto lengths = run.in.at("lengths").elements<std::int32_t>();
    return static_cast<Index>(lengths[static_cast<std::size_t>(b)]) - 1;
  };
  fill("q", [&](const At& i) {
    return code.q(i[1], target[static_cast<std::size_t>(i[0] * decode.heads + i[1])], i[2]);
  });
  fill("k_cache", [&](const At& i) { return code.k(i[2], i[1], i[3]); });
  // The slot of a new token held another one before.
  fill("v_cache", [&](const At& i) {
    const bool stale = decode.writes && i[1] == last(i[0]);
    return code.v(i[0], i[2], stale ? (i[1] + slots / 2 + 1) % slots : i[1], i[3]);
  });
  fill("k_new", [&](const At& i) { return code.k(i[1], last(i[0]), i[2]); });
  fill("v_new", [&](const At& i) { return code.v(i[0], i[1], last(i[0]), i[2]); });
  as_attention_run(read_decode(run), [&](const AttentionRun& a) { check_exact(run, a, kind); });
  return run;
}

}  // namespace kref
