// SPDX-License-Identifier: Apache-2.0
// How many threads there are. An OpenMP runtime that cannot create one ends the process, so that
// the system is asked for as many first.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "dsl/grid_run.h"
#include "dsl/tensor.h"
#include "dsl/thread_share.h"
#include "dsl/threads.h"

namespace kref {

namespace {
std::atomic<int> thread_count{0};
}

void set_threads(int count) {
  KREF_CHECK(count >= 0, "set_threads: ", count, " threads, expected >= 0");
  thread_count = count;
}

int threads() {
  const int count = thread_count;
  const int all = count > 0 ? count : omp_get_max_threads();
  const int share = detail::thread_share();
  return share > 0 ? std::min(share, all) : all;
}

namespace detail {
namespace {

// Threads of this process as the system counts them; 0 where it does not say.
int running() {
  int count = 0;
  if (std::FILE* status = std::fopen("/proc/self/status", "r"); status != nullptr) {
    char line[256];
    while (std::fgets(line, sizeof line, status) != nullptr &&
           std::sscanf(line, "Threads: %d", &count) != 1) {
    }
    std::fclose(status);
  }
  return count;
}

// Creates up to `wanted` threads that live at the same time, ends them, and returns how many there
// were.
int create(int wanted) {
  constexpr std::size_t kSpare = std::size_t{4} << 20;  // for what a runtime keeps of its threads
  const int before = running();
  std::vector<std::thread> created;
  {
    std::mutex gate;
    const std::unique_lock closed(gate);
    try {
      const Bytes spare = allocate(kSpare);
      created.reserve(static_cast<std::size_t>(wanted));
      while (static_cast<int>(created.size()) < wanted) {
        created.emplace_back([&gate] { const std::lock_guard pass(gate); });
      }
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
  }
  for (std::thread& t : created) t.join();
  // The system counts a thread for a moment after it was joined. No longer than that: where others
  // create threads meanwhile, the count does not come back.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  for (int wait = 0; running() > before && std::chrono::steady_clock::now() < until; ++wait) {
    if (wait < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return static_cast<int>(created.size());
}

}  // namespace

int team_size(const Program& program, int wanted) {
  // The size of the team that this thread opened last. The runtime keeps its threads, but ends
  // those that a smaller team does not need, so that a team grows and does not shrink.
  thread_local int kept = 1;
  int size = std::max(wanted, std::min(kept, threads()));
  if (size > kept) {
    const int possible = kept + create(size - kept);
    KREF_CHECK(possible >= size || thread_count == 0, "grid '", program.name, "': ", size,
               " threads were asked for, the system gives this process ", possible);
    size = possible;
  }
  kept = size;
  return size;
}

}  // namespace detail
}  // namespace kref
