// SPDX-License-Identifier: Apache-2.0
// The operation `collective_matmul` of run files (spec/runs.md section 3): a sharded matmul whose
// gather or reduce-scatter over one axis goes round a ring. Its numbers are those of matmul.
#pragma once

#include "golden/operation.h"

namespace kref {

// The declaration that operations() lists.
Operation collective_matmul_operation();

}  // namespace kref
