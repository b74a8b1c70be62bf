// SPDX-License-Identifier: Apache-2.0
// Text that comes out of files: names for messages, and whether it is UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace kref {

// The text in single quotes, fit for one line of a message: control characters and bytes that are
// not UTF-8 as \xNN, cut after some 80 bytes with "..." in place of the rest.
std::string quote(std::string_view text);

// True for well-formed UTF-8: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace kref
