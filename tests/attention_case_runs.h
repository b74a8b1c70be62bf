// SPDX-License-Identifier: Apache-2.0
// The cases of flash_attention_cases.h as runs.
#pragma once

#include <string>

#include "golden/operation.h"
#include "tests/flash_attention_cases.h"

namespace kref {

// The inputs and options of a case as a run of that operation.
inline Run request_of(const AttentionCase& c, const char* op) {
  Run run;
  run.origin = "test", run.op = op;
  run.in = {{"q", c.q}, {"k", c.k}, {"v", c.v}};
  if (c.has_bias) run.in["bias"] = c.bias;
  if (c.has_mask) run.in["mask"] = c.mask;
  if (c.has_segments) {
    run.in["q_segment_ids"] = c.q_segments, run.in["kv_segment_ids"] = c.kv_segments;
  }
  if (c.has_q) run.in["q_lengths"] = c.q_lengths;
  if (c.has_kv) run.in["kv_lengths"] = c.kv_lengths;
  if (c.has_sinks) run.in["sinks"] = c.sinks;
  const AttentionOptions& o = c.options;
  const auto at = [](auto word, std::initializer_list<const char*> words) {
    return std::string(words.begin()[static_cast<std::size_t>(word)]);
  };
  const auto side = [](std::optional<Index> s) {
    return s ? nlohmann::json(*s) : nlohmann::json();
  };
  run.set["scale"] = static_cast<double>(o.scale);
  run.set["causal"] = at(static_cast<Causal>(o.causal), {"none", "top_left", "bottom_right"});
  run.set["layout"] = at(o.layout, {"BHTD", "BTHD"});
  run.set["bias_order"] = at(o.bias_order, {"after_scale", "before_scale"});
  run.set["window"] = nlohmann::json::array({side(o.window.left), side(o.window.right)});
  if (o.soft_cap) run.set["soft_cap"] = *o.soft_cap;
  run.set["fully_masked"] = at(o.fully_masked, {"zero", "uniform", "nan"});
  run.set["negative_segments"] = at(o.negative_segments, {"match", "never"});
  run.set["p_dtype"] = name_of(*o.p_dtype);
  run.set["lse_base"] = at(o.lse_base, {"e", "2"});
  run.set["out_dtype"] = name_of(c.out_dtype);
  return run;
}

}  // namespace kref
