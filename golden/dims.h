// SPDX-License-Identifier: Apache-2.0
// Dims: shapes against the letters of TensorRule::dims, as runs.md writes them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "golden/run.h"

namespace kref {

// The sizes that letters got from the tensors seen so far.
class Dims {
 public:
  // Errors begin with "RUN: OP: ". Views `run`, which must outlive it.
  explicit Dims(const Run& run) : run_(run) {}

  // Checks `array` against `dims`: one word a dimension, either a letter ("B"), or a letter and 1
  // ("B|1": that size or 1). A letter seen for the first time takes the size found. Error that
  // names the tensor, the dimension and where the other size came from.
  void bind(const std::string& tensor, const Array& array, std::string_view dims);

  // The size of a letter; it has been bound.
  Index operator[](char letter) const { return sizes_.at(letter).size; }

 private:
  struct Size {
    Index size;
    std::string from;  // the tensor that set it
  };
  const Run& run_;
  std::map<char, Size> sizes_;
};

}  // namespace kref
