// SPDX-License-Identifier: Apache-2.0
// L144 of the collection of cases: a dispatch that falls back to the portable target, or a compiler
// for which Highway leaves targets out, goes unseen as long as results are all that is compared.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/simd_dispatch_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kref {
namespace HWY_NAMESPACE {

std::int64_t ChosenTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace kref
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/simd_targets.h"

namespace kref {
namespace {

HWY_EXPORT(ChosenTarget);

std::int64_t chosen() { return HWY_DYNAMIC_DISPATCH(ChosenTarget)(); }

TEST_CASE("the best target that this machine has is compiled in and in use") {
  const auto targets = hwy::SupportedAndGeneratedTargets();
  std::string names;
  for (const std::int64_t target : targets) names += std::string(" ") + hwy::TargetName(target);
  MESSAGE("targets here:", names, "; in use: ", std::string(hwy::TargetName(chosen())));
  // A better target is a smaller number.
  CHECK(chosen() == *std::min_element(targets.begin(), targets.end()));
#if HWY_ARCH_X86
  const auto has = [&](std::int64_t target) {
    return std::find(targets.begin(), targets.end(), target) != targets.end();
  };
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  CHECK(has(HWY_AVX3) == (avx512 && (HWY_DISABLED_TARGETS & HWY_AVX3) == 0));
  if (avx2)
    CHECK((has(HWY_AVX2) || HWY_AVX2 > HWY_STATIC_TARGET));  // -march=native drops lesser ones
#endif
}

TEST_CASE("a test of a target runs that target") {
  int count = 0;
  for_each_target([&] {
    const auto targets = hwy::SupportedAndGeneratedTargets();
    CHECK(targets.size() == 1);
    CHECK(chosen() == targets[0]);
    ++count;
  });
  CHECK(count >= 1);
}

}  // namespace
}  // namespace kref
#endif  // HWY_ONCE
