// SPDX-License-Identifier: Apache-2.0
#include "golden/options.h"

#include <algorithm>
#include <cmath>

namespace kref {
namespace {

// "\"bf16\", \"f32\"" of names: as JSON, since lse_base is "2" and never 2.
template <class Names>
std::string quoted(const Names& names) {
  std::string out;
  for (const auto& name : names) out += detail::cat(out.empty() ? "\"" : ", \"", name, '"');
  return out;
}

}  // namespace

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

const nlohmann::json* Options::find(const char* name) const {
  const auto at = run_.set.find(name);
  return at == run_.set.end() ? nullptr : &*at;
}

void Options::refuse(const char* name, const std::string& expected) const {
  const nlohmann::json* value = find(name);
  throw Error(detail::cat(run_.origin, ": ", run_.op, ": option ", name, " is ",
                          value == nullptr ? "missing" : shown(*value), ", expected ", expected));
}

bool Options::flag(const char* name, bool fallback) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::string Options::choice(const char* name, const char* fallback,
                            std::initializer_list<const char*> legal) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr && fallback != nullptr) return fallback;
  if (value != nullptr && value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (std::any_of(legal.begin(), legal.end(), [&](const char* l) { return text == l; })) {
      return text;
    }
  }
  refuse(name, "one of " + quoted(legal));
}

std::optional<double> Options::number(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_number()) refuse(name, "a number");
  const double v = value->get<double>();
  if (!std::isfinite(v)) refuse(name, "a finite number");
  return v;
}

double Options::required_number(const char* name) const {
  const std::optional<double> v = number(name);
  if (!v) refuse(name, "a number (it has no default)");
  return *v;
}

std::optional<DType> Options::dtype(const char* name, std::initializer_list<DType> legal) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  DType type{};
  if (value->is_string()) {
    // As a C string a text ends at a NUL.
    const auto& text = value->get_ref<const std::string&>();
    if (text.find('\0') == std::string::npos && parse_dtype(text.c_str(), type) &&
        std::find(legal.begin(), legal.end(), type) != legal.end()) {
      return type;
    }
  }
  std::vector<std::string> names;
  for (const DType t : legal) names.emplace_back(name_of(t));
  refuse(name, "an element type among " + quoted(names));
}

std::optional<std::vector<Index>> Options::sizes(const char* name, std::size_t count) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  constexpr Index kLargest = 0x7FFFFFFF;  // no machine this judges has a block beyond
  const std::string expected = detail::cat("a list of ", count, " integers from 1 to ", kLargest);
  if (!value->is_array() || value->size() != count) refuse(name, expected);
  std::vector<Index> out;
  for (const nlohmann::json& entry : *value) {
    // A value past 2^63 is unsigned and reads as negative.
    if (!entry.is_number_integer() || entry.get<Index>() < 1 || entry.get<Index>() > kLargest) {
      refuse(name, expected);
    }
    out.push_back(entry.get<Index>());
  }
  return out;
}

}  // namespace kref
