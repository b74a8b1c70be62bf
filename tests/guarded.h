// SPDX-License-Identifier: Apache-2.0
// Runs a verb on operands that end right before, or begin right after, a page that cannot be
// accessed, and looks after the bytes between their rows.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "dsl/array.h"

namespace kref::guarded {

inline constexpr unsigned char kGap = 0xA5, kUnwritten = 0x3C;

// Some bytes between two pages that end the program when they are touched.
class Guarded {
 public:
  Guarded() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    all_ = 4 * page;
    size_ = 2 * page;
    memory_ = mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    begin_ = static_cast<unsigned char*>(memory_) + page;
    REQUIRE(mprotect(begin_, size_, PROT_READ | PROT_WRITE) == 0);
  }
  ~Guarded() { munmap(memory_, all_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  unsigned char* begin() { return begin_; }
  unsigned char* end() { return begin_ + size_; }
  std::size_t size() const { return size_; }

 private:
  void* memory_;
  std::size_t all_, size_;
  unsigned char* begin_;
};

enum class Place { kDense, kBeforeTheEnd, kAfterTheStart };

struct Operand {
  DType type;
  Index rows, cols;
};

// One operand of a verb in its memory.
struct Block {
  MutableArrayRef view;
  unsigned char *from, *to;  // the bytes that are looked after: the view and its gaps

  Block(Guarded& memory, const Operand& o, Place place, Index gap) {
    const auto item = size_of(o.type);
    const Index stride = o.cols + (place == Place::kDense ? 0 : gap);
    const Index last = o.rows > 0 && o.cols > 0 ? (o.rows - 1) * stride + o.cols : 0;
    const auto bytes = static_cast<std::size_t>(last) * item;
    REQUIRE(bytes + 64 <= memory.size());
    from = place == Place::kBeforeTheEnd    ? memory.end() - bytes
           : place == Place::kAfterTheStart ? memory.begin()
                                            : memory.begin() + 32;  // room on both sides
    to = from + bytes;
    const Index shape[] = {o.rows, o.cols};
    view = MutableArrayRef(o.type, shape, from);
    view.strides[0] = stride;
    std::memset(from, kGap, bytes);
  }
  unsigned char* row(Index r) const {
    return from + static_cast<std::size_t>(r * view.strides[0]) * size_of(view.dtype);
  }
  std::size_t row_bytes() const {
    return static_cast<std::size_t>(view.extents[1]) * size_of(view.dtype);
  }
  // Small numbers that depend on seed and place in the block.
  void fill(int seed) const {
    with_dtype(view.dtype, [&]<class T>() {
      for (Index r = 0; r < view.extents[0]; ++r) {
        T* out = reinterpret_cast<T*>(row(r));
        for (Index c = 0; c < view.extents[1]; ++c)
          out[c] = static_cast<T>((seed + 3 * r + 5 * c) % 7 % (std::is_same_v<T, bool> ? 2 : 7));
      }
    });
  }
  std::vector<unsigned char> bytes() const { return {from, to}; }
  std::vector<unsigned char> elements() const {
    std::vector<unsigned char> out;
    for (Index r = 0; r < view.extents[0]; ++r) out.insert(out.end(), row(r), row(r) + row_bytes());
    return out;
  }
  void set_elements(unsigned char byte) const {
    for (Index r = 0; r < view.extents[0]; ++r) std::memset(row(r), byte, row_bytes());
  }
};

// What is being run, for whoever touches a guard: nothing else could say it.
inline char running[256];

inline void name_the_crash(int) {
  constexpr char kWhat[] = "\ntouches memory outside its operands: ";
  static_cast<void>(!write(2, kWhat, sizeof(kWhat) - 1));
  static_cast<void>(!write(2, running, std::strlen(running)));
  static_cast<void>(!write(2, "\n", 1));
  _exit(1);
}

using Verb = std::function<void(const ArrayRef* in, const MutableArrayRef& out)>;

// Runs the verb on inputs and an output (the last operand) with room around, then at the guards:
// the outputs are equal and written in full, inputs and gaps unchanged.
class Tester {
 public:
  Tester()
      : segv_(std::signal(SIGSEGV, name_the_crash)), bus_(std::signal(SIGBUS, name_the_crash)) {}
  ~Tester() { std::signal(SIGSEGV, segv_), std::signal(SIGBUS, bus_); }

  void operator()(const char* name, const std::vector<Operand>& operands, const Verb& verb,
                  bool accumulates = false) {
    describe(name, operands);
    const std::vector<unsigned char> expected =
        run(operands, verb, Place::kDense, 0, accumulates, kUnwritten);
    for (const Index gap : {0, 3}) {
      for (const Place place : {Place::kBeforeTheEnd, Place::kAfterTheStart}) {
        const std::vector<unsigned char> got = run(operands, verb, place, gap, accumulates, kGap);
        if (got != expected) {
          CAPTURE(gap);
          CAPTURE(place == Place::kAfterTheStart);
          FAIL_CHECK(
              running
              << ": another result than with room around, or elements that were not written");
        }
      }
    }
    ++count;
  }
  Index count = 0;

 private:
  std::vector<unsigned char> run(const std::vector<Operand>& operands, const Verb& verb,
                                 Place place, Index gap, bool accumulates,
                                 unsigned char unwritten) {
    const std::size_t n = operands.size() - 1;
    std::vector<Block> blocks;
    std::vector<ArrayRef> in;
    std::vector<std::vector<unsigned char>> before;
    for (std::size_t o = 0; o <= n; ++o) {
      blocks.emplace_back(memory_[o], operands[o], place, gap);
      if (o < n || accumulates) {
        blocks[o].fill(static_cast<int>(o) + 1);
      } else {
        blocks[o].set_elements(unwritten);
      }
      if (o < n) in.push_back(blocks[o].view), before.push_back(blocks[o].bytes());
    }
    verb(in.data(), blocks[n].view);
    for (std::size_t o = 0; o < n; ++o) {
      if (blocks[o].bytes() != before[o]) FAIL_CHECK(running << ": input " << o << " was changed");
    }
    std::vector<unsigned char> out = blocks[n].elements();
    blocks[n].set_elements(kGap);
    for (const unsigned char byte : blocks[n].bytes()) {
      if (byte != kGap) {
        FAIL_CHECK(running << ": a byte between the rows of the output was changed");
        break;
      }
    }
    return out;
  }

  static void describe(const char* name, const std::vector<Operand>& operands) {
    std::size_t n = 0;
    const auto add = [&](int more) { n += static_cast<std::size_t>(more); };
    add(std::snprintf(running, sizeof(running), "%s", name));
    for (const Operand& o : operands) {
      add(std::snprintf(running + n, sizeof(running) - n, " %s[%d,%d]", name_of(o.type),
                        static_cast<int>(o.rows), static_cast<int>(o.cols)));
    }
  }

  void (*segv_)(int);
  void (*bus_)(int);
  Guarded memory_[4];
};

}  // namespace kref::guarded
