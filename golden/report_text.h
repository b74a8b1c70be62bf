// SPDX-License-Identifier: Apache-2.0
// How numbers and places are spelled in what the command prints.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "dsl/ref.h"

namespace kref::detail {

// v with up to so many significant digits.
inline std::string number(double v, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, v);
  return text;
}

// "[3, 5]".
inline std::string indices(const std::vector<Index>& at) {
  std::string out = "[";
  for (const Index i : at) out += (out.size() > 1 ? ", " : "") + std::to_string(i);
  return out + "]";
}

}  // namespace kref::detail
