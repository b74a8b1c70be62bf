// SPDX-License-Identifier: Apache-2.0
// Runs a test once for each SIMD target that is compiled in and that this machine has.
#pragma once

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace kref {

namespace detail {

// Says once which targets are compiled in and cannot be tried on this machine.
inline void name_skipped_targets() {
  [[maybe_unused]] static const bool said = [] {
    const std::int64_t skipped = HWY_TARGETS & ~hwy::SupportedTargets();
    for (std::int64_t rest = skipped; rest != 0; rest &= rest - 1) {
      std::printf("SIMD target %s: not tested, this machine does not have it\n",
                  hwy::TargetName(rest & -rest));
    }
    return true;
  }();
}

}  // namespace detail

// Tests of what is compiled for AVX3_DL define HWY_WANT_AVX3_DL first, as kernels/dot_s32.cc does;
// other verbs run portably then. Calls fn() with every target in turn, the portable one included; a
// failure names the target.
template <class F>
void for_each_target(F&& fn) {
  struct Restore {
    ~Restore() { hwy::SetSupportedTargetsForTest(0); }
  } restore;
  detail::name_skipped_targets();
  int count = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    INFO("target ", std::string(hwy::TargetName(target)));
    fn();
    ++count;
  }
  hwy::SetSupportedTargetsForTest(0);
  // Vectors and the portable code, where there are vectors.
  const bool vectors = (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)) != 0;
  CHECK(count >= (vectors ? 2 : 1));
}

}  // namespace kref
