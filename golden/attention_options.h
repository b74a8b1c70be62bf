// SPDX-License-Identifier: Apache-2.0
// Options and element types that the attention operations have in common, read from a run.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "golden/options.h"
#include "kernels/reference_attention.h"

namespace kref {

inline constexpr std::initializer_list<DType> kFloatTypes = {
    DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

// The value of the word among `words`, which an enum lists in the same order. Absent: the first.
template <class Enum>
Enum read_word(const Options& options, const char* name, std::initializer_list<const char*> words) {
  const std::string found = options.choice(name, *words.begin(), words);
  const auto at = std::find(words.begin(), words.end(), found);
  return static_cast<Enum>(at - words.begin());
}

reference::Window read_window(const Options& options);
std::optional<double> read_soft_cap(const Options& options);

// Is the request one that only the definition in f64 serves? The kernels compute in f32, with the
// scale as an f32 number.
bool needs_definition(DType type, double scale);

// Refuses in.NAME, if it is there, unless its element type is one of `legal`; `as` ends the
// message.
void check_input_dtype(const Run& run, const char* name, const std::vector<DType>& legal,
                       const char* as = "");

}  // namespace kref
