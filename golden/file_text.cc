// SPDX-License-Identifier: Apache-2.0
#include "golden/file_text.h"

#include <cstdint>

namespace kref {
namespace {

// Bytes of the UTF-8 sequence that `text` starts with; 0 when it is malformed. `text` is not empty.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // What the lead byte leaves open: overlong forms, surrogates, values past U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  while (!text.empty()) {
    if (out.size() > kLongest) return out + "'...";
    const std::size_t length = sequence_length(text);
    const auto byte = static_cast<std::uint8_t>(text[0]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out + "'";
}

}  // namespace kref
