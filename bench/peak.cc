// SPDX-License-Identifier: Apache-2.0
#include "bench/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#ifndef KREF_BENCH_TWELVE
// Twelve chains: two units times a latency of four or five cycles, with some to spare, in sixteen
// registers. Written out since an array of vectors would be kept in memory.
#define KREF_BENCH_TWELVE(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define KREF_BENCH_START(i) auto a##i = hn::Set(d, static_cast<Lane>(seed + i));
#define KREF_BENCH_FMA(i) a##i = hn::MulAdd(a##i, factor, term);
// `left` is made unknown again each time, else the product is formed once and added up.
#define KREF_BENCH_PAIRS(i)          \
  asm volatile("" : "+x"(left.raw)); \
  a##i = hn::ReorderWidenMulAccumulate(d, left, right, a##i, unused);
#define KREF_BENCH_SUM(i) sum = hn::Add(sum, a##i);
#endif

HWY_BEFORE_NAMESPACE();
namespace kref::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A seed that the compiler cannot see, and a place where the result goes: nothing is folded away.
volatile int hidden_seed = 1;
volatile double sink;

double FmaRounds(Index rounds) {
  using Lane = float;
  const hn::ScalableTag<float> d;
  const int seed = hidden_seed;
  const auto factor = hn::Set(d, 0.999f * static_cast<float>(seed));
  const auto term = hn::Set(d, 0.001f * static_cast<float>(seed));
  KREF_BENCH_TWELVE(KREF_BENCH_START)
  for (Index r = 0; r < rounds; ++r) {
    KREF_BENCH_TWELVE(KREF_BENCH_FMA)
  }
  auto sum = hn::Zero(d);
  KREF_BENCH_TWELVE(KREF_BENCH_SUM)
  sink = static_cast<double>(hn::GetLane(sum));
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

double ExactInt8Rounds(Index rounds) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return FmaRounds(rounds);  // has no pairwise product; its table rows are of no interest
#else
  using Lane = std::int32_t;
  const hn::ScalableTag<std::int32_t> d;
  const hn::Repartition<std::int16_t, decltype(d)> d16;
  const int seed = hidden_seed;
  auto left = hn::Set(d16, static_cast<std::int16_t>(seed));
  const auto right = hn::Set(d16, static_cast<std::int16_t>(seed + 1));
  auto unused = hn::Zero(d);
  KREF_BENCH_TWELVE(KREF_BENCH_START)
  for (Index r = 0; r < rounds; ++r) {
    KREF_BENCH_TWELVE(KREF_BENCH_PAIRS)
  }
  auto sum = hn::Zero(d);
  KREF_BENCH_TWELVE(KREF_BENCH_SUM)
  sink = static_cast<double>(hn::GetLane(sum));
  return static_cast<double>(rounds) * 12 * 4 * static_cast<double>(hn::Lanes(d));
#endif
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace kref::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kref::bench {

HWY_EXPORT(FmaRounds);
HWY_EXPORT(ExactInt8Rounds);
HWY_EXPORT(Target);

double fma_rounds(Index rounds) { return HWY_DYNAMIC_DISPATCH(FmaRounds)(rounds); }
double exact_int8_rounds(Index rounds) { return HWY_DYNAMIC_DISPATCH(ExactInt8Rounds)(rounds); }
const char* simd_target() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace kref::bench
#endif
