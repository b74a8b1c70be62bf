// SPDX-License-Identifier: Apache-2.0
// Partial results of attention: those of honest kernels are right, and of a wrong one the first
// block of keys is named at which a value departs.
#include <doctest/doctest.h>

#include <cstdlib>

#include "golden/decode_op.h"
#include "golden/partial.h"
#include "tests/attention_dumps.h"
#include "tests/op_runs.h"
#include "tests/refusal.h"

namespace kref {
namespace {

using reference::Causal;

std::string folder(const char* name) {
  return std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/runs/" + name;
}

TEST_CASE("partial results of honest kernels are right for every run, and zeros are not") {
  Index zeros_found = 0, elements = 0, later_sinks = 0;
  for (const std::string& path : run_files(folder("attention"))) {
    CAPTURE(path);
    Run run = read_run(path);
    const AttentionRun attention = read_attention(run);
    run.out = outputs_of(attention);
    const bool sinks = attention.in.sinks.has_value();
    for (const bool raw : {false, true}) {
      for (int sink = 0; sink < (sinks ? 3 : 1); ++sink) {
        DumpingKernel kernel{.block = attention.keys / 3 + 1, .raw = raw};
        kernel.sink = sink == 0   ? DumpingKernel::kFirst
                      : sink == 1 ? DumpingKernel::kLast
                                  : DumpingKernel::kAfter;
        const PartialStates states = states_of(kernel, run);
        const Judged found = judged(run, states);
        CAPTURE(found.text());
        CHECK(found.outputs_right());
        CHECK(found.partial.ok());
        CHECK(found.partial.ratio <= 1);
        if (sinks) {
          // All explain everything where a sink has no weight.
          const std::string& in = found.partial.sinks;
          const bool told = in == (sink == 0 ? "all" : sink == 1 ? "last" : "none");
          CHECK((told || in == "all"));
          later_sinks += told && sink > 0 ? 1 : 0;
        }
        elements += found.partial.elements;
        PartialStates zero = states;
        for (auto& [name, array] : zero.arrays) {
          array = Array(array.dtype(), {array.shape().begin(), array.shape().end()});
        }
        zeros_found += judged(run, zero).partial.wrong;
      }
    }
  }
  CHECK(elements > 10'000);
  CHECK(later_sinks >= 4);
  CHECK(zeros_found > elements * 9 / 10);
}

// A copy of f32 numbers, one of them 1 more.
Array raised(const Array& given, std::size_t at) {
  const auto numbers = given.elements<float>();
  std::vector<double> values(numbers.begin(), numbers.end());
  values[at] += 1;
  return rounded_array(DType::kF32, {given.shape().begin(), given.shape().end()}, values);
}

struct Fault {
  const char* name;
  nlohmann::json options;  // of the run
  // What the kernel goes by in block 2 in their place; null: it leaves rows 8 .. 15 of head 1 out.
  nlohmann::json block_options;
};

TEST_CASE("the block of keys at which a fault begins is named") {
  const std::vector<Fault> faults = {
      {"tile dropped", {}, nullptr},
      {"tile dropped, BTHD", {{"layout", "BTHD"}, {"causal", "bottom_right"}}, nullptr},
      {"causal ignored", {{"causal", "top_left"}}, {{"causal", "none"}}},
      {"other alignment", {{"causal", "bottom_right"}}, {{"causal", "top_left"}}},
      {"window one too long",
       {{"window", {6, 3}}, {"layout", "BTHD"}},
       {{"window", {6, 4}}, {"layout", "BTHD"}}},
      {"window ignored",
       {{"window", {2, nullptr}}, {"causal", "top_left"}},
       {{"causal", "top_left"}}},
      {"scale", {{"soft_cap", 2.0}, {"lse_base", "2"}}, {{"soft_cap", 2.0}, {"scale", 1.0}}}};
  for (const Fault& fault : faults) {
    for (const bool raw : {false, true}) {
      CAPTURE(std::string(fault.name));
      CAPTURE(raw);
      Run run = random_run(fault.options.is_null() ? nlohmann::json::object() : fault.options);
      std::vector<SeenRow> wrong;
      if (!fault.block_options.is_null()) {
        const Run other = random_run(fault.block_options);
        const AttentionRun attention = read_attention(other);
        wrong = rows_of(attention, attention.options);
      }
      DumpingKernel kernel{.block = 8, .raw = raw};
      kernel.take = [&](const SeenRow& row, Index j, std::vector<SeenKey> right) {
        if (j != 2) return right;
        if (wrong.empty()) {
          if (row.head == 1 && row.query / 8 == 1) right.clear();
          return right;
        }
        std::vector<SeenKey> taken;
        for (const SeenKey& key :
             wrong[static_cast<std::size_t>((row.batch * 4 + row.head) * 24 + row.query)].keys) {
          if (key.index / 8 == 2) taken.push_back(key);
        }
        return taken;
      };
      const PartialStates states = states_of(kernel, run);
      const Judged found = judged(run, states);
      const std::string text = found.text();
      CAPTURE(text);
      CHECK_FALSE(found.outputs_right());
      REQUIRE(found.partial.first);
      CHECK(found.partial.first->block == 2);
      CHECK(found.partial.wrong_there > 0);
      CHECK(found.partial.blocks == 4);
      for (const PartialVerdict::Asked& asked : found.partial.asked) {
        REQUIRE(asked.first);
        CHECK(asked.first->block == 2);
        if (asked.output == "o") CHECK(asked.first->index == asked.index);
      }
      CHECK(!found.partial.asked.empty());
      CHECK(says(text, "first depart at key block 2 (keys 16..23) of 4, where "));
      CHECK(says(text, "the worst o["));
      CHECK(std::count(text.begin(), text.end(), '\n') <= 6);
      CHECK(to_json(found.partial)["first"]["keys"] == nlohmann::ordered_json({16, 24}));
    }
  }
}

TEST_CASE("where no lse is dumped, that of the output departs with its row of o") {
  Run run = random_run({{"causal", "bottom_right"}});
  DumpingKernel kernel{.block = 10};
  kernel.take = [](const SeenRow& row, Index j, std::vector<SeenKey> right) {
    if (j == 1 && row.query == 20) right.clear();
    return right;
  };
  PartialStates states = states_of(kernel, run);
  states.arrays.erase("lse");
  states.block.reset();  // 30 keys in 3 states
  const Judged found = judged(run, states);
  REQUIRE(found.partial.asked.size() == 2);
  CHECK(found.partial.block_keys == 10);
  for (const PartialVerdict::Asked& asked : found.partial.asked) {
    REQUIRE(asked.first);
    CHECK(asked.first->block == 1);
    CHECK(asked.first->state == "o");
    CHECK(asked.index[2] == 20);
  }
}

TEST_CASE("a fault behind the last block, and one that later blocks heal, are told apart") {
  Run run = random_run({{"causal", "top_left"}});
  const PartialStates states = states_of({.block = 8}, run);
  Run bad = run;
  bad.out["o"] = raised(run.out.at("o"), 5);
  const Judged behind = judged(bad, states);
  CHECK(behind.partial.ok());
  CHECK(says(behind.text(), "are right: the fault lies behind the last key block"));
  CHECK(behind.partial.asked.at(0).judged == 4);

  PartialStates healed = states;
  // Row 23 of the last head after block 1, in a state that the next one does not come from.
  healed.arrays["o"] = raised(states.arrays.at("o"), 2 * (2 * 4 * 24 * 6) - 1);
  const Judged passing = judged(run, healed);
  CHECK(passing.outputs_right());
  CHECK(passing.partial.wrong == 1);
  REQUIRE(passing.partial.first);
  CHECK(passing.partial.first->block == 1);
  CHECK(passing.partial.first->index == std::vector<Index>{1, 3, 23, 5});
  CHECK(says(passing.text(), "though the outputs are right"));
  // Another element is wrong at the end than in the states.
  CHECK(
      says(judged(bad, healed).text(), "each partial result of the worst o[0, 0, 0, 5] is right"));
}

TEST_CASE("partial results of decode_attention") {
  Index judged_elements = 0, found = 0;
  for (const std::string& path : run_files(folder("decode"))) {
    CAPTURE(path);
    Run run = read_run(path);
    const DecodeRun decode = read_decode(run);
    const reference::DecodeAsAttention as(decode.in, decode.options);
    std::map<std::string, Array> like = {{"o", Array(decode.out_dtype, decode.o_shape())},
                                         {"lse", Array(DType::kF32, decode.lse_shape())}};
    DumpingKernel kernel{.block = decode.slots / 4 + 1};
    const AttentionRun attention = as_attention(decode, as);
    const Judged right = judged(run, {kernel(attention, like).states, kernel.block});
    CAPTURE(right.text());
    CHECK(right.partial.ok());
    judged_elements += right.partial.elements;
    kernel.take = [](const SeenRow&, Index j, std::vector<SeenKey> keys) {
      return j == 1 ? std::vector<SeenKey>() : keys;
    };
    const Judged wrong = judged(run, {kernel(attention, like).states, kernel.block});
    if (wrong.partial.first) CHECK(wrong.partial.first->block == 1);
    found += wrong.partial.wrong;
  }
  CHECK(judged_elements > 1000);
  CHECK(found > 100);
}

}  // namespace
}  // namespace kref
