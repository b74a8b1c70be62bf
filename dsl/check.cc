// SPDX-License-Identifier: Apache-2.0
#include "dsl/check.h"

#include <cstdio>
#include <cstdlib>

namespace kref::detail {

void internal_fault(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kref: internal fault: %s is false at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace kref::detail
