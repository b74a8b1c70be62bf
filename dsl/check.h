// SPDX-License-Identifier: Apache-2.0
// The two kinds of failure. A user's mistake throws Error with a sentence that names what is wrong;
// a mistake of ours aborts in debug builds, since no caller could do anything sensible about it.
#pragma once

#include <stdexcept>
#include <string>

namespace kref {

// A request that cannot be carried out: an illegal grid, a bad file, an unknown option. what() is
// one line that names the operand, axis, step, ... with what was expected and what was found;
// further lines, where there are any, are detail.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

inline void append(std::string& out, const char* s) { out += s; }
inline void append(std::string& out, const std::string& s) { out += s; }
inline void append(std::string& out, char c) { out += c; }
template <class T>
requires requires(T v) { std::to_string(v); }
void append(std::string& out, T v) { out += std::to_string(v); }

// The pieces joined to one string; numbers in decimal.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

// Prints the failed condition with its place and aborts.
[[noreturn]] void internal_fault(const char* condition, const char* file, int line);

}  // namespace detail
}  // namespace kref

// Refuses a user's request: KREF_CHECK(m > 0, "matmul: m is ", m, ", expected > 0"). The message is
// put together only on failure.
#define KREF_CHECK(condition, ...)                           \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      throw ::kref::Error(::kref::detail::cat(__VA_ARGS__)); \
  } while (false)

// States what our own code guarantees; compiled out of release builds.
#ifdef NDEBUG
#define KREF_DCHECK(condition) static_cast<void>(0)
#else
#define KREF_DCHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::kref::detail::internal_fault(#condition, __FILE__, __LINE__); \
  } while (false)
#endif
