// SPDX-License-Identifier: Apache-2.0
// Options: typed access to `set` of a run. Every error names the run, the operation, the option,
// what is legal and what was found.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "golden/run.h"

namespace kref {

// Where an option is absent the getters return their fallback (or nothing, when they return an
// optional); `null` is refused except by the optional getters, where it means absent.
class Options {
 public:
  // Views `run`, which must outlive it.
  explicit Options(const Run& run) : run_(run) {}

  // The value; null when the option is absent.
  const nlohmann::json* find(const char* name) const;

  // true or false.
  bool flag(const char* name, bool fallback) const;

  // One of `legal`. A null fallback makes the option required.
  std::string choice(const char* name, const char* fallback,
                     std::initializer_list<const char*> legal) const;

  // A finite number.
  std::optional<double> number(const char* name) const;
  // The same, refused when absent.
  double required_number(const char* name) const;

  // The name of an element type among `legal`, in any spelling parse_dtype knows.
  std::optional<DType> dtype(const char* name, std::initializer_list<DType> legal) const;

  // A list of exactly `count` integers from 1 to 2^31 - 1.
  std::optional<std::vector<Index>> sizes(const char* name, std::size_t count) const;

  // Error: "RUN: OP: option NAME is FOUND, expected EXPECTED" ("is missing, ..." when absent).
  [[noreturn]] void refuse(const char* name, const std::string& expected) const;

 private:
  const Run& run_;
};

// JSON on one line, cut to at most 60 characters, never throws: for messages.
std::string shown(const nlohmann::json& value);

}  // namespace kref
