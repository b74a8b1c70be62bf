// SPDX-License-Identifier: Apache-2.0
// Expectation: the right value of every element of one output, the error an honest machine may
// make, and how the output falls into blocks and grid steps. Operations produce it, judge reads it.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dsl/array.h"

namespace kref {

// How an output is cut into the blocks that one grid step writes. One entry a dimension.
struct Blocks {
  // Grid axis that runs over the dimension: "b", "i", "j". Neighbours of one name are one axis that
  // runs over both, the first major. "": no axis does, since each device has one index of it.
  std::vector<std::string> axes;
  std::vector<Index> extents;  // block extent in the dimension, at least 1
  // Extent of the part of the dimension that one device's grid runs over, from its own index 0 on;
  // empty: the whole.
  std::vector<Index> shards = {};
  std::string steps;  // what runs inside a block, e.g. "k=0..3"; may be empty
};

// How the shards of an output lie on devices, to name the device that wrote an element. Empty when
// there is one device.
struct Owner {
  std::function<std::string(Index element)> device;  // "(X=1, Y=0)" of a flat element index
  std::vector<Index> shard = {};  // extents of the part that one device holds, an entry a dimension
};

// Wrong programs the operation can simulate, one a choice: what an element would be if that fault
// had been made. Called for few elements only.
struct Hypothesis {
  std::string pattern;  // "last k block dropped"
  // The element's value under each choice, appended to `values`; always equally many.
  std::function<void(Index element, std::vector<double>& values)> values;
  std::function<std::string(Index choice)> detail;  // "the sums stop at k = 96 of 128"
  // Every element's value under one choice, row-major: far quicker than one by one. May be absent.
  std::function<std::vector<double>(Index choice)> all = {};
  std::vector<Index> preferred = {};  // looked at first when several choices explain the output
};

struct Expectation;

// Another request under which the output might be right: the user may have named the wrong one. Or,
// under `fault`, a wrong program that the operation can simulate whole: a pattern, not a hint.
struct Alternative {
  std::string name;  // "precision bf16"; "window one too long"
  // A quick look at one element: false when its value rules the alternative out. May be absent.
  std::function<bool(Index element, double actual)> plausible = {};
  // Of the same output; `actual` is what it is, for what has to be looked up there.
  std::function<Expectation(const Array& actual)> expect;
  bool fault = false;
  double choices = 1;  // equally likely programs that it chose from, by what `actual` holds
  // Which of the faults of that name: "the left side shows one key more". After `expect`. May be
  // absent.
  std::function<std::string()> detail = {};
};

struct Expectation {
  // Results that are not finite, nor what the true value is, which an honest machine may give where
  // partial sums leave the range of the accumulator; or-ed together.
  enum Overflow : std::uint8_t {
    kNoOverflow = 0,
    kPlusInfinity = 1,
    kMinusInfinity = 2,
    kNaN = 4,
  };

  std::string output;         // "z"
  std::vector<double> value;  // row-major over the global array; exact value in f64
  // Of an I64 output that is compared exactly: the values that f64 may not hold. Else empty.
  std::vector<std::int64_t> integers = {};
  // Bounds on |actual - value|, per element. Both empty: compare exactly (integers, data movement).
  // `likely` is exceeded by an honest machine with negligible probability, `worst` never. Finite;
  // where value is not finite they are not looked at.
  std::vector<double> likely, worst;
  std::vector<std::uint8_t> overflow;  // Overflow bits, per element; empty: none anywhere
  Blocks blocks;
  Owner owner;
  std::vector<Hypothesis> hypotheses;
  std::vector<Alternative> alternatives;
};

// What a sum that ought to be `value` may come to where its partial sums may pass the range: `up`
// above it, `down` below; of a value that is infinite, those of the finite terms. vanishes: a
// machine may take an infinite term for NaN.
inline std::uint8_t overflow_bits(double value, bool up, bool down, bool vanishes = false) {
  if (value != value) return Expectation::kNoOverflow;
  if (std::isinf(value)) {
    // The other side's infinity may be there before the infinite term is added.
    const bool clash = vanishes || (value > 0 ? down : up);
    return clash ? Expectation::kNaN : Expectation::kNoOverflow;
  }
  std::uint8_t bits = Expectation::kNoOverflow;
  if (up) bits |= Expectation::kPlusInfinity;
  if (down) bits |= Expectation::kMinusInfinity;
  if (up && down) bits |= Expectation::kNaN;
  return bits;
}

}  // namespace kref
