// SPDX-License-Identifier: Apache-2.0
// Partial results of attention: the state of an online softmax after each block of keys, as a
// kernel dumps it, judged against the definition over the keys so far. They tell at which block of
// keys a value departs, which the outputs alone do not.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "golden/judge.h"
#include "golden/run.h"

namespace kref {

// The states after key blocks 0 .. N - 1, of S keys in blocks of that many: N = ceil(S / block).
struct PartialStates {
  // Of attention (decode_attention: without T; layout BTHD: o and acc [N, B, T, H, E]) either
  //   o [N, B, H, T, E] of any float type, and perhaps lse [N, B, H, T] in the run's base: the
  //   results, were there no more keys; or
  //   acc [N, B, H, T, E] of any float type, m and l [N, B, H, T]: sums that have not been divided,
  //   exp(m) the factor that they lack, l the denominator. m is natural whatever the base of lse,
  //   and any shift: acc / l and m + log l are what is judged.
  // lse, m and l in F32 or F64.
  std::map<std::string, Array> arrays;
  // Keys a block, from 1; absent: S / N, which has to be whole.
  std::optional<Index> block = {};
};

// An element of a state.
struct PartialElement {
  std::string state;         // "o", "lse", "acc / l", "m + log l"
  std::vector<Index> index;  // in the state of one block: without N
  Index block = 0;
  double expected = 0, actual = 0;
  double bound = 0;
  double ratio = 0;  // |actual - expected| / bound, as Worst has it
};

// What comparing them found. A row that has seen no key yet is not judged, whatever the run makes
// of such rows: its state is 0, NaN, or stale numbers that a later maximum takes to 0, by kernel.
// So are rows past q_lengths.
struct PartialVerdict {
  Index blocks = 0, block_keys = 0, keys = 0;  // N, keys a block, S
  bool assumed = false;                        // keys a block is S / N: none was given
  Index elements = 0, wrong = 0;               // of those judged
  Index unseen = 0;                            // states of one row that were not judged
  double ratio = 0;                            // largest error as a fraction of its bound
  // Where there are sinks: the states that hold them, as explains most: "all", "last", "none".
  std::string sinks;
  // The earliest block with a wrong element, the worst of that block, and how many it has.
  std::optional<PartialElement> first = {};
  Index wrong_there = 0;
  // For the worst element of each wrong output: where it departs.
  struct Asked {
    std::string output;
    std::vector<Index> index;
    Index judged = 0;                          // states of its row that were judged
    std::optional<PartialElement> first = {};  // absent: each of them is right
  };
  std::vector<Asked> asked = {};

  bool ok() const { return wrong == 0; }
};

// ---- Operation::judge_partials. `run` has been validated with outputs, of which `outputs` are the
// verdicts. Error that names the array, its dimension, what was expected and what was found.
PartialVerdict judge_attention_partials(const Run& run, const PartialStates& states,
                                        const std::vector<Verdict>& outputs);
PartialVerdict judge_decode_partials(const Run& run, const PartialStates& states,
                                     const std::vector<Verdict>& outputs);

// At most 7 lines for people, each with a line feed. outputs_right: no verdict on them is wrong.
std::string partial_report(const PartialVerdict& verdict, bool outputs_right);
// As JSON: blocks, block_keys, elements, wrong, largest_error, unseen, sinks, first (state, index,
// block, keys, expected, actual, bound, wrong: how many there), worst: list of output, index,
// judged and departs (as first, or null).
nlohmann::ordered_json to_json(const PartialVerdict& verdict);

}  // namespace kref
