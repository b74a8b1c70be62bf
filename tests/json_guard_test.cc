// SPDX-License-Identifier: Apache-2.0
#include "golden/json_guard.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "dsl/check.h"
#include "golden/file_text.h"

namespace kref {
namespace {

using nlohmann::json;
using namespace std::string_literals;

TEST_CASE("JSON values of every kind") {
  const json v = parse_json(
      "set", R"( {"a": [1, -2, 3.5, null, true, "x\u00e9"], "b": {"a": {}}, "c": [[], [7]]} )");
  CHECK(v["a"][0].is_number_unsigned());
  CHECK(v["a"][1] == -2);
  CHECK(v["a"][2] == 3.5);
  CHECK(v["a"][3].is_null());
  CHECK(v["a"][4] == true);
  CHECK(v["a"][5] == "xé");
  CHECK(v["b"]["a"] == json::object());
  CHECK(v["c"][1][0] == 7);
  CHECK(v.size() == 3);
  CHECK(parse_json("set", "7") == 7);
}

TEST_CASE("what nlohmann-json lets pass, or falls over") {
  const auto refused = [](const std::string& text, const char* message, JsonLimits limits = {}) {
    CAPTURE(text.substr(0, 40));
    CHECK_THROWS_WITH_AS(parse_json("set", text, limits), message, Error);
  };
  refused(R"({"a":1,"b":{"a":2,"a":3}})", "set: key 'a' is given twice in one JSON object");
  refused("\xEF\xBB\xBF{}", "set: JSON starts with a byte order mark");
  refused("{}\0junk"s, "set: JSON syntax error: NUL at byte 3");
  refused(std::string(100000, '['), "set: JSON is nested deeper than 32 levels");
  refused("[[[]]]", "set: JSON is nested deeper than 2 levels", {.depth = 2});
  refused("[1,2]", "set: JSON text of 5 bytes, expected at most 4", {.bytes = 4});
}

TEST_CASE("syntax errors give the place and fit on a line") {
  const auto refused = [](const std::string& text, const char* part) {
    CAPTURE(text.substr(0, 40));
    CHECK_THROWS_WITH_AS(parse_json("set", text), doctest::Contains(part), Error);
  };
  refused("", "set: JSON syntax error at byte 1: while parsing value - unexpected end of input");
  refused("[1,]", "at byte 4: while parsing value - unexpected ']'");
  refused("{} {}", "at byte 4: while parsing value - unexpected '{'; expected end of input");
  refused("[NaN]", "at byte 2: while parsing value - invalid literal");
  refused("[1] // why", "at byte 5");
  refused("{'a':1}", "at byte 2: while parsing object key");
  refused("[\"\xff\"]", "ill-formed UTF-8");
  refused("[\"\\ud800\"]", "surrogate");
  refused("[1e999]", "set: JSON syntax error");
  refused("[\"" + std::string(100000, 'x') + "\n\"]", "control character");
  try {
    parse_json("set", "[\"" + std::string(100000, 'x') + "\n\"]");
  } catch (const Error& e) {
    const std::string what = e.what();
    CHECK(what.size() < 300);
    CHECK(what.find('\n') == std::string::npos);
  }
}

TEST_CASE("text from files is fit for a message") {
  CHECK(quote("größe") == "'größe'");
  CHECK(quote("a\nb\x7f\xff"s) == "'a\\x0ab\\x7f\\xff'");
  CHECK(quote("\xc3"s) == "'\\xc3'");
  CHECK(quote(std::string(500, 'x')).size() < 90);
  for (const char* const good : {"", "a", "é", "行", "🙂", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"})
    CHECK(is_utf8(good));
  for (const char* const bad :
       {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE8\xA1"}) {
    CHECK_FALSE(is_utf8(bad));
  }
}

}  // namespace
}  // namespace kref
