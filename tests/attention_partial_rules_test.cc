// SPDX-License-Identifier: Apache-2.0
// What of partial results of attention is judged, and what is refused.
#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "golden/partial.h"
#include "tests/attention_dumps.h"
#include "tests/refusal.h"

namespace kref {
namespace {

TEST_CASE("rows that have seen no key may hold anything, others must not") {
  Run run = random_run({{"causal", "top_left"}, {"window", {2, nullptr}}});
  PartialStates states = states_of({.block = 8}, run);
  const Judged right = judged(run, states);
  CHECK(right.partial.ok());
  // Rows 10 .. 23 see nothing of block 0, and 18 .. 23 nothing of block 1: of 8 heads.
  CHECK(right.partial.unseen == 8 * (14 + 6));
  const auto set = [&](Index j, Index row, float to) {
    for (Index e = 0; e < 6; ++e) {
      states.arrays.at("o")
          .mutable_elements<float>()[static_cast<std::size_t>((j * 8 * 24 + row) * 6 + e)] = to;
    }
  };
  set(0, 12, std::numeric_limits<float>::quiet_NaN());
  set(1, 18, 1e30f);
  CHECK(judged(run, states).partial.ok());
  set(1, 12, std::numeric_limits<float>::quiet_NaN());
  const Judged wrong = judged(run, states);
  CHECK(wrong.partial.wrong == 6);
  CHECK(wrong.partial.first->block == 1);
  // A denominator of 0 does not divide away what the row ought to hold.
  PartialStates raw = states_of({.block = 8, .raw = true}, run);
  raw.arrays["l"] = Array(DType::kF32, std::vector<Index>{4, 2, 4, 24});
  CHECK(judged(run, raw).partial.wrong == judged(run, raw).partial.elements);
}

TEST_CASE("any shift is right, and acc in a narrow type is within its rounding") {
  Run run = random_run({{"causal", "bottom_right"}});
  DumpingKernel kernel{.block = 7, .raw = true};
  kernel.shift = 3;
  PartialStates states = states_of(kernel, run);
  CHECK(judged(run, states).partial.ok());
  const Array acc = states.arrays.at("acc");
  std::vector<double> values;
  for (Index i = 0; i < acc.size(); ++i) values.push_back(acc.at(i));
  states.arrays["acc"] =
      rounded_array(DType::kBF16, {acc.shape().begin(), acc.shape().end()}, values);
  const Judged narrow = judged(run, states);
  CHECK(narrow.partial.ok());
  CHECK(narrow.partial.ratio > 0.3);
}

TEST_CASE(
    "a block of more keys than S / N departs at the first, and the report tells what was taken") {
  Run run = random_run({{"causal", "none"}});
  PartialStates states = states_of({.block = 12}, run);
  CHECK(judged(run, states).partial.ok());
  states.block.reset();
  const PartialVerdict found = judged(run, states).partial;
  REQUIRE(!found.ok());
  CHECK(found.block_keys == 10);
  const char* const line = "  keys a block taken to be S / N = 10: say with --block-kv where they";
  CHECK(says(partial_report(found, true), line));
  states.block = 11;
  CHECK(partial_report(judged(run, states).partial, true).find("keys a block") ==
        std::string::npos);
  // Where the first block is right so is its size.
  states = states_of({.block = 10}, run);
  states.block.reset();
  CHECK(judged(run, states).partial.ok());
  states.arrays.at("o").mutable_elements<float>().back() += 1;
  const PartialVerdict last = judged(run, states).partial;
  REQUIRE(last.wrong == 1);
  CHECK(partial_report(last, true).find("keys a block") == std::string::npos);
}

TEST_CASE("partial results that do not fit are refused by name") {
  Run run = random_run({{"causal", "top_left"}});
  const PartialStates good = states_of({.block = 8}, run);
  const auto refused = [&](const std::function<void(PartialStates&)>& change) {
    PartialStates states = good;
    change(states);
    return refusal([&] { judged(run, states); });
  };
  const auto put = [](const char* name, DType type, std::vector<Index> shape) {
    return [=](PartialStates& s) { s.arrays[name] = Array(type, shape); };
  };
  constexpr DType kF = DType::kF32;
  CHECK(refused([](PartialStates&) {}) == "(not refused)");
  CHECK(says(refused(put("o", kF, {2, 4, 24, 6})),
             "test: attention: partial.o F32[2,4,24,6] has rank 4, expected 5: [N, B, H, T, E]"));
  CHECK(says(refused(put("o", kF, {4, 2, 4, 23, 6})), "has T = 23, expected 24 as in in.q"));
  CHECK(says(refused(put("o", kF, {4, 2, 4, 24, 8})), "has E = 8, expected 6 as in in.v"));
  CHECK(says(refused(put("o", DType::kI32, {4, 2, 4, 24, 6})),
             "partial.o has element type I32, expected a float type"));
  CHECK(says(refused(put("lse", DType::kBF16, {4, 2, 4, 24})),
             "partial.lse has element type BF16, expected F32 or F64"));
  CHECK(says(refused(put("lse", kF, {3, 2, 4, 24})), "has N = 3, expected 4 as in partial.o"));
  CHECK(says(refused([](PartialStates& s) { s.block = 10; }),
             "partial.o has N = 4 states, expected 3: S = 30 keys in blocks of 10 (--block-kv)"));
  for (const Index none : {Index{0}, Index{-8}}) {
    CHECK(says(refused([&](PartialStates& s) { s.block = none; }), "expected 1 or more"));
  }
  CHECK(
      says(refused([](PartialStates& s) { s.block.reset(); }),
           "partial.o has N = 4 states of S = 30 keys, expected an N that divides S, or the keys"));
  CHECK(says(refused([](PartialStates& s) { s.arrays.erase("o"); }), "partial.o is missing"));
  CHECK(says(refused(put("m", kF, {4, 2, 4, 24})), "partial.m is given beside partial.o"));
  const auto raw = [](PartialStates& s) {
    s.arrays["acc"] = s.arrays.at("o");
    s.arrays.erase("o");
  };
  CHECK(says(refused(raw), "partial.lse is given beside partial.acc"));
  CHECK(says(refused([&](PartialStates& s) { raw(s), s.arrays.erase("lse"); }),
             "partial.m is missing beside partial.acc"));
  const Run bthd = random_run({{"layout", "BTHD"}});
  CHECK(says(refusal([&] { judged(bthd, good); }), "[N, B, T, H, E], has T = 4, expected 24"));
}

}  // namespace
}  // namespace kref
