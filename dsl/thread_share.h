// SPDX-License-Identifier: Apache-2.0
// ThreadShare: how much of the machine one thread may use for its grids, and when it is to stop;
// for whoever runs several programs side by side, as devices are.
#pragma once

#include <atomic>

#include "dsl/check.h"

namespace kref {

// The end of a grid, or of what is built on grids, because somebody else asked for it.
class Stopped : public Error {
 public:
  using Error::Error;
};

// While it lives, and on the thread that made it: threads() and with it the team of Grid::run is at
// most `count`, which is 1 or more; and once *stop is true, Grid::run and Grid::check throw Stopped
// before their next step. `stop` outlives the object; none: nobody stops them. The innermost one of
// a thread counts, with the smallest `count` of all.
class ThreadShare {
 public:
  explicit ThreadShare(int count, const std::atomic<bool>* stop = nullptr);
  ~ThreadShare();
  ThreadShare(const ThreadShare&) = delete;
  ThreadShare& operator=(const ThreadShare&) = delete;

 private:
  const int count_before_;
  const std::atomic<bool>* const stop_before_;
};

namespace detail {
// Of the calling thread: null where nobody stops it.
const std::atomic<bool>* stop_signal();
// Of the calling thread; 0: as many as there are.
int thread_share();
}  // namespace detail

}  // namespace kref
