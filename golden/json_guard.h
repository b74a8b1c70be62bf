// SPDX-License-Identifier: Apache-2.0
// JSON from files and command lines, read with the guards that nlohmann-json leaves to its caller.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace kref {

// What a text may cost its reader.
struct JsonLimits {
  std::size_t bytes = std::size_t{1} << 20;  // of the text; a value can take 16 times as much
  std::size_t depth = 32;                    // arrays and objects inside one another
};

// The one JSON value that `text` holds. Error, starting with `origin`, on text that is not JSON
// (comments, NaN, a byte order mark, NUL, text after the value, invalid UTF-8), on a key given
// twice in one object, and past the limits; a syntax error says at which byte.
nlohmann::json parse_json(const std::string& origin, std::string_view text,
                          const JsonLimits& limits = {});

}  // namespace kref
