// SPDX-License-Identifier: Apache-2.0
// The hostile files of tests/files/bad_files: each refused for its reason, in little time and
// memory.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <vector>

#include "golden/array_file.h"

// gcc says so by a macro, clang by a feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KREF_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define KREF_SANITIZED 1
#endif
#endif
#ifndef KREF_SANITIZED
#define KREF_SANITIZED 0
#endif

namespace kref {
namespace {

std::string data_path(const std::string& name) {
  return std::string(std::getenv("KREF_SOURCE_ROOT")) + "/tests/files/" + name;
}

struct Row {
  std::string file, mentions, command;
  bool good;
};

std::vector<Row> rows() {
  std::ifstream in(data_path("bad_files.tsv"));
  REQUIRE(in);
  std::vector<Row> out;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    out.push_back({fields[0], fields[2], fields[4], fields[1] == "0"});
  }
  return out;
}

// Reads every array of the file, as a command would; the message of the Error, "" when there is
// none.
std::string message_of(const std::string& path, std::optional<DType> hint) {
  try {
    for (const FileArray& a : read_array_file(path).arrays) a.array(hint);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST_CASE("hostile files are refused for their reason") {
  int refused = 0;
  for (const Row& row : rows()) {
    CAPTURE(row.file);
    const std::string path = data_path("bad_files/" + row.file);
    const auto start = std::chrono::steady_clock::now();
    std::string message = message_of(path, row.command.find("--dtype x=f32") != std::string::npos
                                               ? std::optional(DType::kF32)
                                               : std::nullopt);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    CHECK(seconds.count() < 2);
    CAPTURE(message);
    // The run_ files are whole array files; what is wrong with them is for the run layer to say.
    if (row.good || row.file.starts_with("run_")) {
      CHECK(message == "");
      continue;
    }
    ++refused;
    REQUIRE(message.starts_with(path + ": "));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < path.size() + 400);
    message.erase(0, path.size());
    CHECK(std::regex_search(message, std::regex(row.mentions, std::regex::icase)));
  }
  CHECK(refused >= 70);
#if !KREF_SANITIZED  // whose own memory would count
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  CHECK(usage.ru_maxrss < 200 * 1024);  // KiB
#endif
}

}  // namespace
}  // namespace kref
