// SPDX-License-Identifier: Apache-2.0
// How the devices of a run are launched.
#pragma once

#include "sharding/launch.h"

namespace kref {

// No limit on how long a device waits: in the operations of run files a device that waits, waits
// for others that compute, however long that takes for large arrays. Who can never be met ends the
// launch at once, limit or not.
inline LaunchOptions run_launch() { return {.time_limit = std::chrono::hours(24 * 365)}; }

}  // namespace kref
