// SPDX-License-Identifier: Apache-2.0
// Reads a decode_attention run: tensors, options and placement, each rule of runs.md refused by
// name.
#include "golden/attention_options.h"
#include "golden/decode_op.h"
#include "golden/dims.h"
#include "kernels/kv_cache.h"

namespace kref {
namespace {

using reference::DecodeOptions;
using reference::FullyMasked;

DecodeOptions read_options(const Run& run) {
  const Options options(run);
  DecodeOptions out{.scale = options.required_number("scale")};
  out.window = read_window(options);
  out.soft_cap = read_soft_cap(options);
  out.fully_masked = read_word<FullyMasked>(options, "fully_masked", {"zero", "uniform", "nan"});
  out.p_dtype = options.dtype("p_dtype", kFloatTypes).value_or(DType::kF32);
  return out;
}

void check_dtypes(const Run& run) {
  check_input_dtype(run, "q", kFloatTypes);
  const DType q = run.in.at("q").dtype();
  for (const char* name : {"k_cache", "v_cache", "k_new", "v_new"}) {
    check_input_dtype(run, name, {q}, ", that of in.q");
  }
  check_input_dtype(run, "lengths", {DType::kI32});
}

void check_lengths(const Run& run, const DecodeRun& decode) {
  const auto lengths = run.in.at("lengths").elements<std::int32_t>();
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0 || lengths[b] > decode.slots) {
      refuse_run(run, "in.lengths[", b, "] is ", lengths[b], ", expected 0 to S = ", decode.slots);
    }
    if (lengths[b] > 0) continue;
    if (decode.writes) {
      refuse_run(run, "in.lengths[", b,
                 "] is 0, but in.k_new is given: lengths count the new token");
    }
    if (decode.options.fully_masked == FullyMasked::kUniform) {
      refuse_run(run, "option fully_masked is \"uniform\", but in.lengths[", b,
                 "] is 0, which leaves no key to average");
    }
  }
}

PartitionSpec spec_of(const std::map<std::string, PartitionSpec>& specs, const char* name) {
  const auto at = specs.find(name);
  return at == specs.end() ? PartitionSpec() : at->second;
}

}  // namespace

DecodeRun read_decode(const Run& run) {
  check_dtypes(run);
  DecodeRun out{.in = {}, .options = read_options(run)};
  const Array &q = run.in.at("q"), &lengths = run.in.at("lengths");
  Dims dims(run);
  dims.bind("in.q", q, "B H D");
  dims.bind("in.k_cache", run.in.at("k_cache"), "B S G D");
  dims.bind("in.v_cache", run.in.at("v_cache"), "B S G E");
  dims.bind("in.lengths", lengths, "B");
  out.writes = run.in.contains("k_new");
  if (out.writes != run.in.contains("v_new")) {
    refuse_run(run, "in.", out.writes ? "v_new" : "k_new", " is missing; in.",
               out.writes ? "k_new" : "v_new", " needs it");
  }
  if (out.writes) {
    dims.bind("in.k_new", run.in.at("k_new"), "B G D");
    dims.bind("in.v_new", run.in.at("v_new"), "B G E");
  }
  out.batches = dims['B'], out.heads = dims['H'], out.groups = dims['G'], out.slots = dims['S'];
  out.depth = dims['D'], out.width = dims['E'];
  if (out.groups == 0 ? out.heads != 0 : out.heads % out.groups != 0) {
    refuse_run(run, "in.q has H = ", out.heads, " heads, not a multiple of G = ", out.groups,
               " of the caches");
  }
  check_lengths(run, out);
  out.out_dtype = Options(run).dtype("out_dtype", kFloatTypes).value_or(q.dtype());
  out.k_cache = run.in.at("k_cache"), out.v_cache = run.in.at("v_cache");
  if (out.writes) {
    out.k_cache = with_token("k_new", out.k_cache, run.in.at("k_new"), lengths);
    out.v_cache = with_token("v_new", out.v_cache, run.in.at("v_new"), lengths);
  }
  out.in = {.q = q, .k_cache = out.k_cache, .v_cache = out.v_cache, .lengths = lengths};
  return out;
}

void check_decode_placement(const Run& run, const DecodeRun& decode) {
  if (!run.mesh) return;
  try {
    for (const auto& [name, spec] : run.in_specs) {
      const auto at = run.in.find(name);
      if (at != run.in.end()) check_spec(spec, at->second.shape(), *run.mesh, "in_specs." + name);
    }
  } catch (const Error& e) {
    refuse_run(run, e.what());
  }
  const PartitionSpec q = spec_of(run.in_specs, "q");
  if (q[1].size() != 1 || !(q == PartitionSpec{none, q[1][0]})) {
    refuse_run(run, "in_specs.q is ", to_string(q),
               ", expected P(None, AXIS): with a mesh its heads are sharded over one axis");
  }
  const std::string axis = q[1][0];
  const PartitionSpec heads{none, axis}, batch{axis};
  const auto expect = [&](const char* where, const char* name, const PartitionSpec& found,
                          const PartitionSpec& expected, const char* why) {
    if (found == expected) return;
    refuse_run(run, where, name, " is ", to_string(found), ", expected ", to_string(expected), why);
  };
  for (const char* name : {"k_cache", "v_cache"}) {
    expect("in_specs.", name, spec_of(run.in_specs, name), batch,
           ": caches are sharded on the batch, over the axis of q's heads");
  }
  expect("in_specs.", "lengths", spec_of(run.in_specs, "lengths"), PartitionSpec(),
         ": every device needs them");
  if (decode.writes) {
    for (const char* name : {"k_new", "v_new"}) {
      expect("in_specs.", name, spec_of(run.in_specs, name), heads, ", as in.q");
    }
  }
  const Index devices = run.mesh->size(axis);
  const std::pair<const char*, Index> sizes[] = {
      {"B", decode.batches}, {"H", decode.heads}, {"G", decode.writes ? decode.groups : 0}};
  for (const auto& size : sizes) {
    if (size.second % devices == 0) continue;
    refuse_run(run, size.first, " = ", size.second, " is not divisible by the ", devices,
               " devices along axis ", axis);
  }
  for (const char* name : {"o", "lse", "k_cache", "v_cache"}) {
    const auto at = run.out_specs.find(name);
    const bool given = at != run.out_specs.end();
    if (!given && !run.out.contains(name)) continue;
    if (given && !at->second.unreduced.empty()) {
      refuse_run(run, "out_specs.", name, " is unreduced, but nothing is summed over devices");
    }
    // lse may leave on every device: nothing says that it goes with o.
    if (std::string_view(name) == "lse" && (!given || at->second.spec == PartitionSpec())) continue;
    const bool cache = std::string_view(name).ends_with("cache");
    expect("out_specs.", name, given ? at->second.spec : PartitionSpec(), cache ? batch : heads,
           cache ? ", the spec of the caches" : ", the spec of q");
  }
}

}  // namespace kref
