// SPDX-License-Identifier: Apache-2.0
// What wrong attention kernels do, for the judge to recognise: causal off by one, a window one too
// long, the wrong kv head, a forgotten scale, ...
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "golden/expectation.h"
#include "golden/wrong_attention.h"

namespace kref {

// One fault: what it is called, which of that name, and how it makes a right kernel wrong.
struct AttentionFault {
  std::string pattern, detail;  // "window one too long", "the left side shows one key more"
  std::function<void(WrongAttention&)> make;
};

// The faults that would change a rule that `kernel` has. `output`: "o" or "lse". A wrong kv head is
// not among them: which one has to be looked up.
std::vector<AttentionFault> faults_of(const WrongAttention& kernel, const std::string& output);

// The alternatives of an output of a validated run, all of them faults. Cheap until one is tried.
std::vector<Alternative> attention_faults(const Run& run, const std::string& output);
std::vector<Alternative> decode_faults(const Run& run, const std::string& output);

}  // namespace kref
