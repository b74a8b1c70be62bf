// SPDX-License-Identifier: Apache-2.0
// The memory of arrays: aligned, and large blocks are used again.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "dsl/array.h"

namespace kref {
namespace {

constexpr std::size_t kMega = std::size_t{1} << 20;

bool aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

TEST_CASE("blocks of every size are aligned and can be written to the last byte") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, kMega - 1, kMega,
                                  kMega + 1, 4 * kMega, 9 * kMega + 13}) {
    CAPTURE(bytes);
    for (int turn = 0; turn < 3; ++turn) {
      const detail::Bytes block = detail::allocate(bytes);
      CHECK(block.get() != nullptr);
      CHECK(aligned(block.get(), 64));
      CHECK(block.get_deleter().bytes >= bytes);
      std::memset(block.get(), 0x5a, bytes);
    }
  }
}

TEST_CASE("blocks that live at the same time do not overlap, whatever was freed before") {
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<detail::Bytes> blocks;
    for (int k = 0; k < 12; ++k) {
      const std::size_t bytes = (1 + static_cast<std::size_t>(k + turn) % 5) * kMega;
      blocks.push_back(detail::allocate(bytes));
      std::memset(blocks.back().get(), k, bytes);
    }
    for (int k = 0; k < 12; ++k) {
      const std::size_t bytes = (1 + static_cast<std::size_t>(k + turn) % 5) * kMega;
      const auto* p = static_cast<const unsigned char*>(blocks[static_cast<std::size_t>(k)].get());
      for (std::size_t i = 0; i < bytes; i += 4093) REQUIRE(p[i] == k);
      CHECK(p[bytes - 1] == k);
    }
  }
}

TEST_CASE("a new array of zeros is zero, also in memory that was used") {
  const Index shape[] = {3 << 18};
  for (int turn = 0; turn < 3; ++turn) {
    Array x(DType::kF32, shape);
    for (const float v : x.elements<float>()) REQUIRE(v == 0);
    for (float& v : x.mutable_elements<float>()) v = 1;
  }
}

TEST_CASE("threads take and free blocks at the same time") {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int turn = 0; turn < 50; ++turn) {
        const detail::Bytes block = detail::allocate((1 + static_cast<std::size_t>(t)) * kMega);
        std::memset(block.get(), t, 4096);
        if (static_cast<const unsigned char*>(block.get())[4095] != t) std::abort();
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

// A process forked while a thread takes or frees a block would wait for that thread forever. Not
// under a sanitizer that has an allocator of its own: those of LLVM 14 do wait so.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define KREF_FORKS 0
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define KREF_FORKS 0
#endif
#ifndef KREF_FORKS
#define KREF_FORKS 1
#endif
TEST_CASE("a process forked in the midst of it takes and frees blocks" *
          doctest::skip(!KREF_FORKS)) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&done] {
      while (!done) detail::allocate(kMega);
    });
  }
  std::fflush(stdout);
  int good = 0;
  for (int turn = 0; turn < 100 && good == turn; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      const detail::Bytes block = detail::allocate(kMega);
      std::memset(block.get(), 1, kMega);
      _exit(static_cast<const unsigned char*>(block.get())[kMega - 1] == 1 ? 7 : 1);
    }
    int how = 0;
    if (child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 7) {
      ++good;
    }
  }
  done = true;
  for (std::thread& t : threads) t.join();
  CHECK(good == 100);
}

}  // namespace
}  // namespace kref
