// SPDX-License-Identifier: Apache-2.0
// How many threads a grid spreads its parallel axes over. No result depends on it.
#pragma once

namespace kref {

// For every later Grid::run of the process; 0 restores the default, which is OpenMP's
// (OMP_NUM_THREADS, else the number of cores) or, where the system does not give that many, what it
// gives. Error when negative; a run that needs more threads than the system gives is refused.
void set_threads(int count);

// What the next Grid::run of this thread will use at most: less within a device, which has its
// share of them (thread_share.h).
int threads();

}  // namespace kref
