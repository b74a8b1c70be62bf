// SPDX-License-Identifier: Apache-2.0
#include "golden/json_guard.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "golden/file_text.h"
#include "golden/json_sax.h"

namespace kref {
namespace {

using nlohmann::json;

// Builds the value on a stack of its own: a text of brackets only must not exhaust ours.
class Builder {
 public:
  Builder(const std::string& origin, std::size_t depth) : origin_(origin), most_(depth) {}

  json take() { return std::move(root_); }

  bool null() { return add(nullptr), true; }
  bool boolean(bool v) { return add(v), true; }
  bool number_integer(std::int64_t v) { return add(v), true; }
  bool number_unsigned(std::uint64_t v) { return add(v), true; }
  bool number_float(double v, const std::string&) { return add(v), true; }
  bool string(std::string& v) { return add(std::move(v)), true; }
  bool binary(json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return open_.pop_back(), true; }
  bool end_array() { return open_.pop_back(), true; }
  bool key(std::string& name) {
    const bool fresh = open_.back()->emplace(name, nullptr).second;
    KREF_CHECK(fresh, origin_, ": key ", quote(name), " is given twice in one JSON object");
    key_ = std::move(name);
    return true;
  }
  [[noreturn]] bool parse_error(std::size_t, const std::string&, const json::exception& fault) {
    refuse_json_syntax(origin_, fault);
  }

 private:
  // Puts the value where the text has it. References into an array stay valid while it is open on
  // top of the stack: only the innermost open value grows.
  json* add(json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }
  bool open(json&& value) {
    KREF_CHECK(open_.size() < most_, origin_, ": JSON is nested deeper than ", most_, " levels");
    open_.push_back(add(std::move(value)));
    return true;
  }

  const std::string& origin_;
  std::size_t most_;
  json root_;
  std::vector<json*> open_;
  std::string key_;
};

}  // namespace

void check_json_text(const std::string& origin, std::string_view text, std::size_t most_bytes) {
  KREF_CHECK(text.size() <= most_bytes, origin, ": JSON text of ", text.size(),
             " bytes, expected at most ", most_bytes);
  KREF_CHECK(!text.starts_with("\xEF\xBB\xBF"), origin, ": JSON starts with a byte order mark");
  // The parser takes NUL for the end of the text and would not look at what follows.
  const std::size_t nul = text.find('\0');
  KREF_CHECK(nul == std::string_view::npos, origin, ": JSON syntax error: NUL at byte ", nul + 1);
}

void refuse_json_syntax(const std::string& origin, const nlohmann::json::exception& fault) {
  // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error while parsing
  // value - invalid literal; last read: '...'; expected ...": the place is given as a byte, and the
  // token may be as long as the text.
  std::string what = fault.what();
  for (const char* const lead : {"] ", "syntax error "}) {
    const std::size_t at = what.find(lead);
    if (at != std::string::npos) what.erase(0, at + std::strlen(lead));
  }
  const std::size_t token = what.find("; last read: ");
  if (token != std::string::npos) {
    const std::size_t expected = what.rfind("; expected ");
    const bool follows = expected != std::string::npos && expected > token;
    what.erase(token, follows ? expected - token : std::string::npos);
  }
  constexpr std::size_t kLongest = 200;
  if (what.size() > kLongest) what = what.substr(0, kLongest) + "...";
  std::string place;
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&fault)) {
    place = " at byte " + std::to_string(parse->byte);
  }
  throw Error(detail::cat(origin, ": JSON syntax error", place, ": ", what));
}

nlohmann::json parse_json(const std::string& origin, std::string_view text,
                          const JsonLimits& limits) {
  Builder builder(origin, limits.depth);
  parse_json_events(origin, text, limits.bytes, builder);
  return builder.take();
}

}  // namespace kref
