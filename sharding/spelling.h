// SPDX-License-Identifier: Apache-2.0
// How names of mesh axes are spelled: shared by the readers of meshes and of partition specs.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace kref {

// What may stand around names.
constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }
// Letters, digits, underscore; ASCII whatever the locale.
constexpr bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Can a mesh axis have this name? An identifier; None is taken by the partition specs.
constexpr bool is_axis_name(std::string_view name) {
  if (name.empty() || name == "None" || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    if (!is_name_char(c)) return false;
  }
  return true;
}

// Without the blanks at both ends.
constexpr std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// For messages, which are one line: at most 80 characters, control characters as '?'.
inline std::string abridged(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > 80) out += "...";
  return out;
}

// Is it one of these axes?
inline bool contains(std::span<const std::string> axes, std::string_view axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace kref
