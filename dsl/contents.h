// SPDX-License-Identifier: Apache-2.0
// The contents of the arrays that a program writes, kept and put back. Internal to dsl/.
#pragma once

#include <vector>

#include "dsl/program.h"

namespace kref::detail {

// Dense, one entry an operand; of what is not written empty.
using Contents = std::vector<std::vector<std::byte>>;

Contents save(const Program& program);
void restore(const Program& program, const Contents& contents);

}  // namespace kref::detail
