// SPDX-License-Identifier: Apache-2.0
// Reads an attention run: tensors and options, each rule of runs.md refused by name.
#include <algorithm>

#include "golden/attention_op.h"
#include "golden/attention_options.h"
#include "golden/dims.h"

namespace kref {
namespace {

using reference::AttentionOptions;

AttentionOptions read_options(const Run& run) {
  using namespace reference;
  const Options options(run);
  AttentionOptions out{
      .scale = options.required_number("scale"),
      .causal = read_word<Causal>(options, "causal", {"none", "top_left", "bottom_right"})};
  out.layout = read_word<Layout>(options, "layout", {"BHTD", "BTHD"});
  out.bias_order = read_word<BiasOrder>(options, "bias_order", {"after_scale", "before_scale"});
  out.window = read_window(options);
  out.soft_cap = read_soft_cap(options);
  out.fully_masked = read_word<FullyMasked>(options, "fully_masked", {"zero", "uniform", "nan"});
  out.negative_segments =
      read_word<NegativeSegments>(options, "negative_segments", {"match", "never"});
  out.p_dtype = options.dtype("p_dtype", kFloatTypes).value_or(DType::kF32);
  out.lse_base = read_word<LogBase>(options, "lse_base", {"e", "2"});
  return out;
}

void check_dtypes(const Run& run) {
  check_input_dtype(run, "q", kFloatTypes);
  const DType q = run.in.at("q").dtype();
  check_input_dtype(run, "k", {q}, ", that of in.q");
  check_input_dtype(run, "v", {q}, ", that of in.q");
  check_input_dtype(run, "bias", {DType::kF32, q});
  check_input_dtype(run, "mask", {DType::kBool}, " (true = visible)");
  for (const char* name : {"q_segment_ids", "kv_segment_ids", "q_lengths", "kv_lengths"}) {
    check_input_dtype(run, name, {DType::kI32});
  }
  check_input_dtype(run, "sinks", {DType::kF32});
}

void check_lengths(const Run& run, const char* name, char letter, Index most) {
  const auto at = run.in.find(name);
  if (at == run.in.end()) return;
  const auto lengths = at->second.elements<std::int32_t>();
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] >= 0 && lengths[b] <= most) continue;
    refuse_run(run, "in.", name, '[', b, "] is ", lengths[b], ", expected 0 to ", letter, " = ",
               most);
  }
}

void check_pair(const Run& run, const char* a, const char* b) {
  if (run.in.contains(a) == run.in.contains(b)) return;
  const bool first = run.in.contains(a);
  refuse_run(run, "in.", first ? b : a, " is missing; in.", first ? a : b, " needs it");
}

std::optional<ArrayRef> optional(const Run& run, const char* name) {
  const auto at = run.in.find(name);
  return at == run.in.end() ? std::nullopt : std::optional<ArrayRef>(at->second.ref());
}

}  // namespace

std::string attention_dims(const char* dims, reference::Layout layout) {
  std::string out = dims;  // letters at 0, 2, 4, 6
  if (layout == reference::Layout::kBTHD) std::swap(out[2], out[4]);
  return out;
}

std::vector<Index> AttentionRun::o_shape() const {
  if (options.layout == reference::Layout::kBTHD) return {batches, queries, heads, width};
  return {batches, heads, queries, width};
}

AttentionRun read_attention(const Run& run) {
  const Array &q = run.in.at("q"), &k = run.in.at("k"), &v = run.in.at("v");
  check_dtypes(run);
  check_pair(run, "q_segment_ids", "kv_segment_ids");
  AttentionRun out{.in = {.q = q.ref(), .k = k.ref(), .v = v.ref()}, .options = read_options(run)};
  const reference::Layout layout = out.options.layout;

  Dims dims(run);
  dims.bind("in.q", q, attention_dims("B H T D", layout));
  dims.bind("in.k", k, attention_dims("B G S D", layout));
  dims.bind("in.v", v, attention_dims("B G S E", layout));
  constexpr std::pair<const char*, const char*> kOptional[] = {{"bias", "B|1 H|1 T|1 S"},
                                                               {"mask", "B|1 H|1 T|1 S"},
                                                               {"q_segment_ids", "B T"},
                                                               {"kv_segment_ids", "B S"},
                                                               {"q_lengths", "B"},
                                                               {"kv_lengths", "B"},
                                                               {"sinks", "H"}};
  for (const auto& [name, letters] : kOptional) {
    const auto at = run.in.find(name);
    if (at != run.in.end()) dims.bind(std::string("in.") + name, at->second, letters);
  }
  out.batches = dims['B'], out.heads = dims['H'], out.groups = dims['G'];
  out.queries = dims['T'], out.keys = dims['S'], out.depth = dims['D'], out.width = dims['E'];
  if (out.groups == 0 ? out.heads != 0 : out.heads % out.groups != 0) {
    refuse_run(run, "in.q has H = ", out.heads, " heads, not a multiple of G = ", out.groups,
               " of in.k and in.v");
  }
  check_lengths(run, "q_lengths", 'T', out.queries);
  check_lengths(run, "kv_lengths", 'S', out.keys);
  if (out.options.fully_masked == reference::FullyMasked::kUniform && out.keys == 0) {
    refuse_run(run, "option fully_masked is \"uniform\", but S = 0 leaves no key to average");
  }

  out.in.bias = optional(run, "bias"), out.in.mask = optional(run, "mask");
  out.in.q_segment_ids = optional(run, "q_segment_ids");
  out.in.kv_segment_ids = optional(run, "kv_segment_ids");
  out.in.q_lengths = optional(run, "q_lengths"), out.in.kv_lengths = optional(run, "kv_lengths");
  out.in.sinks = optional(run, "sinks");
  out.out_dtype = Options(run).dtype("out_dtype", kFloatTypes).value_or(q.dtype());
  return out;
}

}  // namespace kref
