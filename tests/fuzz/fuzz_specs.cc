// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kref::fuzz::specs(data, size);
  return 0;
}
