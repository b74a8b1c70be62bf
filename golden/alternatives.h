// SPDX-License-Identifier: Apache-2.0
// What a wrong output is right for.
#pragma once

#include <string>

#include "golden/pattern.h"

namespace kref {

// Names the alternatives of the expectation under which every element lies within its likely bound,
// on evidence that chance would hardly give: "matches precision bf16: ...". "" when there is none.
std::string matching_alternatives(const Compared& c, const WrongElements& wrong);

}  // namespace kref
