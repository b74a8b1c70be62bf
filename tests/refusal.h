// SPDX-License-Identifier: Apache-2.0
// What a refused request is told, for tests of error messages.
#pragma once

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

}  // namespace kref
