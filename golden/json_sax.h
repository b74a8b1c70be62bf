// SPDX-License-Identifier: Apache-2.0
// The event form of json_guard.h, for readers that build no tree. Not for users.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "dsl/check.h"

namespace kref {

// Error on text that the parser would let pass although it is not JSON.
void check_json_text(const std::string& origin, std::string_view text, std::size_t most_bytes);

[[noreturn]] void refuse_json_syntax(const std::string& origin,
                                     const nlohmann::json::exception& fault);

// Sends the events of `text` to `sax`, whose handlers throw Error to refuse.
template <class Sax>
void parse_json_events(const std::string& origin, std::string_view text, std::size_t most_bytes,
                       Sax& sax) {
  check_json_text(origin, text, most_bytes);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
  KREF_CHECK(complete, origin, ": not JSON");
}

}  // namespace kref
