// SPDX-License-Identifier: Apache-2.0
// Verdicts as JSON, for `--json`. Keys keep their order and their names; numbers that JSON cannot
// hold are the strings "nan", "inf" and "-inf".
#pragma once

#include <nlohmann/json.hpp>

#include "golden/judge.h"

namespace kref {

// A verdict as an object, a number as a number or one of the strings above.
nlohmann::ordered_json to_json(const Verdict& verdict);
nlohmann::ordered_json number_json(double value);

// One line, ASCII only, never throws.
std::string json_line(const nlohmann::ordered_json& object);

}  // namespace kref
