// SPDX-License-Identifier: Apache-2.0
// The cases of attention_vjp_cases.h as runs.
#pragma once

#include "tests/attention_case_runs.h"
#include "tests/attention_vjp_cases.h"

namespace kref {

// Inputs, cotangents and options.
inline Run request_of(const AttentionVjpCase& c) {
  Run run = request_of(c, "attention.vjp");
  run.in["ct.o"] = c.ct_o;
  if (c.has_ct_lse) run.in["ct.lse"] = c.ct_lse;
  return run;
}

}  // namespace kref
