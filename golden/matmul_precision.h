// SPDX-License-Identifier: Apache-2.0
// What an output that is wrong under the precision of its run may be right under: on a TPU the
// default is bf16, and which one a kernel took is easily mistaken.
#pragma once

#include <vector>

#include "golden/expectation.h"
#include "golden/run.h"

namespace kref {

// The other precisions of a validated run; none but for F32 inputs.
std::vector<Alternative> other_precisions(const Run& run);

}  // namespace kref
