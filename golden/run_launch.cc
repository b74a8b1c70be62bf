// SPDX-License-Identifier: Apache-2.0
#include "golden/run_launch.h"

namespace kref {
namespace {
thread_local RunLog* current = nullptr;
}  // namespace

RunLogScope::RunLogScope(RunLog& log) : before_(current) { current = &log; }
RunLogScope::~RunLogScope() { current = before_; }

LaunchOptions run_launch() {
  LaunchOptions options;
  options.time_limit = std::chrono::hours(24 * 365);
  options.log = current;
  return options;
}

}  // namespace kref
