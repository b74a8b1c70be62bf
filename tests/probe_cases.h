// SPDX-License-Identifier: Apache-2.0
// Probes of attention and decode, for tests of them.
#pragma once

#include "golden/probe.h"
#include "tests/attention_mutants.h"

namespace kref {

// What is asked for.
struct ProbeConfig {
  const char* name;
  const char* op;
  std::vector<NamedShape> shapes;
  nlohmann::json set;
};

inline const std::vector<ProbeConfig>& configs() {
  static const std::vector<ProbeConfig> all = {
      {"as it comes", "attention", {}, {{"causal", "top_left"}}},
      {"causal, window",
       "attention",
       {{"q", "f32[2,4,40,16]"}, {"k", "f32[2,2,40,16]"}, {"v", "f32[2,2,40,5]"}},
       {{"causal", "top_left"}, {"window", {9, nullptr}}}},
      {"short q, aligned at the bottom",
       "attention",
       {{"q", "bf16[1,6,24,16]"}, {"k", "bf16[1,2,45,16]"}},
       {{"causal", "bottom_right"}, {"scale", 0.25}}},
      {"lengths and segments, BTHD",
       "attention",
       {{"q", "f32[2,37,4,8]"},
        {"k", "f32[2,37,2,8]"},
        {"kv_lengths", "i32[2]"},
        {"q_lengths", "i32[2]"},
        {"q_segment_ids", "i32[2,37]"},
        {"kv_segment_ids", "i32[2,37]"}},
       {{"layout", "BTHD"}, {"scale", 0.5}}},
      {"both sides, mask, bias, sinks",
       "attention",
       {{"q", "f16[1,4,33,8]"},
        {"k", "f16[1,4,33,8]"},
        {"mask", "bool[1,4,33,33]"},
        {"bias", "f32[1,4,33,33]"},
        {"sinks", "f32[4]"}},
       {{"window", {5, 3}}, {"scale", 1.0}}},
      {"decode as it comes", "decode_attention", {}, nlohmann::json::object()},
      {"decode, window, new token",
       "decode_attention",
       {{"q", "bf16[3,4,16]"},
        {"k_cache", "bf16[3,50,2,16]"},
        {"k_new", "bf16[3,2,16]"},
        {"v_new", "bf16[3,2,16]"}},
       {{"window", {20, nullptr}}}},
  };
  return all;
}

inline constexpr ProbeKind kKinds[] = {ProbeKind::kUniform, ProbeKind::kSelect,
                                       ProbeKind::kPosition};

inline Run probe_of(const ProbeConfig& config, ProbeKind kind) {
  Run run;
  run.origin += "test";
  run.op += config.op;
  run.set = config.set;
  return probe_run(run, kind, config.shapes);
}

// A run with what its definition needs kept alive, and o of a kernel for it, rounded once.
struct Probed {
  Run run;
  std::optional<DecodeRun> decode = {};
  std::optional<DecodeAsAttention> as = {};

  explicit Probed(Run given) : run(std::move(given)) {
    if (run.op == "attention") return;
    decode = read_decode(run);
    as.emplace(decode->in, decode->options);
  }
  Probed(const Probed&) = delete;
  Kernel kernel() const {
    return as ? right_kernel(*decode, *as) : right_kernel(read_attention(run));
  }
  Array o(const Kernel& k) const {
    const auto request = request_of(k);
    const DType type = as ? decode->out_dtype : read_attention(run).out_dtype;
    const std::vector<Index> shape = as ? decode->o_shape() : read_attention(run).o_shape();
    return rounded(Array(type, shape), attention(request.first, request.second).o);
  }
  Array o() const { return o(kernel()); }
};

}  // namespace kref
