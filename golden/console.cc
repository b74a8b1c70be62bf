// SPDX-License-Identifier: Apache-2.0
#include "golden/console.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "dsl/check.h"

namespace kref {
namespace {

bool progress_shown = false;

}  // namespace

void print(std::string_view text) {
  end_progress();
  errno = 0;
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw BrokenPipe();
  throw Error(detail::cat("standard output: ", std::strerror(errno)));
}

void complain(std::string_view message) {
  end_progress();
  std::fprintf(stderr, "kref: %.*s\n", static_cast<int>(message.size()), message.data());
}

void progress(const std::string& text) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (!terminal) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  progress_shown = true;
}

void end_progress() {
  if (!progress_shown) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  progress_shown = false;
}

}  // namespace kref
