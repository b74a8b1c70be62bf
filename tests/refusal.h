// SPDX-License-Identifier: Apache-2.0
// What a refused request is told, for tests of error messages.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "dsl/check.h"

namespace kref {

// The message of the Error that f throws; "(not refused)" when it throws none.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "(not refused)";
}

// Whether a message holds a part; shows it where it does not.
inline bool says(const std::string& message, const char* part) {
  const bool found = message.find(part) != std::string::npos;
  if (!found) MESSAGE(message);
  return found;
}

}  // namespace kref
