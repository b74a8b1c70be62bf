// SPDX-License-Identifier: Apache-2.0
// How the devices of a run are launched.
#pragma once

#include "sharding/launch.h"

namespace kref {

// No limit on how long a device waits: in the operations of run files a device that waits, waits
// for others that compute, however long that takes for large arrays. Who can never be met ends the
// launch at once, limit or not. With the log of the innermost RunLogScope of the calling thread.
LaunchOptions run_launch();

// While it lives, and on the thread that made it, what operations launch is added to `log`, and
// they run as a TPU's program would that hides what it can (LayerOptions::overlap).
class RunLogScope {
 public:
  explicit RunLogScope(RunLog& log);
  ~RunLogScope();
  RunLogScope(const RunLogScope&) = delete;
  RunLogScope& operator=(const RunLogScope&) = delete;

 private:
  RunLog* const before_;
};

}  // namespace kref
