// SPDX-License-Identifier: Apache-2.0
// The threads that devices run on. They are created when they are first needed and kept for the
// next launch until the process exits. Internal to sharding/.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dsl/ref.h"

namespace kref::detail {

struct DeviceThread;

// A thread for each of `count` tasks; they go back to be used again when the crew goes, which is
// after the tasks are done. Error when the system does not give as many.
class Crew {
 public:
  explicit Crew(Index count);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // One task a thread, which does not throw. Copies of what the task captured may live a little
  // longer than it runs.
  void start(std::vector<std::function<void()>> tasks) noexcept;

 private:
  std::vector<std::unique_ptr<DeviceThread>> threads_;
};

}  // namespace kref::detail
