// SPDX-License-Identifier: Apache-2.0
// Expectation: the right value of every element of one output, the error an honest machine may
// make, and how the output falls into blocks and grid steps. Operations produce it, judge reads it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dsl/ref.h"

namespace kref {

// How an output is cut into the blocks that one grid step writes. One entry a dimension.
struct Blocks {
  std::vector<std::string> axes;   // grid axis that runs over the dimension: "b0", "i", "j"
  std::vector<Index> extents;      // block extent in the dimension
  std::string steps;               // what runs inside a block, e.g. "k = 0..3"; may be empty
};

// How the shards of an output lie on devices, to name the device that wrote an element. Empty when
// there is one device.
struct Owner {
  std::function<std::string(Index element)> device;  // "(X=1, Y=0)" of a flat element index
};

// A wrong program the operation can simulate: what the element would be if that fault had been
// made. Called for few elements only; none when the fault does not touch the element.
struct Hypothesis {
  std::string pattern;  // "last k block dropped"
  std::function<std::optional<double>(Index element)> value;
};

struct Expectation {
  std::string output;         // "z"
  std::vector<double> value;  // row-major over the global array; exact value in f64
  // Bounds on |actual - value|, per element. Both empty: compare exactly (integers, data movement).
  // `likely` is exceeded by an honest machine with negligible probability, `worst` never.
  std::vector<double> likely, worst;
  Blocks blocks;
  Owner owner;
  std::vector<Hypothesis> hypotheses;
};

}  // namespace kref
