// SPDX-License-Identifier: Apache-2.0
#include "golden/mapped_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace kref {
namespace {

// One mapping that lives, or a place for the next one: a handler may walk the list at any time, so
// entries are never taken out.
struct Mapping {
  std::atomic<std::uintptr_t> begin{0};  // 0: not in use
  std::size_t bytes = 0;
  std::string path;
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings{nullptr};
std::mutex changing;

Mapping* entry(void* begin, std::size_t bytes, const std::string& path) {
  const std::lock_guard lock(changing);
  Mapping* m = mappings.load();
  while (m != nullptr && m->begin.load() != 0) m = m->next;
  const bool fresh = m == nullptr;
  if (fresh) m = new Mapping;
  m->bytes = bytes;
  m->path = path;
  m->begin.store(reinterpret_cast<std::uintptr_t>(begin));
  if (fresh) {
    m->next = mappings.load();
    mappings.store(m);
  }
  return m;
}

int exit_status = 3;

// In a signal handler: nothing that allocates or locks.
void say(const char* text) {
  for (std::size_t left = std::strlen(text); left > 0;) {
    const ::ssize_t n = ::write(STDERR_FILENO, text, left);
    if (n <= 0) return;
    text += n;
    left -= static_cast<std::size_t>(n);
  }
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Mapping* m = mappings.load(); m != nullptr; m = m->next) {
    const std::uintptr_t begin = m->begin.load();
    if (begin == 0 || at < begin || at - begin >= m->bytes) continue;
    say("kref: ");
    say(m->path.c_str());
    say(": the file was shortened, or became unreadable, while it was being read\n");
    ::_exit(exit_status);
  }
  // Not ours: the instruction runs again, and ends the process as it would have.
  std::signal(signal, SIG_DFL);
}

}  // namespace

std::shared_ptr<const void> map_file(int descriptor, std::size_t bytes, const std::string& path) {
  void* const p = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (p == MAP_FAILED) return nullptr;
  Mapping* const m = entry(p, bytes, path);
  return {p, [m, bytes](const void* mapped) {
            m->begin.store(0);
            ::munmap(const_cast<void*>(mapped), bytes);
          }};
}

void end_on_shortened_files(int status) {
  exit_status = status;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace kref
