// SPDX-License-Identifier: Apache-2.0
// Memory of arrays. Large blocks are kept for the next array when they are freed: the pages of
// fresh memory are made and cleared by the kernel when they are first touched, which takes as long
// as copying to them does.
#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "dsl/tensor.h"

namespace kref::detail {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KREF_KEEPS_NO_BLOCKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define KREF_KEEPS_NO_BLOCKS
#endif
#endif

// Blocks of at least this many bytes are kept, those that malloc asks the system for one by one,
// and at most that many bytes of them. Smaller ones, which go from thread to thread then instead of
// staying with theirs, make a product in tiles of 64 KiB slower by a fifth. A sanitizer that
// watches memory is to see all that is freed: a block used again hides a late access, and the lock
// that hands it on an order between threads that do not synchronise.
constexpr std::size_t kKept = std::size_t{1} << 17;
#ifdef KREF_KEEPS_NO_BLOCKS
constexpr std::size_t kKeptAtMost = 0;
#else
constexpr std::size_t kKeptAtMost = std::size_t{512} << 20;
#endif

struct Block {
  void* memory;
  std::size_t bytes;
};

// Freed blocks, the oldest first. The kernel may take their pages when memory gets short.
class Kept {
 public:
  Kept();

  // One of at least `bytes`, without much to spare; null memory when there is none.
  Block take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (std::size_t k = blocks_.size(); k-- > 0;) {
      const Block block = blocks_[k];
      if (block.bytes < bytes || block.bytes - bytes > bytes / 4) continue;
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(k));
      total_ -= block.bytes;
      return block;
    }
    return {nullptr, 0};
  }

  // False: there is no room for it at all.
  bool put(Block block) noexcept {
    if (block.bytes > kKeptAtMost) return false;
#ifdef MADV_FREE
    // Only where that is a few huge pages: of small ones it takes as long as to fill them.
    const auto begin = reinterpret_cast<std::uintptr_t>(block.memory);
    const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage,
                         last = (begin + block.bytes) / kHugePage * kHugePage;
    if (first < last) {
      madvise(reinterpret_cast<void*>(first), last - first, MADV_FREE);  // a hint: it may fail
    }
#endif
    const std::lock_guard lock(mutex_);
    try {
      blocks_.push_back(block);
    } catch (const std::bad_alloc&) {
      return false;
    }
    total_ += block.bytes;
    while (total_ > kKeptAtMost) drop_oldest();
    return true;
  }

  void drop_all() {
    const std::lock_guard lock(mutex_);
    while (!blocks_.empty()) drop_oldest();
  }

 private:
  void drop_oldest() {
    total_ -= blocks_.front().bytes;
    std::free(blocks_.front().memory);
    blocks_.erase(blocks_.begin());
  }

  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::size_t total_ = 0;
};

// Never destroyed: arrays may be freed after everything else.
Kept& kept() {
  static Kept* const all = new Kept;
  return *all;
}

// A forked process has the blocks but not the thread that may hold the lock.
Kept::Kept() {
  pthread_atfork([] { kept().mutex_.lock(); }, [] { kept().mutex_.unlock(); },
                 [] { kept().mutex_.unlock(); });
}

// From the system. Where huge pages are to be had, large blocks are made of them.
void* fresh(std::size_t bytes) {
  void* p = nullptr;
  const bool huge = bytes >= kHugePage;
  if (posix_memalign(&p, huge ? kHugePage : kLine, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  if (huge) madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return p;
}

}  // namespace

Bytes allocate(std::size_t bytes) {
  // At least one line, so that data() is never null.
  const std::size_t rounded =
      bytes > SIZE_MAX - kLine ? bytes : (bytes + kLine - 1) / kLine * kLine;
  Block block = {nullptr, rounded == 0 ? kLine : rounded};
  if (block.bytes >= kKept) {
    const Block used = kept().take(block.bytes);
    if (used.memory != nullptr) return Bytes(used.memory, FreeBytes{used.bytes});
  }
  block.memory = fresh(block.bytes);
  if (block.memory == nullptr) {
    kept().drop_all();
    block.memory = fresh(block.bytes);
  }
  if (block.memory == nullptr) throw std::bad_alloc();
  return Bytes(block.memory, FreeBytes{block.bytes});
}

void FreeBytes::operator()(void* p) const {
  if (bytes < kKept || !kept().put({p, bytes})) std::free(p);
}

}  // namespace kref::detail
