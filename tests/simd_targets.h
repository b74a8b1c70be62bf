// SPDX-License-Identifier: Apache-2.0
// Runs a test once for each SIMD target that is compiled in and that this machine has.
#pragma once

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>

namespace kref {

// Calls fn() with every target in turn, the portable one included; a failure names the target.
template <class F>
void for_each_target(F&& fn) {
  struct Restore {
    ~Restore() { hwy::SetSupportedTargetsForTest(0); }
  } restore;
  int count = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    INFO("target ", std::string(hwy::TargetName(target)));
    fn();
    ++count;
  }
  CHECK(count > 0);
}

}  // namespace kref
