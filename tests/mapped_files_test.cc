// SPDX-License-Identifier: Apache-2.0
// A mapped file that somebody shortens: a line on standard error and an exit status, no crash.
#include "golden/mapped_files.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "golden/file_bytes.h"

namespace kref {
namespace {

std::string temporary_file(std::size_t bytes) {
  std::string path = (std::filesystem::temp_directory_path() / "kref_mapped_XXXXXX").string();
  const int fd = ::mkstemp(path.data());
  REQUIRE(fd >= 0);
  ::close(fd);
  std::filesystem::resize_file(path, bytes);
  return path;
}

struct Ended {
  int status = 0;  // as waitpid gives it
  std::string error;
};

// Runs `body` in a process of its own.
template <class Body>
Ended in_child(Body&& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ended out;
  char text[256];
  for (::ssize_t n; (n = ::read(ends[0], text, sizeof text)) > 0;)
    out.error.append(text, static_cast<std::size_t>(n));
  ::close(ends[0]);
  REQUIRE(::waitpid(child, &out.status, 0) == child);
  return out;
}

TEST_CASE("a file shortened while it is mapped ends the process with its name") {
  const std::string path = temporary_file(4 * kMapBytes), other = temporary_file(kMapBytes);
  const auto touch = [](const FileBytes& file, std::size_t at) {
    return static_cast<volatile const unsigned char*>(file.data)[at];
  };
  const Ended ended = in_child([&] {
    end_on_shortened_files(2);
    { const FileBytes gone = read_file(other); }
    const FileBytes file = read_file(path), beside = read_file(other);
    if (!file.mapped || touch(file, file.size - 1) != 0) ::_exit(9);
    std::filesystem::resize_file(path, kMapBytes);
    if (touch(file, 0) != 0 || touch(beside, 0) != 0) ::_exit(9);
    touch(file, file.size - 1);
  });
  REQUIRE(WIFEXITED(ended.status));
  CHECK(WEXITSTATUS(ended.status) == 2);
  CHECK(ended.error == "kref: " + path +
                           ": the file was shortened, or became unreadable, while it was being "
                           "read\n");
  std::filesystem::remove(path);
  std::filesystem::remove(other);
}

TEST_CASE("any other bus error ends the process as ever") {
  const Ended ended = in_child([&] {
    end_on_shortened_files(2);
    ::raise(SIGBUS);  // returns once, with the default back in place
    ::raise(SIGBUS);
  });
  CHECK(WIFSIGNALED(ended.status));
  CHECK(WTERMSIG(ended.status) == SIGBUS);
}

}  // namespace
}  // namespace kref
