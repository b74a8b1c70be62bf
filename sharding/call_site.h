// SPDX-License-Identifier: Apache-2.0
// CallSite: the line that called a function, for messages. As std::source_location, which the
// standard library that clang 14 is used with does not offer it.
#pragma once

#include <string>

namespace kref {

// Taken by default arguments: `CallSite where = CallSite::here()`.
struct CallSite {
  const char* file = "";
  unsigned line = 0;

  static constexpr CallSite here(const char* file = __builtin_FILE(),
                                 unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

// "layer.cc:12": the last component of the path; "" of no place.
std::string to_string(const CallSite& where);

}  // namespace kref
